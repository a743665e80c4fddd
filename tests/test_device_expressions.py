"""Device expressions on the virtual GPU against plain Python integers and NumPy.

Integers and half types must agree bit for bit.  Floats: within 2 units of the last place where the
hardware rounds correctly too, else within the tolerance given.  All expressions of one kind are
compiled in one kernel.  Neither side of a comparison comes from this project's own output.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from course_lib.kernel import compile_kernel

THREADS = 64
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def asm(text: str, *inputs: str, out: str = "unsigned") -> str:
    """A C expression that runs one PTX instruction; inputs are r, or l after a colon prefix."""
    letters = {"unsigned": "=r", "unsigned long long": "=l", "float": "=f", "double": "=d",
               "unsigned short": "=h"}  # fmt: skip
    constraints = []
    for item in inputs:
        kind, _, name = item.rpartition(":")
        constraints.append(f'"{kind or "r"}"({name})')
    end = "" if text.endswith("; }") or text.endswith(": }") else ";"
    return (
        f'[&]{{ {out} o; asm volatile("{text}{end}" : "{letters[out]}"(o) : '
        f"{', '.join(constraints)}); return o; }}()"
    )


@dataclass(frozen=True)
class Case:
    expression: str
    expected: Callable[..., Any]


# --- integers: arguments a, b, c (32 bits, unsigned) and p, q (64 bits) -------------------------


def u(expression: str, expected: Callable[..., int]) -> Case:
    return Case(expression, expected)


def _trunc_div(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _permute(a: int, b: int, selector: int) -> int:
    data = [(a | b << 32) >> 8 * k & 255 for k in range(8)]
    result = 0
    for k in range(4):
        choice = selector >> 4 * k & 15
        byte = data[choice & 7]
        result |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * k
    return result


def _lop3(a: int, b: int, c: int, table: int) -> int:
    result = 0
    for bit in range(32):
        k = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1
        result |= (table >> k & 1) << bit
    return result


def _bfe_unsigned(a: int, position: int, length: int, bits: int = 32) -> int:
    return (a & ((1 << bits) - 1)) >> position & ((1 << length) - 1)


def _bfe_signed(a: int, position: int, length: int, bits: int = 32) -> int:
    """Bit by bit, as the PTX manual defines it."""
    msb = bits - 1
    sign = 0 if length == 0 else a >> min(position + length - 1, msb) & 1
    result = 0
    for k in range(bits):
        inside = k < length and position + k <= msb
        result |= (a >> (position + k) & 1 if inside else sign) << k
    return result


def _bfi(a: int, b: int, position: int, length: int, bits: int = 32) -> int:
    for k in range(length):
        if position + k < bits:
            b = b & ~(1 << position + k) | (a >> k & 1) << position + k
    return b


def _bytes(value: int, is_signed: bool) -> list[int]:
    parts = [value >> 8 * k & 255 for k in range(4)]
    return [signed(part, 8) for part in parts] if is_signed else parts


def _dp4a(a: int, b: int, c: int, is_signed: bool) -> int:
    products = zip(_bytes(a, is_signed), _bytes(b, is_signed), strict=False)
    return c + sum(x * y for x, y in products)


def _bfind(a: int, is_signed: bool) -> int:
    if is_signed and a >> 31:
        a = ~a & M32
    return a.bit_length() - 1


def _saturate(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


INTEGER = [
    u("a + b", lambda a, b, c, p, q: a + b),
    u("a - b", lambda a, b, c, p, q: a - b),
    u("a * b", lambda a, b, c, p, q: a * b),
    u("a * b + c", lambda a, b, c, p, q: a * b + c),
    u("a / (b | 1)", lambda a, b, c, p, q: a // (b | 1)),
    u("a % (b | 1)", lambda a, b, c, p, q: a % (b | 1)),
    u("(int)a / ((int)b | 1)", lambda a, b, c, p, q: _trunc_div(signed(a), signed(b) | 1)),
    u("(int)a % ((int)b | 1)", lambda a, b, c, p, q: math.fmod(1, 1) or (
        signed(a) - _trunc_div(signed(a), signed(b) | 1) * (signed(b) | 1))),
    u("a / 7", lambda a, b, c, p, q: a // 7),
    u("(int)a / 7", lambda a, b, c, p, q: _trunc_div(signed(a), 7)),
    u("__umulhi(a, b)", lambda a, b, c, p, q: a * b >> 32),
    u("__mulhi((int)a, (int)b)", lambda a, b, c, p, q: signed(a) * signed(b) >> 32),
    u("__mul24((int)a, (int)b)", lambda a, b, c, p, q: signed(a, 24) * signed(b, 24)),
    u("__umul24(a, b)", lambda a, b, c, p, q: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    u("__sad((int)a, (int)b, c)", lambda a, b, c, p, q: abs(signed(a) - signed(b)) + c),
    u("__usad(a, b, c)", lambda a, b, c, p, q: abs(a - b) + c),
    u("min(a, b)", lambda a, b, c, p, q: min(a, b)),
    u("max((int)a, (int)b)", lambda a, b, c, p, q: max(signed(a), signed(b))),
    u("min((int)a, (int)b)", lambda a, b, c, p, q: min(signed(a), signed(b))),
    u("abs((int)a)", lambda a, b, c, p, q: abs(signed(a))),
    u("-a", lambda a, b, c, p, q: -a),
    u("~a & b | c", lambda a, b, c, p, q: ~a & b | c),
    u("a ^ b ^ c", lambda a, b, c, p, q: a ^ b ^ c),
    u("(a & b) ^ (~c | a)", lambda a, b, c, p, q: (a & b) ^ (~c | a)),
    u("a << (b & 31)", lambda a, b, c, p, q: a << (b & 31)),
    u("a >> (b & 31)", lambda a, b, c, p, q: a >> (b & 31)),
    u("(int)a >> (b & 31)", lambda a, b, c, p, q: signed(a) >> (b & 31)),
    u("a < b", lambda a, b, c, p, q: a < b),
    u("(int)a < (int)b", lambda a, b, c, p, q: signed(a) < signed(b)),
    u("(a == b || (int)c >= 0) ? a : c", lambda a, b, c, p, q: a if a == b or c < 1 << 31 else c),
    u("__popc(a)", lambda a, b, c, p, q: bin(a).count("1")),
    u("__popcll(p)", lambda a, b, c, p, q: bin(p).count("1")),
    u("__clz((int)a)", lambda a, b, c, p, q: 32 - a.bit_length()),
    u("__clzll((long long)p)", lambda a, b, c, p, q: 64 - p.bit_length()),
    u("__ffs((int)a)", lambda a, b, c, p, q: (a & -a).bit_length()),
    u("__brev(a)", lambda a, b, c, p, q: int(f"{a:032b}"[::-1], 2)),
    u("__byte_perm(a, b, c)", lambda a, b, c, p, q: _permute(a, b, c & 0x7777)),
    u("__byte_perm(a, b, 0x5410)", lambda a, b, c, p, q: a & 0xFFFF | (b & 0xFFFF) << 16),
    u("__funnelshift_l(a, b, c)",
      lambda a, b, c, p, q: (b << 32 | a) << (c & 31) >> 32),
    u("__funnelshift_r(a, b, c)", lambda a, b, c, p, q: (b << 32 | a) >> (c & 31)),
    u("__funnelshift_lc(a, b, c & 63)",
      lambda a, b, c, p, q: (b << 32 | a) << min(c & 63, 32) >> 32),
    u("__funnelshift_rc(a, b, c & 63)",
      lambda a, b, c, p, q: (b << 32 | a) >> min(c & 63, 32)),
    u("__dp4a(a, b, c)", lambda a, b, c, p, q: _dp4a(a, b, c, False)),
    u("__dp4a((int)a, (int)b, (int)c)", lambda a, b, c, p, q: _dp4a(a, b, c, True)),
    u("__vadd4(a, b)", lambda a, b, c, p, q: sum(
        ((a >> k & 255) + (b >> k & 255) & 255) << k for k in (0, 8, 16, 24))),
    u("__vmaxu2(a, b)", lambda a, b, c, p, q: sum(
        max(a >> k & 65535, b >> k & 65535) << k for k in (0, 16))),
    u("(unsigned)(signed char)a", lambda a, b, c, p, q: signed(a, 8)),
    u("(unsigned)(unsigned short)a", lambda a, b, c, p, q: a & 65535),
    u("(unsigned)(short)a", lambda a, b, c, p, q: signed(a, 16)),
    u("__hadd((int)a, (int)b)", lambda a, b, c, p, q: signed(a) + signed(b) >> 1),
    u("__urhadd(a, b)", lambda a, b, c, p, q: a + b + 1 >> 1),
    # one PTX instruction each
    u(asm("bfe.u32 %0, %1, %2, %3", "a", "b & 31", "c & 31"),
      lambda a, b, c, p, q: _bfe_unsigned(a, b & 31, c & 31)),
    u(asm("bfe.s32 %0, %1, %2, %3", "a", "b & 31", "c & 31"),
      lambda a, b, c, p, q: _bfe_signed(a, b & 31, c & 31)),
    u(asm("bfe.s32 %0, %1, %2, %3", "a", "b & 63", "c & 63"),
      lambda a, b, c, p, q: _bfe_signed(a, b & 63, c & 63)),
    u(asm("bfi.b32 %0, %1, %2, %3, %4", "a", "b", "c & 31", "(c >> 5) & 31"),
      lambda a, b, c, p, q: _bfi(a, b, c & 31, c >> 5 & 31)),
    u(asm("lop3.b32 %0, %1, %2, %3, 0x1b", "a", "b", "c"),
      lambda a, b, c, p, q: _lop3(a, b, c, 0x1B)),
    u(asm("lop3.b32 %0, %1, %2, %3, 0xca", "a", "b", "c"),
      lambda a, b, c, p, q: _lop3(a, b, c, 0xCA)),
    u(asm("lop3.b32 %0, %1, %2, %3, 0x6a", "a", "b", "c"),
      lambda a, b, c, p, q: _lop3(a, b, c, 0x6A)),
    u(asm("prmt.b32 %0, %1, %2, %3", "a", "b", "c"), lambda a, b, c, p, q: _permute(a, b, c)),
    u(asm("shl.b32 %0, %1, %2", "a", "b & 63"),
      lambda a, b, c, p, q: a << (b & 63) if b & 63 < 32 else 0),
    u(asm("shr.s32 %0, %1, %2", "a", "b & 63"),
      lambda a, b, c, p, q: signed(a) >> min(b & 63, 31)),
    u(asm("bfind.u32 %0, %1", "a"), lambda a, b, c, p, q: _bfind(a, False)),
    u(asm("bfind.s32 %0, %1", "a"), lambda a, b, c, p, q: _bfind(a, True)),
    u(asm("bfind.shiftamt.u32 %0, %1", "a"),
      lambda a, b, c, p, q: 32 - a.bit_length() if a else -1),
    u(asm("add.sat.s32 %0, %1, %2", "a", "b"),
      lambda a, b, c, p, q: _saturate(signed(a) + signed(b), -(1 << 31), (1 << 31) - 1)),
    u(asm("sub.sat.s32 %0, %1, %2", "a", "b"),
      lambda a, b, c, p, q: _saturate(signed(a) - signed(b), -(1 << 31), (1 << 31) - 1)),
    u(asm("cvt.sat.u8.s32 %0, %1", "a"), lambda a, b, c, p, q: _saturate(signed(a), 0, 255)),
    u(asm("cvt.sat.s8.s32 %0, %1", "a"), lambda a, b, c, p, q: _saturate(signed(a), -128, 127)),
    u(asm("cnot.b32 %0, %1", "a & 1"), lambda a, b, c, p, q: not a & 1),
    u(asm("mad.hi.u32 %0, %1, %2, %3", "a", "b", "c"),
      lambda a, b, c, p, q: (a * b >> 32) + c),
    u(asm("slct.u32.s32 %0, %1, %2, %3", "a", "b", "c"),
      lambda a, b, c, p, q: a if c < 1 << 31 else b),
    u(asm("set.lt.u32.s32 %0, %1, %2", "a", "b"),
      lambda a, b, c, p, q: -(signed(a) < signed(b))),
    u(asm("{ .reg .u32 t; add.cc.u32 t, %1, %2; addc.u32 %0, %3, 0; }", "a", "b", "c"),
      lambda a, b, c, p, q: c + (a + b >> 32)),
    u(asm("{ .reg .u32 t; sub.cc.u32 t, %1, %2; subc.u32 %0, %3, 0; }", "a", "b", "c"),
      lambda a, b, c, p, q: c - (a < b)),
    u(asm("{ .reg .u32 t; mad.lo.cc.u32 t, %1, %2, %3; madc.hi.u32 %0, %1, %2, %3; }",
          "a", "b", "c"),
      lambda a, b, c, p, q: (a * b >> 32) + c + ((a * b & M32) + c >> 32)),
    u(asm("{ .reg .pred t; setp.lt.u32 t, %1, %2; @!t bra L; mov.u32 %0, 1; bra.uni M; "
          "L: mov.u32 %0, 2; M: }", "a", "b"),
      lambda a, b, c, p, q: 1 if a < b else 2),
    u(asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, l}; }", "a"),
      lambda a, b, c, p, q: a >> 16 | (a & 65535) << 16),
]  # fmt: skip

LONG = [
    u("p + q", lambda a, b, c, p, q: p + q),
    u("p * q", lambda a, b, c, p, q: p * q),
    u("p / (q | 1)", lambda a, b, c, p, q: p // (q | 1)),
    u("p % (q | 1)", lambda a, b, c, p, q: p % (q | 1)),
    u("(long long)p / ((long long)q | 1)",
      lambda a, b, c, p, q: _trunc_div(signed(p, 64), signed(q, 64) | 1)),
    u("__umul64hi(p, q)", lambda a, b, c, p, q: p * q >> 64),
    u("__mul64hi((long long)p, (long long)q)",
      lambda a, b, c, p, q: signed(p, 64) * signed(q, 64) >> 64),
    u("(unsigned long long)a * b", lambda a, b, c, p, q: a * b),
    u("(long long)(int)a * (int)b + (long long)q",
      lambda a, b, c, p, q: signed(a) * signed(b) + q),
    u("(long long)p >> (b & 63)", lambda a, b, c, p, q: signed(p, 64) >> (b & 63)),
    u("p << (b & 63)", lambda a, b, c, p, q: p << (b & 63)),
    u("__brevll(p)", lambda a, b, c, p, q: int(f"{p:064b}"[::-1], 2)),
    u("min((long long)p, (long long)q)",
      lambda a, b, c, p, q: min(signed(p, 64), signed(q, 64))),
    u("p < q ? p ^ q : p & q", lambda a, b, c, p, q: p ^ q if p < q else p & q),
    u("(unsigned long long)(long long)(int)a", lambda a, b, c, p, q: signed(a)),
    u(asm("bfe.s64 %0, %1, %2, %3", "l:p", "b & 63", "c & 63", out="unsigned long long"),
      lambda a, b, c, p, q: _bfe_signed(p, b & 63, c & 63, 64)),
    u(asm("bfi.b64 %0, %1, %2, %3, %4", "l:p", "l:q", "c & 63", "(c >> 6) & 63",
          out="unsigned long long"),
      lambda a, b, c, p, q: _bfi(p, q, c & 63, c >> 6 & 63, 64)),
    u(asm("mad.wide.u32 %0, %1, %2, %3", "a", "b", "l:p", out="unsigned long long"),
      lambda a, b, c, p, q: a * b + p),
    u(asm("mov.b64 %0, {%1, %2}", "a", "b", out="unsigned long long"),
      lambda a, b, c, p, q: a | b << 32),
    u(asm("sad.u64 %0, %1, %2, %1", "l:p", "l:q", out="unsigned long long"),
      lambda a, b, c, p, q: abs(p - q) + p),
]  # fmt: skip


def integer_inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(20)
    arrays = [rng.integers(0, 1 << 32, THREADS, dtype=np.uint64) for _ in range(3)]
    edges = [0, 1, M32, 1 << 31, (1 << 31) - 1, 7, 255, 32]
    for shift, array in enumerate(arrays):
        array[: len(edges)] = np.roll(edges, shift)
    arrays[1][8:12] = arrays[0][8:12]
    longs = [rng.integers(0, 1 << 64, THREADS, dtype=np.uint64) for _ in range(2)]
    for shift, array in enumerate(longs):
        array[:6] = np.roll(np.array([0, 1, M64, 1 << 63, (1 << 63) - 1, 9], np.uint64), shift)
    return [array.astype(np.uint32) for array in arrays] + longs


def run_kernel(source: str, *arrays: np.ndarray) -> None:
    from course_lib.virtual_gpu.launch import launch

    kernel = compile_kernel(source, name="k", threads=THREADS)
    result = launch(kernel, (1,), list(arrays))
    assert result.ok, result.errors


def check_integers(cases: list[Case], kind: str, dtype: Any, bits: int) -> None:
    lines = "\n".join(
        f"out[{k * THREADS} + i] = ({kind})({case.expression});" for k, case in enumerate(cases)
    )
    source = f"""
