"""Integer arithmetic, logic and bit fields."""

from __future__ import annotations

from course_lib.ptx.parse import BITS, Immediate, Instruction, Operand, Pair, Vector
from course_lib.virtual_gpu.emit.builder import FLOATS, Builder, is_float, is_signed
from course_lib.virtual_gpu.emit.row import Row
from course_lib.virtual_gpu.flow import CARRY, Unsupported


def kind_of(i: Instruction) -> str:
    """The type that an instruction works in: its last type word."""
    for word in reversed(i.opcode.split(".")):
        if word in BITS:
            return word
    raise Unsupported(f"{i.opcode} without a type", i.site)


def _operands(e: Builder, i: Instruction, bits: int, first: int = 1) -> list[str]:
    return [e.value(operand, bits) for operand in i.operands[first:]]


def _extend(e: Builder, value: str, bits: int, wide: int, signed: bool) -> str:
    return e.resize(value, bits, wide, signed)


# --- arithmetic ---------------------------------------------------------------------------------


def add_subtract(e: Builder, i: Instruction) -> None:
    """add, sub, addc, subc, with carry in and out."""
    words = i.opcode.split(".")
    if words[0] in ("addc", "subc") or "cc" in words:
        return _with_carry(e, i, words)
    kind = kind_of(i)
    if kind.endswith("x2"):
        return _packed(e, i, words[0])
    bits = BITS[kind]
    a, b = _operands(e, i, bits)
    result = e.t(f"{words[0]} i{bits} {a}, {b}")
    if "sat" in words:
        result = e.intrinsic(
            f"llvm.s{words[0]}.sat.i{bits}", f"i{bits}", [(f"i{bits}", a), (f"i{bits}", b)]
        )
    e.set(i.operands[0], result, bits)


def _packed(e: Builder, i: Instruction, operation: str) -> None:
    """Two 16-bit integers in 32 bits: add, min, max."""
    a, b = (e.t(f"bitcast i32 {v} to <2 x i16>") for v in _operands(e, i, 32))
    if operation in ("min", "max"):
        sign = "s" if is_signed(kind_of(i)) else "u"
        kind = "<2 x i16>"
        result = e.intrinsic(f"llvm.{sign}{operation}.v2i16", kind, [(kind, a), (kind, b)])
    else:
        result = e.t(f"{operation} <2 x i16> {a}, {b}")
    e.set(i.operands[0], e.t(f"bitcast <2 x i16> {result} to i32"), 32)


def _with_carry(e: Builder, i: Instruction, words: list[str]) -> None:
    bits = BITS[kind_of(i)]
    a, b = _operands(e, i, bits)
    _carry_chain(e, i, words, a, b)


def _carry_chain(e: Builder, i: Instruction, words: list[str], a: str, b: str) -> None:
    """Adds or subtracts in a wider type, so that its upper bits hold the carry or borrow."""
    bits = BITS[kind_of(i)]
    wide = bits + 8
    operation = "sub" if words[0].startswith("sub") else "add"
    a, b = e.resize(a, bits, wide), e.resize(b, bits, wide)
    result = e.t(f"{operation} i{wide} {a}, {b}")
    if words[0] in ("addc", "subc", "madc"):
        carry = e.resize(e.register(CARRY, 1), 1, wide)
        result = e.t(f"{operation} i{wide} {result}, {carry}")
    if "cc" in words:
        out = e.t(f"trunc i{wide} {e.t(f'lshr i{wide} {result}, {bits}')} to i1")
        e.emit(f"store i1 {out}, ptr {e.slot(CARRY)}")
    e.set(i.operands[0], e.t(f"trunc i{wide} {result} to i{bits}"), bits)


