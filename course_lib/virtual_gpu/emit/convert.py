"""cvt, and conversions between address spaces."""

from __future__ import annotations

from course_lib.ptx.parse import BITS, Instruction
from course_lib.virtual_gpu import abi
from course_lib.virtual_gpu.emit.builder import FLOAT_TYPE, Builder, is_float, is_signed
from course_lib.virtual_gpu.emit.rounding import DIRECTED, round_directed, step
from course_lib.virtual_gpu.emit.row import Row

_SUFFIX = {"float": "f32", "double": "f64"}
_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def convert(e: Builder, i: Instruction) -> None:
    """cvt between any two types."""
    kinds = [word for word in i.modifiers if word in BITS]
    if len(kinds) < 2 or any(word.startswith(("e4m3", "e5m2", "e2m")) for word in i.modifiers):
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    target, source = kinds[-2], kinds[-1]
    if target in ("f16x2", "bf16x2"):
        return _pack_two(e, i, target)
    if is_float(target) and is_float(source):
        return _float_to_float(e, i, target, source)
    if is_float(target):
        return _integer_to_float(e, i, target, source)
    if is_float(source):
        return _float_to_integer(e, i, target, source)
    _integer_to_integer(e, i, target, source)


def _pack_two(e: Builder, i: Instruction, target: str) -> None:
    """cvt.rn.f16x2.f32 d, a, b: a becomes the upper half."""
    half = target[:-2]
    high, low = (
        e.resize(_to_half(e, e.float_value(operand, "f32"), half, i), 16, 32)
        for operand in i.operands[1:3]
    )
    e.set(i.operands[0], e.t(f"or i32 {low}, {e.t(f'shl i32 {high}, 16')}"), 32)


def _to_half(e: Builder, value: str, half: str, i: Instruction) -> str:
    """float -> 16 bits in the rounding mode of the instruction."""
    if "relu" in i.modifiers:
        value = e.intrinsic("llvm.maxnum.f32", "float", [("float", value), ("float", "0.0")])
    bits = e.narrow(value, half)
    mode = next((word for word in i.modifiers if word in DIRECTED), None)
    if mode is None:
        return bits
    return step(e, bits, 16, e.widen(bits, half), value, "float", mode)


def _float_to_float(e: Builder, i: Instruction, target: str, source: str) -> None:
    value, t = e.float_value(i.operands[1], source), FLOAT_TYPE[source]
    for word, name in _TO_INTEGER.items():
        if word in i.modifiers:
            value = e.intrinsic(f"llvm.{name}.{_SUFFIX[t]}", t, [(t, value)])
    mode = next((word for word in i.modifiers if word in DIRECTED), None)
    if t == "double" and FLOAT_TYPE[target] == "float":
        if target in ("f16", "bf16"):
            value = e.helper("double_to_float_odd", "float", [("double", value)])
        elif mode:
            value = round_directed(e, value, mode)
        else:
            value = e.t(f"fptrunc double {value} to float")
    elif t == "float" and target == "f64":
        value = e.t(f"fpext float {value} to double")
    t = FLOAT_TYPE[target]
    if "sat" in i.modifiers:
        value = e.intrinsic(f"llvm.maxnum.{_SUFFIX[t]}", t, [(t, value), (t, "0.0")])
        value = e.intrinsic(f"llvm.minnum.{_SUFFIX[t]}", t, [(t, value), (t, "1.0")])
    if target in ("f16", "bf16"):
        e.set(i.operands[0], _to_half(e, value, target, i), 16)
    elif target == "tf32":
        bits = e.t(f"bitcast float {value} to i32")
        if "rna" in i.modifiers:
            bits = e.t(f"add i32 {bits}, 4096")
        elif "rz" not in i.modifiers:
            odd = e.t(f"and i32 {e.t(f'lshr i32 {bits}, 13')}, 1")
            bits = e.t(f"add i32 {e.t(f'add i32 {bits}, 4095')}, {odd}")
        e.set(i.operands[0], e.t(f"and i32 {bits}, -8192"), 32)
    else:
        e.set_float(i.operands[0], value, target)


def _integer_to_float(e: Builder, i: Instruction, target: str, source: str) -> None:
    bits, sign = BITS[source], "s" if is_signed(source) else "u"
    value = e.value(i.operands[1], bits, is_signed(source))
    mode = next((word for word in i.modifiers if word in DIRECTED), None)
    if target == "f64":
        e.set_float(i.operands[0], e.t(f"{sign}itofp i{bits} {value} to double"), "f64")
    elif target == "f32" and mode is None:
        e.set_float(i.operands[0], e.t(f"{sign}itofp i{bits} {value} to float"), "f32")
    else:
        wide = e.t(f"{sign}itofp i{bits} {value} to double")
        if target == "f32":
            e.set_float(i.operands[0], round_directed(e, wide, str(mode)), "f32")
        else:
            single = e.helper("double_to_float_odd", "float", [("double", wide)])
            e.set(i.operands[0], _to_half(e, single, target, i), 16)


