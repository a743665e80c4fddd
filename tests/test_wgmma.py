"""wgmma in all its operand forms against NumPy, with operands laid out by a model of their own.

A kernel copies two images to shared memory, issues m64nNk16 once and writes the accumulators. The
images are made here, element by element, from the canonical layouts of PTX ISA (wgmma, matrix
descriptor and shared memory layout); small integers make every product exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from course_lib.kernel import Kernel, compile_kernel
from course_lib.virtual_gpu.launch import launch
from tests.gpu_apart import launch_apart, needs_hopper

IMAGE = 16384  # bytes of shared memory for each operand
SWIZZLE_CODE = {0: 0, 128: 1, 64: 2, 32: 3}  # bits 62 and 63 of a descriptor


@dataclass(frozen=True)
class Form:
    """One instruction: `across` means MN-major, `held` that A comes from registers."""

    n: int = 16
    kind: str = "f16"
    swizzle: int = 128
    a_across: bool = False
    b_across: bool = False
    held: bool = False
    scale_d: int = 1
    scale_a: int = 1
    scale_b: int = 1


def source_of(form: Form) -> str:
    """The kernel of a form."""
    count = form.n // 2
    sums = ", ".join(f"%{k}" for k in range(count))
    if form.held:
        a = "{" + ", ".join(f"%{count + k}" for k in range(4)) + "}"
        given = ", ".join(f'"r"(held[threadIdx.x * 4 + {k}])' for k in range(4))
    else:
        a, given = f"%{count}", '"l"(a)'
    tail = f"{form.scale_a}, {form.scale_b}"
    tail += "" if form.held else f", {int(form.a_across)}"
    tail += f", {int(form.b_across)}"
    b = f"%{count + (4 if form.held else 1)}"
    outputs = ", ".join(f'"+f"(d[{k}])' for k in range(count))
    return f"""