def multiply(e: Builder, i: Instruction) -> None:
    """mul and mad: .lo, .hi, .wide, with carry for mad.cc and madc."""
    words, kind = i.opcode.split("."), kind_of(i)
    bits, signed = BITS[kind], is_signed(kind)
    narrow = 24 if words[0].endswith("24") else 0
    a, b = (e.value(operand, bits, signed) for operand in i.operands[1:3])
    if narrow:
        a, b = (_sign_or_zero_24(e, value, signed) for value in (a, b))
    wide = 2 * bits
    if "wide" in words:
        product = e.t(
            f"mul i{wide} {_extend(e, a, bits, wide, signed)}, {_extend(e, b, bits, wide, signed)}"
        )
        if words[0].startswith("mad"):
            product = e.t(f"add i{wide} {product}, {e.value(i.operands[3], wide)}")
        e.set(i.operands[0], product, wide)
        return
    if "hi" in words:
        product = e.t(
            f"mul i{wide} {_extend(e, a, bits, wide, signed)}, {_extend(e, b, bits, wide, signed)}"
        )
        shift = 16 if narrow else bits
        product = e.t(f"trunc i{wide} {e.t(f'lshr i{wide} {product}, {shift}')} to i{bits}")
    else:
        product = e.t(f"mul i{bits} {a}, {b}")
    if words[0].startswith("mad"):
        c = e.value(i.operands[3], bits)
        if words[0] == "madc" or "cc" in words:
            return _carry_chain(e, i, words, product, c)
        if "sat" in words:
            t = f"i{bits}"
            product = e.intrinsic(f"llvm.sadd.sat.{t}", t, [(t, product), (t, c)])
        else:
            product = e.t(f"add i{bits} {product}, {c}")
    e.set(i.operands[0], product, bits)


def _sign_or_zero_24(e: Builder, value: str, signed: bool) -> str:
    shifted = e.t(f"shl i32 {value}, 8")
    return e.t(f"{'ashr' if signed else 'lshr'} i32 {shifted}, 8")


def divide(e: Builder, i: Instruction) -> None:
    """div and rem.  By zero the GPU gives all ones (rem: the dividend) and we note it.

    INT_MIN / -1 would raise a signal on x86; the GPU gives INT_MIN.
    """
    operation, kind = i.family, kind_of(i)
    bits, signed = BITS[kind], is_signed(kind)
    a, b = _operands(e, i, bits)
    zero = e.t(f"icmp eq i{bits} {b}, 0")
    cold, on = e.new_label("dz"), e.new_label("dn")
    e.flush()
    e.emit(f"br i1 {e.t(f'xor i1 {zero}, true')}, label %{on}, label %{cold}, !prof !0")
    e.label(cold)
    e.runtime("rt_divide", [str(e.site)], False)
    e.emit(f"br label %{on}")
    e.label(on)
    unsafe = zero
    if signed:
        least = e.t(f"icmp eq i{bits} {a}, {1 << (bits - 1)}")
        minus = e.t(f"icmp eq i{bits} {b}, -1")
        unsafe = e.t(f"or i1 {zero}, {e.t(f'and i1 {least}, {minus}')}")
    divisor = e.t(f"select i1 {unsafe}, i{bits} 1, i{bits} {b}")
    result = e.t(f"{'s' if signed else 'u'}{operation} i{bits} {a}, {divisor}")
    by_zero = "-1" if operation == "div" else a
    e.set(i.operands[0], e.t(f"select i1 {zero}, i{bits} {by_zero}, i{bits} {result}"), bits)


def negate(e: Builder, i: Instruction) -> None:
    bits = BITS[kind_of(i)]
    e.set(i.operands[0], e.t(f"sub i{bits} 0, {e.value(i.operands[1], bits)}"), bits)


def absolute(e: Builder, i: Instruction) -> None:
    bits = BITS[kind_of(i)]
    value = e.value(i.operands[1], bits)
    t = f"i{bits}"
    e.set(i.operands[0], e.intrinsic(f"llvm.abs.{t}", t, [(t, value), ("i1", "false")]), bits)


def minimum_maximum(e: Builder, i: Instruction) -> None:
    kind = kind_of(i)
    if kind.endswith("x2"):
        return _packed(e, i, i.family)
    bits, sign = BITS[kind], "s" if is_signed(kind) else "u"
    t = f"i{bits}"
    result = e.intrinsic(f"llvm.{sign}{i.family}.{t}", t, [(t, v) for v in _operands(e, i, bits)])
    if "relu" in i.modifiers:
        result = e.intrinsic(f"llvm.smax.{t}", t, [(t, result), (t, "0")])
    e.set(i.operands[0], result, bits)