extern "C" __global__ void k(const unsigned* A, const unsigned* B, const unsigned* C,
    const unsigned long long* P, const unsigned long long* Q, {kind}* out) {{
  int i = threadIdx.x; unsigned a = A[i], b = B[i], c = C[i]; unsigned long long p = P[i], q = Q[i];
  {lines}
}}"""
    inputs = integer_inputs()
    out = np.zeros(len(cases) * THREADS, dtype)
    run_kernel(source, *inputs, out)
    wrong = []
    for k, case in enumerate(cases):
        for i in range(THREADS):
            values = [int(array[i]) for array in inputs]
            expected = int(case.expected(*values)) & ((1 << bits) - 1)
            got = int(out[k * THREADS + i])
            if got != expected:
                wrong.append(f"{case.expression}: {values} -> {got:#x}, expected {expected:#x}")
                break
    assert not wrong, "\n".join(wrong)


def test_integers_of_32_bits() -> None:
    check_integers(INTEGER, "unsigned", np.uint32, 32)


def test_integers_of_64_bits() -> None:
    check_integers(LONG, "unsigned long long", np.uint64, 64)


# --- floats: x, y, z (float32), d, g (float64); NumPy in double is the reference ----------------

X = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class FloatCase:
    expression: str
    expected: Callable[..., np.ndarray]
    tolerance: float = 3e-7  #: relative to max(1, |expected|); 3e-7 is about 2.5 ulp of float


def f(expression: str, expected: Callable[..., Any], tolerance: float = 3e-7) -> FloatCase:
    return FloatCase(expression, expected, tolerance)


def directed(value: float, mode: str) -> float:
    """A double rounded to float towards 0, -inf or +inf."""
    near = np.float32(value)
    if mode == "rz" and abs(float(near)) > abs(value):
        near = np.nextafter(near, np.float32(0))
    if mode == "rd" and float(near) > value:
        near = np.nextafter(near, np.float32(-np.inf))
    if mode == "ru" and float(near) < value:
        near = np.nextafter(near, np.float32(np.inf))
    return float(near)


FLOATING = [
    f("x + y", lambda x, y, z, d, g: x + y),
    f("x - y * z", lambda x, y, z, d, g: x - y * z),
    f("fmaf(x, y, z)", lambda x, y, z, d, g: x * y + z),
    f("x / y", lambda x, y, z, d, g: x / y),
    f("__fdividef(x, y)", lambda x, y, z, d, g: x / y, 1e-6),
    f("sqrtf(fabsf(x))", lambda x, y, z, d, g: np.sqrt(abs(x))),
    f("rsqrtf(fabsf(y))", lambda x, y, z, d, g: 1 / np.sqrt(abs(y)), 1e-6),
    f("1.0f / y", lambda x, y, z, d, g: 1 / y),
    f("sinf(x)", lambda x, y, z, d, g: np.sin(x)),
    f("cosf(x)", lambda x, y, z, d, g: np.cos(x)),
    f("tanf(x)", lambda x, y, z, d, g: np.tan(x), 2e-6),
    f("__sinf(x)", lambda x, y, z, d, g: np.sin(x), 1e-6),
    f("expf(x)", lambda x, y, z, d, g: np.exp(x)),
    f("exp2f(x)", lambda x, y, z, d, g: np.exp2(x)),
    f("__expf(x)", lambda x, y, z, d, g: np.exp(x), 2e-6),
    f("logf(fabsf(y))", lambda x, y, z, d, g: np.log(abs(y)), 1e-6),
    f("log2f(fabsf(y))", lambda x, y, z, d, g: np.log2(abs(y)), 1e-6),
    f("log1pf(fabsf(x))", lambda x, y, z, d, g: np.log1p(abs(x)), 1e-6),
    f("powf(fabsf(y), 1.5f)", lambda x, y, z, d, g: abs(y) ** 1.5, 2e-6),
    f("tanhf(x)", lambda x, y, z, d, g: np.tanh(x), 1e-6),
    f("erff(x)", lambda x, y, z, d, g: np.vectorize(math.erf)(x), 1e-6),
    f("atan2f(x, y)", lambda x, y, z, d, g: np.arctan2(x, y), 1e-6),
    f("hypotf(x, y)", lambda x, y, z, d, g: np.hypot(x, y), 1e-6),
    f("cbrtf(x)", lambda x, y, z, d, g: np.cbrt(x), 1e-6),
    f("floorf(x)", lambda x, y, z, d, g: np.floor(x), 0),
    f("ceilf(x)", lambda x, y, z, d, g: np.ceil(x), 0),
    f("truncf(x)", lambda x, y, z, d, g: np.trunc(x), 0),
    f("rintf(x)", lambda x, y, z, d, g: np.rint(x), 0),
    f("roundf(x)", lambda x, y, z, d, g: np.trunc(x + np.copysign(0.5, x)), 0),
    f("fmodf(x, 0.7f)", lambda x, y, z, d, g: np.fmod(x, np.float64(np.float32(0.7)))),
    f("fminf(x, y)", lambda x, y, z, d, g: np.minimum(x, y), 0),
    f("fmaxf(x, y)", lambda x, y, z, d, g: np.maximum(x, y), 0),
    f("__saturatef(x)", lambda x, y, z, d, g: np.clip(x, 0, 1), 0),
    f("copysignf(z, x)", lambda x, y, z, d, g: np.copysign(z, x), 0),
    f("x < y ? x : z", lambda x, y, z, d, g: np.where(x < y, x, z), 0),
    f("(float)(int)(x * 1000.f)",
      lambda x, y, z, d, g: np.trunc((x.astype(np.float32) * np.float32(1000)).astype(float)), 0),
    f("(float)__float2int_rn(x * 9.f)",
      lambda x, y, z, d, g: np.rint((x.astype(np.float32) * np.float32(9)).astype(float)), 0),
    f("(float)__float2uint_rz(x)", lambda x, y, z, d, g: np.trunc(np.maximum(x, 0)), 0),
    f("(float)(long long)(x * 1e9f)", lambda x, y, z, d, g: np.trunc(
        (x.astype(np.float32) * np.float32(1e9)).astype(float)).astype(np.float32), 0),
    f("__double2float_rn(d)", lambda x, y, z, d, g: d.astype(np.float32), 0),
    f("__double2float_rz(d)", lambda x, y, z, d, g: [directed(v, "rz") for v in d], 0),
    f("__double2float_rd(d)", lambda x, y, z, d, g: [directed(v, "rd") for v in d], 0),
    f("__double2float_ru(d)", lambda x, y, z, d, g: [directed(v, "ru") for v in d], 0),
    f("__fmul_rz(x, y)", lambda x, y, z, d, g: [directed(v, "rz") for v in x * y], 0),
    f("__fmul_rd(x, y)", lambda x, y, z, d, g: [directed(v, "rd") for v in x * y], 0),
    f("__int2float_rz((int)(d * 7e8))",
      lambda x, y, z, d, g: [directed(v, "rz") for v in np.trunc(d * 7e8)], 0),
    f("__uint_as_float(__float_as_uint(x) ^ 0x80000000u)", lambda x, y, z, d, g: -x, 0),
    f("isnan(x / (x - x)) ? 1.f : 2.f", lambda x, y, z, d, g: np.where(x == 0, 1, 2), 0),
    f("(float)(d * g + 1.0)", lambda x, y, z, d, g: d * g + 1),
    f("(float)sin(d)", lambda x, y, z, d, g: np.sin(d)),
    f("(float)exp(d)", lambda x, y, z, d, g: np.exp(d)),
    f("(float)(sqrt(fabs(d)) / (g * g + 1))",
      lambda x, y, z, d, g: np.sqrt(abs(d)) / (g * g + 1)),
    f("(float)fma(d, g, d)", lambda x, y, z, d, g: d * g + d),
    f("(float)(long long)(d * 1e6)", lambda x, y, z, d, g: np.trunc(d * 1e6)),
    f("(float)fmin(d, g)", lambda x, y, z, d, g: np.minimum(d, g)),
]  # fmt: skip


def float_inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(21)
    x, y, z = ((rng.random(THREADS) * 6 - 3).astype(np.float32) for _ in range(3))
    x[:6] = [0, 1, -1, 0.5, -2.5, 1e-3]
    y[np.abs(y) < 0.05] = 0.25
    d, g = (rng.random(THREADS) * 6 - 3 for _ in range(2))
    return [x, y, z, d, g]


def test_floats() -> None:
    lines = "\n".join(
        f"out[{k * THREADS} + i] = {case.expression};" for k, case in enumerate(FLOATING)
    )
    source = f"""
