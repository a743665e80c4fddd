"""Memory by address, for the parts of the runtime that numba compiles.

Every record of the virtual GPU (threads, warps, blocks, cores, queues) is an array of 64-bit slots
whose address is passed about as a plain integer. These intrinsics are the only places where the
runtime touches memory; they compile to single machine instructions and need no Python at run time.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

I64 = types.int64
native = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Decorator of the runtime's functions: compiled, and called by other compiled code alone."""

_BYTE_POINTER = ir.PointerType(ir.IntType(8))


def _loader(bits: int) -> Any:
    """`load(base, index)`: the zero-extended `bits`-bit integer at `base + index * bits / 8`."""

    def load(typing_context: Any, base: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _element(builder, arguments[0], arguments[1], bits)
            value = builder.load(pointer)
            return builder.zext(value, ir.IntType(64)) if bits < 64 else value

        return I64(I64, I64), generate

    return intrinsic(load)


def _storer(bits: int) -> Any:
    """`store(base, index, value)`: the low `bits` bits of `value` to `base + index * bits / 8`."""

    def store(typing_context: Any, base: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _element(builder, arguments[0], arguments[1], bits)
            value = arguments[2]
            builder.store(builder.trunc(value, ir.IntType(bits)) if bits < 64 else value, pointer)
            return context.get_dummy_value()

        return types.void(I64, I64, I64), generate

    return intrinsic(store)


def _element(builder: Any, base: Any, index: Any, bits: int) -> Any:
    offset = builder.mul(index, ir.Constant(ir.IntType(64), bits // 8))
    return builder.inttoptr(builder.add(base, offset), ir.PointerType(ir.IntType(bits)))


load64, store64 = _loader(64), _storer(64)
load32, store32 = _loader(32), _storer(32)
load8, store8 = _loader(8), _storer(8)


@intrinsic
def copy_bytes(typing_context: Any, target: Any, source: Any, count: Any) -> Any:
    """memcpy(target, source, count)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i64 = ir.IntType(64)
        name = "llvm.memcpy"
        function = builder.module.declare_intrinsic(name, [_BYTE_POINTER, _BYTE_POINTER, i64])
        pointers = [builder.inttoptr(arguments[k], _BYTE_POINTER) for k in (0, 1)]
        builder.call(function, [*pointers, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(I64, I64, I64), generate


@intrinsic
def fill_bytes(typing_context: Any, target: Any, value: Any, count: Any) -> Any:
    """memset(target, value, count)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i64 = ir.IntType(64)
        function = builder.module.declare_intrinsic("llvm.memset", [_BYTE_POINTER, i64])
        pointer = builder.inttoptr(arguments[0], _BYTE_POINTER)
        value = builder.trunc(arguments[1], ir.IntType(8))
        builder.call(function, [pointer, value, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(I64, I64, I64), generate


@intrinsic
def join_words(typing_context: Any, target: Any, source: Any, count: Any) -> Any:
    """target[k] = max(target[k], source[k]) over 32-bit words; `count` is a multiple of 8."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i64, vector = ir.IntType(64), ir.VectorType(ir.IntType(32), 8)
        index = cgutils.alloca_once_value(builder, ir.Constant(i64, 0))
        head, body, done = (builder.append_basic_block(n) for n in ("join", "eight", "joined"))
        builder.branch(head)
        builder.position_at_end(head)
        at = builder.load(index)
        builder.cbranch(builder.icmp_signed("<", at, arguments[2]), body, done)
        builder.position_at_end(body)
        offset = builder.mul(at, ir.Constant(i64, 4))
        mine, theirs = (
            builder.inttoptr(builder.add(arguments[k], offset), ir.PointerType(vector))
            for k in (0, 1)
        )
        have, new = builder.load(mine, align=4), builder.load(theirs, align=4)
        larger = builder.select(builder.icmp_signed(">", have, new), have, new)
        builder.store(larger, mine, align=4)
        builder.store(builder.add(at, ir.Constant(i64, 8)), index)
        builder.branch(head)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(I64, I64, I64), generate


@intrinsic
def allocate(typing_context: Any, count: Any) -> Any:
    """Address of `count` bytes of zeros from the C library, 0 where there are none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i64 = ir.IntType(64)
        kind = ir.FunctionType(i64, [i64, i64])
        function = cgutils.get_or_insert_function(builder.module, kind, "calloc")
        return builder.call(function, [arguments[0], ir.Constant(i64, 1)])

    return I64(I64), generate


@intrinsic
def give_back(typing_context: Any, address: Any) -> Any:
    """Return what `allocate` gave; 0 is nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        function = cgutils.get_or_insert_function(builder.module, kind, "free")
        builder.call(function, [arguments[0]])
        return context.get_dummy_value()

    return types.void(I64), generate


@intrinsic
def call_step(typing_context: Any, step: Any, thread: Any, block: Any) -> Any:
    """Run one thread until it yields: `i32 step(ptr thread, ptr block)`, the translated kernel."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [_BYTE_POINTER, _BYTE_POINTER])
        function = builder.inttoptr(arguments[0], ir.PointerType(kind))
        pointers = [builder.inttoptr(arguments[k], _BYTE_POINTER) for k in (1, 2)]
        return builder.sext(builder.call(function, pointers), ir.IntType(64))

    return I64(I64, I64, I64), generate