def sum_of_absolute_differences(e: Builder, i: Instruction) -> None:
    kind = kind_of(i)
    bits, sign = BITS[kind], "s" if is_signed(kind) else "u"
    a, b, c = _operands(e, i, bits)
    t = f"i{bits}"
    high = e.intrinsic(f"llvm.{sign}max.{t}", t, [(t, a), (t, b)])
    low = e.intrinsic(f"llvm.{sign}min.{t}", t, [(t, a), (t, b)])
    e.set(i.operands[0], e.t(f"add {t} {e.t(f'sub {t} {high}, {low}')}, {c}"), bits)


# --- logic and shifts ---------------------------------------------------------------------------


def logic(e: Builder, i: Instruction) -> None:
    bits = BITS[kind_of(i)]
    a, b = _operands(e, i, bits)
    e.set(i.operands[0], e.t(f"{i.family} i{bits} {a}, {b}"), bits)


def invert(e: Builder, i: Instruction) -> None:
    bits = BITS[kind_of(i)]
    e.set(i.operands[0], e.t(f"xor i{bits} {e.value(i.operands[1], bits)}, -1"), bits)


def logical_not(e: Builder, i: Instruction) -> None:
    """cnot: 1 where the value is zero."""
    bits = BITS[kind_of(i)]
    zero = e.t(f"icmp eq i{bits} {e.value(i.operands[1], bits)}, 0")
    e.set(i.operands[0], e.resize(zero, 1, bits), bits)


def shift(e: Builder, i: Instruction) -> None:
    """shl and shr: counts beyond the width clamp to it."""
    kind = kind_of(i)
    bits = BITS[kind]
    value, count = e.value(i.operands[1], bits), e.value(i.operands[2], 32)
    operation = "shl" if i.family == "shl" else ("ashr" if is_signed(kind) else "lshr")
    if count.isdigit():
        n = int(count)
        if operation != "ashr" and n >= bits:
            result = "0"
        else:
            result = e.t(f"{operation} i{bits} {value}, {min(n, bits - 1)}")
        e.set(i.operands[0], result, bits)
        return
    beyond = e.t(f"icmp uge i32 {count}, {bits}")
    clamped = e.t(f"select i1 {beyond}, i32 {bits - 1}, i32 {count}")
    result = e.t(f"{operation} i{bits} {value}, {e.resize(clamped, 32, bits)}")
    if operation != "ashr":
        result = e.t(f"select i1 {beyond}, i{bits} 0, i{bits} {result}")
    e.set(i.operands[0], result, bits)


def funnel_shift(e: Builder, i: Instruction) -> None:
    """shf on the 64 bits {high, low}: .wrap takes the count modulo 32, .clamp up to 32."""
    low, high, count = _operands(e, i, 32)
    if "clamp" in i.modifiers:
        count = e.intrinsic("llvm.umin.i32", "i32", [("i32", count), ("i32", "32")])
    else:
        left = "l" in i.modifiers
        name = f"llvm.fsh{'l' if left else 'r'}.i32"
        arguments = [("i32", high), ("i32", low), ("i32", count)]
        e.set(i.operands[0], e.intrinsic(name, "i32", arguments), 32)
        return
    both = _join(e, low, high)
    wide = e.resize(count, 32, 64)
    if "r" in i.modifiers:
        result = e.t(f"lshr i64 {both}, {wide}")
    else:
        result = e.t(f"lshr i64 {e.t(f'shl i64 {both}, {wide}')}, 32")
    e.set(i.operands[0], e.t(f"trunc i64 {result} to i32"), 32)


def _join(e: Builder, low: str, high: str) -> str:
    upper = e.t(f"shl i64 {e.resize(high, 32, 64)}, 32")
    return e.t(f"or i64 {e.resize(low, 32, 64)}, {upper}")


def three_input_logic(e: Builder, i: Instruction) -> None:
    """lop3: bit k of the table is the result for inputs a, b, c = the bits of k."""
    a, b, c = (e.value(operand, 32) for operand in i.operands[1:4])
    table = i.operands[4]
    if not isinstance(table, Immediate):
        raise e.unsupported("lop3 with a table that is not a constant")
    result = _LOP3.get(table.value & 255)
    value = result(e, a, b, c) if result else _sum_of_products(e, a, b, c, table.value & 255)
    e.set(i.operands[0], value, 32)