def _float_to_integer(e: Builder, i: Instruction, target: str, source: str) -> None:
    """Saturates; NaN becomes 0 as on the GPU (for 32 bits and narrower)."""
    value, t = e.float_value(i.operands[1], source), FLOAT_TYPE[source]
    for word, name in _TO_INTEGER.items():
        if word in i.modifiers and word != "rzi":
            value = e.intrinsic(f"llvm.{name}.{_SUFFIX[t]}", t, [(t, value)])
    bits, signed = BITS[target], is_signed(target)
    name = f"llvm.fpto{'s' if signed else 'u'}i.sat.i{bits}.{_SUFFIX[t]}"
    result = e.intrinsic(name, f"i{bits}", [(t, value)])
    if bits == 64:  # NaN gives 0x8000000000000000
        nan = e.t(f"fcmp uno {t} {value}, 0.0")
        result = e.t(f"select i1 {nan}, i64 -9223372036854775808, i64 {result}")
    e.set(i.operands[0], result, bits, signed)


def _integer_to_integer(e: Builder, i: Instruction, target: str, source: str) -> None:
    have, want = BITS[source], BITS[target]
    value = e.value(i.operands[1], have, is_signed(source))
    if "sat" in i.modifiers:
        value = _saturate(e, value, have, want, is_signed(source), is_signed(target))
    result = e.resize(value, have, want, is_signed(source))
    e.set(i.operands[0], result, want, is_signed(target))


def _saturate(
    e: Builder, value: str, have: int, want: int, from_signed: bool, to_signed: bool
) -> str:
    """Clamps to the target's range, in 128 bits, where both ranges fit."""
    wide = e.resize(value, have, 128, from_signed)
    low = -(1 << (want - 1)) if to_signed else 0
    high = (1 << (want - 1)) - 1 if to_signed else (1 << want) - 1
    wide = e.intrinsic("llvm.smax.i128", "i128", [("i128", wide), ("i128", str(low))])
    wide = e.intrinsic("llvm.smin.i128", "i128", [("i128", wide), ("i128", str(high))])
    return e.t(f"trunc i128 {wide} to i{have}")


_WINDOWS = {
    "shared": abi.WINDOW_SHARED,
    "shared::cta": abi.WINDOW_SHARED,
    "shared::cluster": abi.WINDOW_SHARED,
    "local": abi.WINDOW_LOCAL,
}


def convert_address(e: Builder, i: Instruction) -> None:
    """cvta: shared and local offsets get their window; the other spaces are generic already."""
    space = next(
        (word for word in i.modifiers if word in (*_WINDOWS, "global", "const", "param")), ""
    )
    bits = BITS[i.modifiers[-1]]
    value = e.value(i.operands[1], 64)
    window = _WINDOWS.get(space)
    if window is not None:
        if "to" in i.modifiers:
            value = e.t(f"and i64 {value}, {abi.WINDOW_MASK}")
        else:
            value = e.t(f"or i64 {value}, {window << abi.WINDOW_SHIFT}")
    e.set(i.operands[0], e.resize(value, 64, bits), bits)


def is_space(e: Builder, i: Instruction) -> None:
    """isspacep."""
    window = e.t(f"lshr i64 {e.value(i.operands[1], 64)}, {abi.WINDOW_SHIFT}")
    space = i.modifiers[0]
    if space in _WINDOWS:
        result = e.t(f"icmp eq i64 {window}, {_WINDOWS[space]}")
    elif space == "param":
        result = e.t(f"icmp eq i64 {window}, {abi.WINDOW_PARAMETERS}")
    elif space == "const":
        result = e.t("icmp eq i64 0, 1")
    else:
        result = e.t(f"icmp uge i64 {window}, {abi.WINDOW_GLOBALS}")
    e.set(i.operands[0], result, 1)


def map_to_rank(e: Builder, i: Instruction) -> None:
    """mapa: without clusters every shared address is already this block's."""
    bits = BITS[i.modifiers[-1]]
    e.set(i.operands[0], e.value(i.operands[1], bits), bits)


TABLE: dict[str, Row] = {
    "cvt": Row(convert, cost="convert"),
    "cvta": Row(convert_address, cost="integer"),
    "isspacep": Row(is_space, cost="integer"),
    "mapa": Row(map_to_rank, cost="move"),
}
