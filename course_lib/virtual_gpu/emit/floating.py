"""Floating-point arithmetic.

f16 and bf16 are computed in float and rounded once when stored: for +, -, * and / that is exact
rounding, because float has more than twice their digits.  fma goes through double, rounded to odd.
``.ftz`` is ignored: results differ from the GPU's below the smallest normal number only.
"""

from __future__ import annotations

from course_lib.ptx.parse import BITS, Instruction
from course_lib.virtual_gpu.emit.builder import FLOAT_TYPE, Builder
from course_lib.virtual_gpu.emit.integer import (
    finish_comparison,
    kind_of,
    move,
    select,
    select_by_sign,
    write_set,
)
from course_lib.virtual_gpu.emit.rounding import DIRECTED, round_directed
from course_lib.virtual_gpu.emit.row import Row

_SUFFIX = {"float": "f32", "double": "f64"}
_HALF_OF = {"f16x2": "f16", "bf16x2": "bf16"}


def arithmetic(e: Builder, i: Instruction) -> None:
    """Any floating operation on scalars or, half by half, on packed halves."""
    kind = kind_of(i)
    half = _HALF_OF.get(kind)
    if half is None:
        values = [e.float_value(operand, kind) for operand in i.operands[1:]]
        e.set_float(i.operands[0], _compute(e, i, values, kind), kind)
        return
    packed = [e.value(operand, 32) for operand in i.operands[1:]]
    parts = []
    for shift in (0, 16):
        halves = [
            e.widen(e.t(f"trunc i32 {e.t(f'lshr i32 {value}, {shift}')} to i16"), half)
            for value in packed
        ]
        parts.append(e.resize(e.narrow(_compute(e, i, halves, half), half), 16, 32))
    e.set(i.operands[0], e.t(f"or i32 {parts[0]}, {e.t(f'shl i32 {parts[1]}, 16')}"), 32)


def _compute(e: Builder, i: Instruction, values: list[str], kind: str) -> str:
    t = FLOAT_TYPE[kind]
    words = i.modifiers
    directed = next((w for w in words if w in DIRECTED), None)
    if directed and kind == "f32" and i.family in ("add", "sub", "mul", "fma", "mad", "div"):
        result = _in_double(e, i.family, values, directed)
    else:
        result = _OPERATIONS[i.family](e, values, t, kind)
    if "NaN" in words and i.family in ("min", "max"):
        name = "minimum" if i.family == "min" else "maximum"
        result = _intrinsic(e, name, values, t)
        if "xorsign" in words:
            raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    if "sat" in words:
        result = _intrinsic(e, "minnum", [_intrinsic(e, "maxnum", [result, "0.0"], t), "1.0"], t)
    if "relu" in words:
        result = _intrinsic(e, "maxnum", [result, "0.0"], t)
    return result


def _in_double(e: Builder, family: str, values: list[str], mode: str) -> str:
    """A float operation with directed rounding, from the double result."""
    wide = [e.t(f"fpext float {value} to double") for value in values]
    return round_directed(e, _OPERATIONS[family](e, wide, "double", "f64"), mode)


def _intrinsic(e: Builder, name: str, values: list[str], t: str) -> str:
    return e.intrinsic(f"llvm.{name}.{_SUFFIX[t]}", t, [(t, value) for value in values])


def _binary(operation: str):
    def emit(e: Builder, v: list[str], t: str, kind: str) -> str:
        return e.t(f"{operation} {t} {v[0]}, {v[1]}")

    return emit


def _named(name: str):
    def emit(e: Builder, v: list[str], t: str, kind: str) -> str:
        return _intrinsic(e, name, v, t)

    return emit


def _fused(e: Builder, v: list[str], t: str, kind: str) -> str:
    if kind not in ("f16", "bf16"):
        return _intrinsic(e, "fma", v, t)
    wide = [e.t(f"fpext float {value} to double") for value in v]
    exact = e.t(f"fadd double {e.t(f'fmul double {wide[0]}, {wide[1]}')}, {wide[2]}")
    return e.helper("double_to_float_odd", "float", [("double", exact)])


def _reciprocal(e: Builder, v: list[str], t: str, kind: str) -> str:
    return e.t(f"fdiv {t} 1.0, {v[0]}")


def _reciprocal_root(e: Builder, v: list[str], t: str, kind: str) -> str:
    return e.t(f"fdiv {t} 1.0, {_intrinsic(e, 'sqrt', v, t)}")


def _copy_sign(e: Builder, v: list[str], t: str, kind: str) -> str:
    return _intrinsic(e, "copysign", [v[1], v[0]], t)


def _library(name: str):
    """A function of libm; doubles are not needed, PTX has these for f32 and halves only."""

    def emit(e: Builder, v: list[str], t: str, kind: str) -> str:
        e.declared[name] = f"declare float @{name}(float) nounwind readnone"
        if t == "double":
            raise e.unsupported(f"{name} of a double")
        return e.t(f"call float @{name}(float {v[0]})")

    return emit