_LOP3 = {
    0x80: lambda e, a, b, c: e.t(f"and i32 {e.t(f'and i32 {a}, {b}')}, {c}"),
    0xFE: lambda e, a, b, c: e.t(f"or i32 {e.t(f'or i32 {a}, {b}')}, {c}"),
    0x96: lambda e, a, b, c: e.t(f"xor i32 {e.t(f'xor i32 {a}, {b}')}, {c}"),
    0xF8: lambda e, a, b, c: e.t(f"or i32 {a}, {e.t(f'and i32 {b}, {c}')}"),
    0xEA: lambda e, a, b, c: e.t(f"or i32 {e.t(f'and i32 {a}, {b}')}, {c}"),
    0x78: lambda e, a, b, c: e.t(f"xor i32 {a}, {e.t(f'and i32 {b}, {c}')}"),
    0x6A: lambda e, a, b, c: e.t(f"xor i32 {e.t(f'and i32 {a}, {b}')}, {c}"),
    0xC0: lambda e, a, b, c: e.t(f"and i32 {a}, {b}"),
    0xFC: lambda e, a, b, c: e.t(f"or i32 {a}, {b}"),
    0x3C: lambda e, a, b, c: e.t(f"xor i32 {a}, {b}"),
}


def _sum_of_products(e: Builder, a: str, b: str, c: str, table: int) -> str:
    result = "0"
    inverse = {value: e.t(f"xor i32 {value}, -1") for value in (a, b, c)}
    for k in range(8):
        if table >> k & 1:
            terms = [v if k >> bit & 1 else inverse[v] for v, bit in ((a, 2), (b, 1), (c, 0))]
            product = e.t(f"and i32 {e.t(f'and i32 {terms[0]}, {terms[1]}')}, {terms[2]}")
            result = e.t(f"or i32 {result}, {product}")
    return result


# --- bit fields and bytes -----------------------------------------------------------------------


def count_bits(e: Builder, i: Instruction) -> None:
    """popc and clz: the result is 32 bits wide."""
    bits = BITS[kind_of(i)]
    value, t = e.value(i.operands[1], bits), f"i{bits}"
    if i.family == "popc":
        result = e.intrinsic(f"llvm.ctpop.{t}", t, [(t, value)])
    else:
        result = e.intrinsic(f"llvm.ctlz.{t}", t, [(t, value), ("i1", "false")])
    e.set(i.operands[0], e.resize(result, bits, 32), 32)


def reverse_bits(e: Builder, i: Instruction) -> None:
    bits = BITS[kind_of(i)]
    t = f"i{bits}"
    value = e.value(i.operands[1], bits)
    e.set(i.operands[0], e.intrinsic(f"llvm.bitreverse.{t}", t, [(t, value)]), bits)


def find_leading(e: Builder, i: Instruction) -> None:
    """bfind: position of the highest bit (signed: that differs from the sign), -1 for none."""
    kind = kind_of(i)
    bits = BITS[kind]
    t, value = f"i{bits}", e.value(i.operands[1], bits)
    if is_signed(kind):
        sign = e.t(f"ashr {t} {value}, {bits - 1}")
        value = e.t(f"xor {t} {value}, {sign}")
    zeros = e.intrinsic(f"llvm.ctlz.{t}", t, [(t, value), ("i1", "false")])
    zeros = e.resize(zeros, bits, 32)
    position = zeros if "shiftamt" in i.modifiers else e.t(f"sub i32 {bits - 1}, {zeros}")
    none = e.t(f"icmp eq {t} {value}, 0")
    e.set(i.operands[0], e.t(f"select i1 {none}, i32 -1, i32 {position}"), 32)


