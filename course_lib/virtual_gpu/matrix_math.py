"""Vector arithmetic for the tensor cores, written as LLVM IR where numba has no words for it.

Halves are widened to float32, in which the product of two of them is exact; sums are float32.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from course_lib.virtual_gpu.raw import I64, _loader, _storer

DEPTH = 16  # columns of A that one instruction multiplies
ROWS = 4  # rows of C that one call of a multiplier keeps in registers

load16, store16 = _loader(16), _storer(16)
load32, store32 = _loader(32), _storer(32)

_FLOAT = ir.FloatType()
_I16 = ir.IntType(16)
_I32 = ir.IntType(32)


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, ir.PointerType(kind))


def _offset(builder: Any, address: Any, count: int, stride: Any) -> Any:
    """address + count * stride."""
    return builder.add(address, builder.mul(stride, ir.Constant(ir.IntType(64), count)))


def _splat(builder: Any, value: Any, width: int) -> Any:
    vector = ir.VectorType(_FLOAT, width)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(_I32, 0))
    mask = ir.Constant(ir.VectorType(_I32, width), [0] * width)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def _multiplier(width: int) -> Any:
    """`multiply(c, a, b, pitch)`: ROWS × `width` of C += A · B, all float32 by host address.

    A is ROWS × DEPTH with rows of DEPTH floats, B DEPTH × `width` and C with rows of `pitch` bytes.
    """

    def multiply(typing_context: Any, c: Any, a: Any, b: Any, pitch: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            c, a, b, pitch = arguments
            vector = ir.VectorType(_FLOAT, width)
            places = [_pointer(builder, _offset(builder, c, r, pitch), vector) for r in range(ROWS)]
            sums = [builder.load(place, align=4) for place in places]
            four = ir.Constant(ir.IntType(64), 4)
            for k in range(DEPTH):
                row = builder.load(
                    _pointer(builder, _offset(builder, b, k, pitch), vector), align=4
                )
                for r in range(ROWS):
                    at = _offset(builder, a, r * DEPTH + k, four)
                    left = _splat(builder, builder.load(_pointer(builder, at, _FLOAT)), width)
                    # The product is exact, so fusing it with the sum changes nothing.
                    product = builder.fmul(left, row, flags=("contract",))
                    sums[r] = builder.fadd(sums[r], product, flags=("contract",))
            for total, place in zip(sums, places, strict=True):
                builder.store(total, place, align=4)
            return context.get_dummy_value()

        return types.void(I64, I64, I64, I64), generate

    return intrinsic(multiply)


multiply_16 = _multiplier(16)
multiply_8 = _multiplier(8)


def _widened(builder: Any, source: Any, brain: bool) -> Any:
    """Eight halves at an address as eight floats."""
    raw = builder.load(_pointer(builder, source, ir.VectorType(_I16, 8)), align=2)
    if brain:
        wide = builder.zext(raw, ir.VectorType(_I32, 8))
        shift = ir.Constant(ir.VectorType(_I32, 8), [16] * 8)
        return builder.bitcast(builder.shl(wide, shift), ir.VectorType(_FLOAT, 8))
    return builder.fpext(
        builder.bitcast(raw, ir.VectorType(ir.HalfType(), 8)), ir.VectorType(_FLOAT, 8)
    )


def _unpacker(brain: bool) -> Any:
    """`unpack(source, target, stride)`: eight halves to floats that lie `stride` bytes apart."""

    def unpack(typing_context: Any, source: Any, target: Any, stride: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, target, stride = arguments
            values = _widened(builder, source, brain)
            for k in range(8):
                value = builder.extract_element(values, ir.Constant(_I32, k))
                at = _pointer(builder, _offset(builder, target, k, stride), _FLOAT)
                builder.store(value, at)
            return context.get_dummy_value()

        return types.void(I64, I64, I64), generate

    return intrinsic(unpack)


unpack_halves = _unpacker(False)
unpack_brains = _unpacker(True)


@intrinsic
def widen_half(typing_context: Any, half: Any) -> Any:
    """The bits of a half as the bits of a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half = builder.bitcast(builder.trunc(arguments[0], _I16), ir.HalfType())
        bits = builder.bitcast(builder.fpext(half, _FLOAT), _I32)
        return builder.zext(bits, ir.IntType(64))

    return I64(I64), generate


@intrinsic
def narrow_float(typing_context: Any, bits: Any) -> Any:
    """The bits of a float32 as the bits of the nearest half (ties to even)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.bitcast(builder.trunc(arguments[0], _I32), _FLOAT)
        half = builder.fptrunc(value, ir.HalfType())
        return builder.zext(builder.bitcast(half, _I16), ir.IntType(64))

    return I64(I64), generate