extern "C" __global__ void k(const float* X, const float* Y, const float* Z, const double* D,
    const double* G, float* out) {{
  int i = threadIdx.x; float x = X[i], y = Y[i], z = Z[i]; double d = D[i], g = G[i];
  {lines}
}}"""
    inputs = float_inputs()
    out = np.zeros(len(FLOATING) * THREADS, np.float32)
    run_kernel(source, *inputs, out)
    wide = [array.astype(np.float64) for array in inputs]
    wrong = []
    for k, case in enumerate(FLOATING):
        got = out[k * THREADS : (k + 1) * THREADS].astype(np.float64)
        with np.errstate(all="ignore"):
            expected = np.asarray(case.expected(*wide), np.float64)
        error = np.max(np.abs(got - expected) / np.maximum(1, np.abs(expected)))
        if not error <= case.tolerance:
            at = int(np.argmax(np.abs(got - expected)))
            wrong.append(f"{case.expression}: {got[at]!r}, expected {expected[at]!r} ({error:.2e})")
    assert not wrong, "\n".join(wrong)


# --- half types: NumPy's float16 rounds once; bfloat16 is rounded here by hand ------------------


def to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 -> the 16 bits of bfloat16, to nearest even."""
    out = []
    for value in np.asarray(values, np.float32):
        (word,) = struct.unpack("<I", struct.pack("<f", value))
        out.append(word + 0x7FFF + (word >> 16 & 1) >> 16)
    return np.array(out, np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def half_bits(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float16).view(np.uint16)


HALVES: list[tuple[str, Callable[..., np.ndarray]]] = [
    ("__half_as_ushort(h + k)", lambda h, k, b, c: half_bits(h + k)),
    ("__half_as_ushort(h * k)", lambda h, k, b, c: half_bits(h * k)),
    ("__half_as_ushort(__hsub(h, k))", lambda h, k, b, c: half_bits(h - k)),
    ("__half_as_ushort(__hfma(h, k, h))", lambda h, k, b, c: half_bits(
        h.astype(np.float64) * k.astype(np.float64) + h.astype(np.float64))),
    ("__half_as_ushort(__hmax(h, k))", lambda h, k, b, c: half_bits(np.maximum(h, k))),
    ("__half_as_ushort(__hneg(h))", lambda h, k, b, c: half_bits(-h)),
    ("__hlt(h, k) ? 1 : 0", lambda h, k, b, c: (h < k).astype(np.uint16)),
    ("__half_as_ushort(__high2half(__hadd2(__halves2half2(h, k), __halves2half2(k, k))))",
     lambda h, k, b, c: half_bits(k + k)),
    ("__half_as_ushort(__low2half(__hfma2(__halves2half2(h, k), __halves2half2(k, h), "
     "__halves2half2(k, k))))", lambda h, k, b, c: half_bits(
        h.astype(np.float64) * k.astype(np.float64) + k.astype(np.float64))),
    ("__half_as_ushort(__float2half_rz(__half2float(h) * 1.2345f))", lambda h, k, b, c: half_bits([
        v if abs(float(v)) <= abs(e) else np.nextafter(v, np.float16(0))
        for e in (h.astype(np.float32) * np.float32(1.2345)).astype(float).tolist()
        for v in [np.float16(e)]])),
    ("__half_as_ushort(__int2half_rn((int)(__half2float(h) * 100)))",
     lambda h, k, b, c: half_bits(np.trunc(h.astype(np.float64) * 100))),
    ("(unsigned short)__half2short_rn(k)",
     lambda h, k, b, c: np.rint(k.astype(float)).astype(np.int16).view(np.uint16)),
    ("__bfloat16_as_ushort(b + c)", lambda h, k, b, c: to_bf16(from_bf16(b) + from_bf16(c))),
    ("__bfloat16_as_ushort(b * c)", lambda h, k, b, c: to_bf16(from_bf16(b) * from_bf16(c))),
    ("__bfloat16_as_ushort(__float2bfloat16(__half2float(h) + 0.001f))",
     lambda h, k, b, c: to_bf16(h.astype(np.float32) + np.float32(0.001))),
    ("__bfloat16_as_ushort(__hmin(b, c))",
     lambda h, k, b, c: to_bf16(np.minimum(from_bf16(b), from_bf16(c)))),
    ("__bfloat16_as_ushort(__high2bfloat16(__hmul2(__halves2bfloat162(b, c), "
     "__halves2bfloat162(b, b))))", lambda h, k, b, c: to_bf16(from_bf16(c) * from_bf16(b))),
]  # fmt: skip


def test_half_types_bit_for_bit() -> None:
    rng = np.random.default_rng(22)
    h, k = ((rng.random(THREADS) * 8 - 4).astype(np.float16) for _ in range(2))
    b, c = (to_bf16((rng.random(THREADS) * 8 - 4).astype(np.float32)) for _ in range(2))
    lines = "\n".join(f"out[{n * THREADS} + i] = {text};" for n, (text, _) in enumerate(HALVES))
    source = f"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(const __half* H, const __half* K, const __nv_bfloat16* B,
    const __nv_bfloat16* C, unsigned short* out) {{
  int i = threadIdx.x; __half h = H[i], k = K[i]; __nv_bfloat16 b = B[i], c = C[i];
  {lines}
}}"""
    out = np.zeros(len(HALVES) * THREADS, np.uint16)
    run_kernel(source, h.view(np.uint16), k.view(np.uint16), b, c, out)
    wrong = []
    for n, (text, expected) in enumerate(HALVES):
        got, want = out[n * THREADS : (n + 1) * THREADS], expected(h, k, b, c)
        if not np.array_equal(got, want):
            at = int(np.flatnonzero(got != want)[0])
            wrong.append(f"{text}: {got[at]:#06x}, expected {int(want[at]):#06x}")
    assert not wrong, "\n".join(wrong)


def test_there_are_enough_expressions() -> None:
    assert len(INTEGER) + len(LONG) + len(FLOATING) + len(HALVES) >= 120


# --- what the hardware leaves undefined must not hurt the host ----------------------------------


@pytest.mark.parametrize("kind", ["int", "unsigned", "long long"])
def test_division_by_zero_is_reported_and_harmless(kind: str) -> None:
    from course_lib.virtual_gpu.launch import launch

    source = f"""
extern "C" __global__ void k(const {kind}* a, const {kind}* b, {kind}* q) {{
  int i = threadIdx.x;
  q[i] = a[i] / b[i];
}}"""
    dtype = {"int": np.int32, "unsigned": np.uint32, "long long": np.int64}[kind]
    least = np.iinfo(dtype).min
    a, b = np.array([6, 5, least, 9] * 8, dtype), np.array([3, 0, -1 if least else 1, 3] * 8, dtype)
    out = np.zeros(32, dtype)
    kernel = compile_kernel(source, name="k", threads=32)
    result = launch(kernel, (1,), [a, b, out])
    assert out[0] == 2 and out[2] == least and out[3] == 3
    # all ones; a 64-bit division whose operands fit 32 bits is compiled to a 32-bit one
    assert int(out[1]) in (-1, M32)
    text = " ".join(str(getattr(w, "message", w)) for w in [*result.warnings, *result.errors])
    assert "zero" in text and "4" in text