def _three(name: str):
    """min and max of two or three values."""

    def emit(e: Builder, v: list[str], t: str, kind: str) -> str:
        result = v[0]
        for value in v[1:]:
            result = _intrinsic(e, name, [result, value], t)
        return result

    return emit


_OPERATIONS = {
    "add": _binary("fadd"),
    "sub": _binary("fsub"),
    "mul": _binary("fmul"),
    "div": _binary("fdiv"),
    "fma": _fused,
    "mad": _fused,
    "neg": lambda e, v, t, kind: e.t(f"fneg {t} {v[0]}"),
    "abs": _named("fabs"),
    "min": _three("minnum"),
    "max": _three("maxnum"),
    "sqrt": _named("sqrt"),
    "rsqrt": _reciprocal_root,
    "rcp": _reciprocal,
    "copysign": _copy_sign,
    "sin": _library("sinf"),
    "cos": _library("cosf"),
    "ex2": _library("exp2f"),
    "lg2": _library("log2f"),
    "tanh": _library("tanhf"),
}

# "oeq": ordered, so false where a value is NaN; the u forms are true there.
_CONDITIONS = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
    "num": "ord", "nan": "uno",
}  # fmt: skip


def _condition(e: Builder, i: Instruction) -> str:
    word = _CONDITIONS.get(i.modifiers[0])
    if word is None:
        raise e.unsupported(f"the comparison {i.modifiers[0]} of floating values")
    return word


def compare(e: Builder, i: Instruction) -> str:
    kind = kind_of(i)
    a, b = (e.float_value(operand, kind) for operand in i.operands[1:3])
    return e.t(f"fcmp {_condition(e, i)} {FLOAT_TYPE[kind]} {a}, {b}")


def set_predicate(e: Builder, i: Instruction) -> None:
    kind = kind_of(i)
    if kind not in _HALF_OF:
        finish_comparison(e, i, compare(e, i))
        return
    from course_lib.ptx.parse import Pair

    low, high = _compare_packed(e, i, _HALF_OF[kind])
    operation = next((w for w in i.modifiers if w in ("and", "or", "xor")), None)
    if operation:
        other = e.value(i.operands[3], 1)
        low, high = (e.t(f"{operation} i1 {v}, {other}") for v in (low, high))
    target = i.operands[0]
    if not isinstance(target, Pair):
        raise e.unsupported(f"{i.opcode} with one destination")
    e.set(target.first, low, 1)
    e.set(target.second, high, 1)


def _compare_packed(e: Builder, i: Instruction, half: str) -> list[str]:
    word = _condition(e, i)
    packed = [e.value(operand, 32) for operand in i.operands[1:3]]
    found = []
    for shift in (0, 16):
        a, b = (
            e.widen(e.t(f"trunc i32 {e.t(f'lshr i32 {value}, {shift}')} to i16"), half)
            for value in packed
        )
        found.append(e.t(f"fcmp {word} float {a}, {b}"))
    return found


def set_value(e: Builder, i: Instruction) -> None:
    """set: also the packed form, which gives 1.0 or all ones per half."""
    kind = kind_of(i)
    if kind not in _HALF_OF:
        write_set(e, i, compare(e, i))
        return
    target = next(w for w in i.modifiers if w in BITS)
    one = {"f16x2": 15360, "bf16x2": 16256}.get(target, 65535)
    low, high = _compare_packed(e, i, _HALF_OF[kind])
    low = e.t(f"select i1 {low}, i32 {one}, i32 0")
    high = e.t(f"select i1 {high}, i32 {one << 16}, i32 0")
    e.set(i.operands[0], e.t(f"or i32 {low}, {high}"), 32)


def test_property(e: Builder, i: Instruction) -> None:
    """testp: finite, infinite, number, notanumber, normal, subnormal."""
    kind = kind_of(i)
    classes = {
        "notanumber": 0x3, "infinite": 0x204, "finite": 0x1F8, "number": 0x3FC,
        "normal": 0x108, "subnormal": 0x90,
    }  # fmt: skip
    mask = classes.get(i.modifiers[0])
    if mask is None or kind not in ("f32", "f64"):
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    t = FLOAT_TYPE[kind]
    value = e.float_value(i.operands[1], kind)
    name = f"llvm.is.fpclass.{_SUFFIX[t]}"
    e.declared[name] = f"declare i1 @{name}({t}, i32 immarg)"
    e.set(i.operands[0], e.t(f"call i1 @{name}({t} {value}, i32 {mask})"), 1)


_SPECIAL = ("rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh", "div")
_SIMPLE = ("add", "sub", "mul", "neg", "abs", "min", "max", "copysign")

#: Rows of this table win over the integer rows where the type is a floating one.
TABLE: dict[str, Row] = {
    **{name: Row(arithmetic) for name in _SIMPLE},
    **{name: Row(arithmetic, cost="special") for name in _SPECIAL},
    "fma": Row(arithmetic, operations=2),
    "mad": Row(arithmetic, operations=2),
    "setp": Row(set_predicate),
    "set": Row(set_value),
    "testp": Row(test_property),
    "mov": Row(move, cost="move", operations=0),
    "selp": Row(select),
    "slct": Row(select_by_sign),
}