typedef unsigned long long u64;
extern "C" __global__ void __launch_bounds__(128) product(
    const uint4* images, u64 a_fields, u64 b_fields, const unsigned* held, float* C) {{
  extern __shared__ __align__(1024) uint4 memory[];
  for (int i = threadIdx.x; i < {2 * IMAGE // 16}; i += 128) memory[i] = images[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const u64 start = (u64)__cvta_generic_to_shared(memory) >> 4;
  const u64 a = a_fields + start, b = b_fields + start + {IMAGE // 16};
  float d[{count}];
  for (int k = 0; k < {count}; ++k) {{
    d[k] = threadIdx.x + 128 * k;
    asm volatile("" : "+f"(d[k]) :: "memory");  // before the fence in the PTX too
  }}
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n{form.n}k16.f32.{form.kind}.{form.kind} "
               "{{{sums}}}, {a}, {b}, {form.scale_d}, {tail};"
               : {outputs} : {given}, "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  const int w = threadIdx.x / 32, l = threadIdx.x % 32;
  for (int k = 0; k < {count}; ++k)
    C[(16 * w + l / 4 + 8 * (k / 2 % 2)) * {form.n} + 8 * (k / 4) + 2 * (l % 4) + k % 2] = d[k];
}}"""


@cache
def kernel_of(form: Form) -> Kernel:
    return compile_kernel(source_of(form), threads=128, shared_bytes=2 * IMAGE, arch="sm_90a")


# --- the model: where elements lie ------------------------------------------------------------


def strides_of(across: bool, swizzle: int) -> tuple[int, int]:
    """Leading and stride byte offsets of a descriptor, with gaps where a layout allows them."""
    if swizzle == 0:
        return (2048, 128) if across else (128, 384)
    return (8 * swizzle * 2, 8 * swizzle) if across else (16, 8 * swizzle)


def offset_of(line: int, k: int, across: bool, swizzle: int) -> int:
    """Byte offset of element (`line` of M or N, `k`) of an operand.

    Without a swizzle the operand is made of core matrices, 8 rows of 16 bytes that follow each
    other; with one, of atoms of 8 rows, `swizzle` bytes each. K-major rows run along K, MN-major
    ones along M or N.
    """
    leading, stride = strides_of(across, swizzle)
    along, row = (line, k) if across else (k, line)  # along a row's bytes, and which row
    if swizzle == 0:
        next_along, next_row = (stride, leading) if across else (leading, stride)
        at = along // 8 * next_along + row // 8 * next_row
        return at + row % 8 * 16 + along % 8 * 2
    if across:
        width = swizzle // 2
        at = along // width * leading + row // 8 * stride + along % width * 2
    else:
        at = row // 8 * stride + along * 2
    chunk, byte = divmod(at + row % 8 * swizzle, 16)
    pattern = chunk // 8 % (swizzle // 16)  # 16-byte chunks are exchanged within 128 bytes
    return (chunk ^ pattern) * 16 + byte


def bits_of(values: np.ndarray, kind: str) -> np.ndarray:
    """The 16 bits of each value, which must be exact in its type."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def image_of(values: np.ndarray, across: bool, swizzle: int, kind: str) -> np.ndarray:
    """Shared memory that holds an operand; what is between its elements are NaNs."""
    image = np.full(IMAGE // 2, 0x7FFF, np.uint16)
    bits = bits_of(values, kind)
    for (line, k), word in np.ndenumerate(bits):
        image[offset_of(line, k, across, swizzle) // 2] = word
    return image


def fields_of(across: bool, swizzle: int) -> np.uint64:
    """A descriptor but for its start address."""
    leading, stride = strides_of(across, swizzle)
    code = SWIZZLE_CODE[swizzle]
    return np.uint64(code << 62 | (stride >> 4) << 32 | (leading >> 4) << 16)


def held_by_threads(a: np.ndarray, kind: str) -> np.ndarray:
    """A as the four registers of each thread (PTX ISA, wgmma, register fragments of A)."""
    bits = bits_of(a, kind).astype(np.uint32)
    held = np.zeros((128, 4), np.uint32)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for register in range(4):
            row = 16 * warp + lane // 4 + 8 * (register % 2)
            column = 2 * (lane % 4) + 8 * (register // 2)
            held[thread, register] = bits[row, column] | bits[row, column + 1] << 16
    return held


def before(n: int) -> np.ndarray:
    """What the accumulators hold before the instruction."""
    d = np.zeros((64, n))
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for k in range(n // 2):
            row = 16 * warp + lane // 4 + 8 * (k // 2 % 2)
            d[row, 8 * (k // 4) + 2 * (lane % 4) + k % 2] = thread + 128 * k
    return d


def problem_of(form: Form) -> tuple[list[object], np.ndarray]:
    """Arguments of a form's kernel, and the right C."""
    rng = np.random.default_rng(form.n)
    a, b = (rng.integers(-9, 10, (size, 16)).astype(np.float64) for size in (64, form.n))
    held = held_by_threads(a, form.kind) if form.held else np.zeros((128, 4), np.uint32)
    images = np.concatenate([
        image_of(a, form.a_across, form.swizzle, form.kind),
        image_of(b, form.b_across, form.swizzle, form.kind),
    ])  # fmt: skip
    arguments = [
        images, fields_of(form.a_across, form.swizzle), fields_of(form.b_across, form.swizzle),
        held, np.zeros((64, form.n), np.float32),
    ]  # fmt: skip
    expected = form.scale_a * form.scale_b * (a @ b.T) + form.scale_d * before(form.n)
    return arguments, expected


FORMS = [
    *(Form(n, kind) for n in (8, 16, 64, 128) for kind in ("f16", "bf16")),
    *(Form(256, kind, swizzle=64) for kind in ("f16", "bf16")),
    *(
        Form(32, "f16", swizzle, a_across, b_across)
        for swizzle in (0, 32, 64, 128)
        for a_across, b_across in ((False, False), (True, False), (False, True))
    ),
    Form(128, "bf16", 64, True, True), Form(128, "f16", 0, True, True), Form(72, "f16", 32),
    Form(held=True), Form(64, "bf16", held=True, b_across=True), Form(8, "f16", 32, held=True),
    Form(scale_d=0), Form(64, "f16", held=True, scale_d=0), Form(scale_a=-1), Form(scale_b=-1),
    Form(8, "bf16", scale_a=-1, scale_b=-1, scale_d=0), Form(held=True, scale_a=-1),
]  # fmt: skip
each_form = pytest.mark.parametrize("form", FORMS, ids=repr)


@each_form
def test_the_virtual_gpu_multiplies_as_numpy_does(form: Form) -> None:
    arguments, expected = problem_of(form)
    result = launch(kernel_of(form), 1, arguments, check=True, landing="late")
    assert result.ok and not result.races and not result.warnings, result
    np.testing.assert_array_equal(arguments[-1], expected)


@needs_hopper
@each_form
def test_a_real_gpu_multiplies_as_numpy_does(form: Form) -> None:
    arguments, expected = problem_of(form)
    np.testing.assert_array_equal(launch_apart(kernel_of(form), 1, arguments)[-1], expected)