def extract_field(e: Builder, i: Instruction) -> None:
    """bfe: ``length`` bits from ``position``; the signed form extends the field's top bit.

    Position and length are their low 8 bits.  Beyond the value are zeros, or its sign.
    """
    kind = kind_of(i)
    bits, signed = BITS[kind], is_signed(kind)
    t = f"i{bits}"
    value = e.value(i.operands[1], bits)
    position, length = (e.t(f"and i32 {e.value(o, 32)}, 255") for o in i.operands[2:4])
    last = str(bits - 1)
    shift_by = e.intrinsic("llvm.umin.i32", "i32", [("i32", position), ("i32", last)])
    shift_by = e.resize(shift_by, 32, bits)
    beyond = e.t(f"icmp uge i32 {position}, {bits}")
    shifted = e.t(f"{'ashr' if signed else 'lshr'} {t} {value}, {shift_by}")
    if not signed:
        shifted = e.t(f"select i1 {beyond}, {t} 0, {t} {shifted}")
    # Keep the low bits by shifting them up and down again; length 0 gives 0.
    wanted = e.intrinsic("llvm.umin.i32", "i32", [("i32", length), ("i32", str(bits))])
    up = e.t(f"sub i32 {bits}, {wanted}")
    up = e.intrinsic("llvm.umin.i32", "i32", [("i32", up), ("i32", last)])
    up = e.resize(up, 32, bits)
    kept = e.t(f"shl {t} {shifted}, {up}")
    kept = e.t(f"{'ashr' if signed else 'lshr'} {t} {kept}, {up}")
    none = e.t(f"icmp eq i32 {length}, 0")
    e.set(i.operands[0], e.t(f"select i1 {none}, {t} 0, {t} {kept}"), bits)


def insert_field(e: Builder, i: Instruction) -> None:
    """bfi: replaces ``length`` bits of b from ``position`` by those of a."""
    bits = BITS[kind_of(i)]
    t = f"i{bits}"
    field, base = (e.value(operand, bits) for operand in i.operands[1:3])
    position, length = (e.t(f"and i32 {e.value(o, 32)}, 255") for o in i.operands[3:5])
    ones = _low_ones(e, length, bits)
    mask, field = _shift_left(e, ones, position, bits), _shift_left(e, field, position, bits)
    inserted = e.t(f"and {t} {field}, {mask}")
    rest = e.t(f"and {t} {base}, {e.t(f'xor {t} {mask}, -1')}")
    e.set(i.operands[0], e.t(f"or {t} {inserted}, {rest}"), bits)


def _shift_left(e: Builder, value: str, count: str, bits: int) -> str:
    beyond = e.t(f"icmp uge i32 {count}, {bits}")
    safe = e.resize(e.t(f"select i1 {beyond}, i32 0, i32 {count}"), 32, bits)
    return e.t(f"select i1 {beyond}, i{bits} 0, i{bits} {e.t(f'shl i{bits} {value}, {safe}')}")


def _low_ones(e: Builder, length: str, bits: int) -> str:
    power = _shift_left(e, "1", length, bits)
    return e.t(f"sub i{bits} {power}, 1")


def bit_mask(e: Builder, i: Instruction) -> None:
    """bmsk: ``length`` ones from ``position``."""
    position, length = _operands(e, i, 32)
    if "wrap" in i.modifiers:
        position, length = (e.t(f"and i32 {v}, 31") for v in (position, length))
    ones = _low_ones(e, length, 32)
    e.set(i.operands[0], _shift_left(e, ones, position, 32), 32)


def extend_sign(e: Builder, i: Instruction) -> None:
    """szext: the low ``length`` bits, sign or zero extended."""
    value, length = _operands(e, i, 32)
    if "wrap" in i.modifiers:
        length = e.t(f"and i32 {length}, 31")
    wanted = e.intrinsic("llvm.umin.i32", "i32", [("i32", length), ("i32", "32")])
    up = e.t(f"sub i32 32, {wanted}")
    up = e.intrinsic("llvm.umin.i32", "i32", [("i32", up), ("i32", "31")])
    kept = e.t(
        f"{'ashr' if is_signed(kind_of(i)) else 'lshr'} i32 {e.t(f'shl i32 {value}, {up}')}, {up}"
    )
    none = e.t(f"icmp eq i32 {length}, 0")
    e.set(i.operands[0], e.t(f"select i1 {none}, i32 0, i32 {kept}"), 32)


def permute_bytes(e: Builder, i: Instruction) -> None:
    """prmt: each result byte is one of the eight of {b, a}, or its sign spread over the byte."""
    if any(mode in i.modifiers for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")):
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    a, b, selector = _operands(e, i, 32)
    both, result = _join(e, a, b), "0"
    for k in range(4):
        choice = e.t(f"lshr i32 {selector}, {4 * k}")
        amount = e.t(f"shl i32 {e.t(f'and i32 {choice}, 7')}, 3")
        byte = e.t(f"trunc i64 {e.t(f'lshr i64 {both}, {e.resize(amount, 32, 64)}')} to i8")
        spread = e.t(f"icmp ne i32 {e.t(f'and i32 {choice}, 8')}, 0")
        byte = e.t(f"select i1 {spread}, i8 {e.t(f'ashr i8 {byte}, 7')}, i8 {byte}")
        result = e.t(f"or i32 {result}, {e.t(f'shl i32 {e.resize(byte, 8, 32)}, {8 * k}')}")
    e.set(i.operands[0], result, 32)


def dot_product(e: Builder, i: Instruction) -> None:
    """dp4a and dp2a: sums of byte products; either input may be signed."""
    first, second = (word for word in i.modifiers if word in ("u32", "s32"))
    a, b, total = _operands(e, i, 32)
    two = i.family == "dp2a"
    base = 2 if two and "hi" in i.modifiers else 0
    for k in range(2 if two else 4):
        x = _part(e, a, 16 if two else 8, k, is_signed(first))
        y = _part(e, b, 8, base + k, is_signed(second))
        total = e.t(f"add i32 {total}, {e.t(f'mul i32 {x}, {y}')}")
    e.set(i.operands[0], total, 32)


def _part(e: Builder, value: str, width: int, index: int, signed: bool) -> str:
    part = e.t(f"trunc i32 {e.t(f'lshr i32 {value}, {index * width}')} to i{width}")
    return e.resize(part, width, 32, signed)


# --- moves, comparisons, selection --------------------------------------------------------------


def move(e: Builder, i: Instruction) -> None:
    """mov: values, and packing or unpacking of vectors."""
    target, source = i.operands[0], i.operands[1]
    bits = BITS[kind_of(i)]
    if isinstance(source, Vector) and isinstance(target, Vector):
        values = [e.value(item, bits // len(source.elements)) for item in source.elements]
        for item, value in zip(target.elements, values, strict=False):
            e.set(item, value, bits // len(source.elements))
    elif isinstance(source, Vector):
        e.set(target, _packed_value(e, source, bits), bits)
    elif isinstance(target, Vector):
        _unpack(e, target, e.value(source, bits), bits)
    else:
        e.set(target, e.value(_float_literal(e, source, bits), bits), bits)


def _float_literal(e: Builder, source: Operand, bits: int) -> Operand:
    if isinstance(source, Immediate) and source.float_bits and bits in (32, 64):
        return e.float_constant(source, bits)
    return source


def _packed_value(e: Builder, source: Vector, bits: int) -> str:
    width = bits // len(source.elements)
    result = "0"
    for k, item in enumerate(source.elements):
        part = e.resize(e.value(item, width), width, bits)
        result = e.t(f"or i{bits} {result}, {e.t(f'shl i{bits} {part}, {k * width}')}")
    return result


def _unpack(e: Builder, target: Vector, value: str, bits: int) -> None:
    width = bits // len(target.elements)
    parts = [
        e.t(f"trunc i{bits} {e.t(f'lshr i{bits} {value}, {k * width}')} to i{width}")
        for k in range(len(target.elements))
    ]
    for item, part in zip(target.elements, parts, strict=False):
        e.set(item, part, width)


_COMPARE = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compare(e: Builder, i: Instruction) -> str:
    """The i1 of an integer comparison."""
    kind, word = kind_of(i), i.modifiers[0]
    bits = BITS[kind]
    a, b = (e.value(operand, bits) for operand in i.operands[1:3])
    condition = _COMPARE.get(word, word)
    if condition in ("eq", "ne"):
        return e.t(f"icmp {condition} i{bits} {a}, {b}")
    if condition not in ("lt", "le", "gt", "ge"):
        raise e.unsupported(f"the comparison {word} of {kind}")
    unsigned = word in _COMPARE or not is_signed(kind)
    return e.t(f"icmp {'u' if unsigned else 's'}{condition} i{bits} {a}, {b}")


def set_predicate(e: Builder, i: Instruction) -> None:
    finish_comparison(e, i, compare(e, i))


def finish_comparison(e: Builder, i: Instruction, result: str) -> None:
    """setp: combines with a predicate, and writes the result and perhaps its opposite."""
    opposite = e.t(f"xor i1 {result}, true")
    operation = next((w for w in i.modifiers if w in ("and", "or", "xor")), None)
    if operation:
        other = e.value(i.operands[3], 1)
        result, opposite = (e.t(f"{operation} i1 {v}, {other}") for v in (result, opposite))
    target = i.operands[0]
    if isinstance(target, Pair):
        e.set(target.first, result, 1)
        e.set(target.second, opposite, 1)
    else:
        e.set(target, result, 1)


def set_value(e: Builder, i: Instruction) -> None:
    write_set(e, i, compare(e, i))


def write_set(e: Builder, i: Instruction, result: str) -> None:
    """set: all ones, or 1.0, where the comparison holds."""
    operation = next((w for w in i.modifiers if w in ("and", "or", "xor")), None)
    if operation:
        result = e.t(f"{operation} i1 {result}, {e.value(i.operands[3], 1)}")
    target = next(w for w in i.modifiers if w in BITS)
    if target == "f32":
        e.set(i.operands[0], e.t(f"select i1 {result}, i32 1065353216, i32 0"), 32)
    elif target in FLOATS:
        one = {"f16": "15360", "bf16": "16256"}.get(target)
        if one is None:
            raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
        e.set(i.operands[0], e.t(f"select i1 {result}, i16 {one}, i16 0"), 16)
    else:
        e.set(i.operands[0], e.t(f"sext i1 {result} to i{BITS[target]}"), BITS[target])


def select(e: Builder, i: Instruction) -> None:
    bits = BITS[kind_of(i)]
    a, b = (e.value(_float_literal(e, operand, bits), bits) for operand in i.operands[1:3])
    condition = e.value(i.operands[3], 1)
    e.set(i.operands[0], e.t(f"select i1 {condition}, i{bits} {a}, i{bits} {b}"), bits)


def select_by_sign(e: Builder, i: Instruction) -> None:
    """slct: a where c >= 0, else b."""
    target, tested = [word for word in i.modifiers if word in BITS]
    bits = BITS[target]
    a, b = (e.value(operand, bits) for operand in i.operands[1:3])
    if is_float(tested):
        condition = e.t(f"fcmp oge float {e.float_value(i.operands[3], tested)}, 0.0")
    else:
        condition = e.t(f"icmp sge i32 {e.value(i.operands[3], 32)}, 0")
    e.set(i.operands[0], e.t(f"select i1 {condition}, i{bits} {a}, i{bits} {b}"), bits)


TABLE: dict[str, Row] = {
    "add": Row(add_subtract),
    "sub": Row(add_subtract),
    "addc": Row(add_subtract),
    "subc": Row(add_subtract),
    "mul": Row(multiply),
    "mad": Row(multiply, operations=2),
    "madc": Row(multiply, operations=2),
    "mul24": Row(multiply),
    "mad24": Row(multiply, operations=2),
    "div": Row(divide, cost="special"),
    "rem": Row(divide, cost="special"),
    "neg": Row(negate),
    "abs": Row(absolute),
    "min": Row(minimum_maximum),
    "max": Row(minimum_maximum),
    "sad": Row(sum_of_absolute_differences),
    "and": Row(logic),
    "or": Row(logic),
    "xor": Row(logic),
    "not": Row(invert),
    "cnot": Row(logical_not),
    "shl": Row(shift),
    "shr": Row(shift),
    "shf": Row(funnel_shift),
    "lop3": Row(three_input_logic),
    "popc": Row(count_bits),
    "clz": Row(count_bits),
    "brev": Row(reverse_bits),
    "bfind": Row(find_leading),
    "bfe": Row(extract_field),
    "bfi": Row(insert_field),
    "bmsk": Row(bit_mask),
    "szext": Row(extend_sign),
    "prmt": Row(permute_bytes),
    "dp4a": Row(dot_product, operations=8),
    "dp2a": Row(dot_product, operations=4),
    "mov": Row(move, cost="move", operations=0),
    "setp": Row(set_predicate),
    "set": Row(set_value),
    "selp": Row(select),
    "slct": Row(select_by_sign),
}
