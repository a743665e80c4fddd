"""Tensor cores of the virtual GPU. Products of small integers are exact: bits must be equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from course_lib.kernel import compile_kernel
from course_lib.tensor_maps import tensor_map
from course_lib.virtual_gpu.launch import launch

MMA = r"""
#include <cuda_fp16.h>
extern "C" __global__ void product(const half* A, const half* B, float* C) {
  __shared__ __align__(16) half a[16 * 16], b[8 * 16];
  int l = threadIdx.x;
  for (int i = l; i < 256; i += 32) a[i] = A[i];
  for (int i = l; i < 128; i += 32) b[i] = B[i];
  __syncwarp();
  unsigned a0, a1, a2, a3, b0, b1;
  float c0 = 1, c1 = 1, c2 = 1, c3 = 1;
  unsigned pa = __cvta_generic_to_shared(a + (l % 16) * 16 + (l / 16) * 8);
  unsigned pb = __cvta_generic_to_shared(b + (l % 8) * 16 + (l / 8 % 2) * 8);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
    : "=r"(a0), "=r"(a1), "=r"(a2), "=r"(a3) : "r"(pa));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
    : "=r"(b0), "=r"(b1) : "r"(pb));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.KIND.KIND.f32"
    " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
    : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  int g = l / 4, t = l % 4;
  C[g * 8 + 2 * t] = c0; C[g * 8 + 2 * t + 1] = c1;
  C[(g + 8) * 8 + 2 * t] = c2; C[(g + 8) * 8 + 2 * t + 1] = c3;
}"""

WMMA = r"""
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void product(const half* A, const half* B, SUM* C) {
  fragment<matrix_a, 16, 16, 16, half, A_LAYOUT> a;
  fragment<matrix_b, 16, 16, 16, half, B_LAYOUT> b;
  fragment<accumulator, 16, 16, 16, SUM> c;
  fill_fragment(c, (SUM)1.f);
  load_matrix_sync(a, A, 16);
  load_matrix_sync(b, B, 16);
  mma_sync(c, a, b, c);
  store_matrix_sync(C, c, 16, C_LAYOUT);
}"""

WGMMA = r"""
#include <cuda_fp16.h>
#include <course_pipeline.cuh>
extern "C" __global__ void __launch_bounds__(128) product(const half* A, const half* B, float* C) {
  extern __shared__ __align__(1024) char memory[];
  char *a = memory, *b = memory + 64 * 128;
  int t = threadIdx.x;
  for (int i = t; i < 64 * 64; i += 128) {
    int o = i * 2;
    *(half*)(a + ((o & ~0x70) | ((o ^ (o >> 3)) & 0x70))) = A[i];
  }
  for (int i = t; i < N * 64; i += 128) {
    int o = i * 2;
    *(half*)(b + ((o & ~0x70) | ((o ^ (o >> 3)) & 0x70))) = B[i];
  }
  proxy_fence();
  __syncthreads();
  float d[N / 2] = {};
  for (int round = 0; round < 2; round++) {
    FENCE
    for (int k = 0; k < 4; k++)
      wgmma<N>(d, wgmma_descriptor(a + k * 32), wgmma_descriptor(b + k * 32));
    wgmma_commit();
    WAIT
    for (int i = 0; i < N / 2; i++) d[i] += 1.0f;
  }
  int w = t / 32, l = t % 32;
  for (int j = 0; j < N / 8; j++)
    for (int i = 0; i < 4; i++)
      C[(16 * w + l / 4 + 8 * (i / 2)) * N + 8 * j + 2 * (l % 4) + i % 2] = d[4 * j + i];
}"""
RIGHT = {"FENCE": "wgmma_fence();", "WAIT": "wgmma_wait();"}


def halves(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, (rows, columns)).astype(np.float16)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_mma_with_ldmatrix(kind: str, check: bool) -> None:
    a, b = halves(16, 16, 1), halves(8, 16, 2)
    c = np.zeros((16, 8), np.float32)
    kernel = compile_kernel(MMA.replace("KIND", kind), threads=32)
    sources = [a, b]
    if kind == "bf16":  # small integers are exact in both: the same bits, cut from float32
        sources = [
            (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.float16)
            for x in sources
        ]
    result = launch(kernel, 1, [*sources, c], check=check)
    assert result.ok and not result.races
    np.testing.assert_array_equal(c, product(a, b) + 1)


@pytest.mark.parametrize("sums", ["float", "half"])
@pytest.mark.parametrize("layout", ["row", "col"])
def test_wmma(layout: str, sums: str) -> None:
    a, b = halves(16, 16, 3), halves(16, 16, 4)
    c = np.zeros((16, 16), np.float32 if sums == "float" else np.float16)
    other = "col" if layout == "row" else "row"
    defines = {
        "SUM": sums, "A_LAYOUT": f"{layout}_major", "B_LAYOUT": f"{other}_major",
        "C_LAYOUT": f"mem_{layout}_major",
    }  # fmt: skip
    result = launch(compile_kernel(WMMA, threads=32, defines=defines), 1, [a, b, c])
    assert result.ok
    expected = product(a, b) if layout == "row" else (product(a.T, b.T)).T
    np.testing.assert_array_equal(c, expected + 1)


SHARED_WMMA = r"""
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void product(const half* A, const half* B, float* C) {
  __shared__ __align__(32) half a[256], b[256];
  __shared__ __align__(32) float c[256];
  for (int i = threadIdx.x; i < 256; i += 64) { a[i] = A[i]; b[i] = B[i]; }
  LOADED
  if (threadIdx.x < 32) {
    fragment<matrix_a, 16, 16, 16, half, row_major> left;
    fragment<matrix_b, 16, 16, 16, half, LAYOUT> right;
    fragment<accumulator, 16, 16, 16, float> sums;
    fill_fragment(sums, 0.f);
    load_matrix_sync(left, a, 16);
    load_matrix_sync(right, b, 16);
    mma_sync(sums, left, right, sums);
    store_matrix_sync(c, sums, 16, mem_row_major);
  }
  STORED
  for (int i = threadIdx.x; i < 256; i += 64) C[i] = c[i];
}"""


@pytest.mark.parametrize("layout", ["col_major", "row_major"])
def test_loads_and_stores_of_wmma_are_shown_to_the_checker(layout: str) -> None:
    right = {"LOADED": "__syncthreads();", "STORED": "__syncthreads();", "LAYOUT": layout}
    for left_out in (None, "LOADED", "STORED"):
        defines = {**right, left_out: ""} if left_out else right
        kernel = compile_kernel(SHARED_WMMA, threads=64, defines=defines)
        for order in ("round_robin", "one_last", "one_first"):
            a, b, c = halves(16, 16, 3), halves(16, 16, 4), np.zeros((16, 16), np.float32)
            result = launch(kernel, 1, [a, b, c], check=True, order=order)
            assert {race.missing for race in result.races} == ({"order"} if left_out else set())
            if not left_out:
                other = b if layout == "col_major" else b.T
                np.testing.assert_array_equal(c, product(a, other))


@pytest.mark.parametrize("n", [64, 256])
@pytest.mark.parametrize("landing", ["early", "late", "random"])
def test_wgmma_is_exact_and_silent(n: int, landing: str) -> None:
    kernel = compile_kernel(
        WGMMA, threads=128, shared_bytes=128 * (64 + n), defines={**RIGHT, "N": n}, arch="sm_90a"
    )
    a, b = halves(64, 64, 5), halves(n, 64, 6)
    for order in ("round_robin", "one_last", "random"):
        c = np.zeros((64, n), np.float32)
        result = launch(kernel, 1, [a, b, c], landing=landing, order=order, check=True)
        assert result.ok and not result.races and not result.warnings
        np.testing.assert_array_equal(c, 2 * product(a, b) + 2)


@pytest.mark.parametrize(("left_out", "missing"), [("WAIT", "group"), ("FENCE", "fence")])
def test_accumulators_without_their_ordering_are_found(left_out: str, missing: str) -> None:
    kernel = compile_kernel(
        WGMMA,
        threads=128,
        shared_bytes=128 * 128,
        defines={**RIGHT, "N": 64, left_out: ""},
        arch="sm_90a",
    )
    a, b = halves(64, 64, 5), halves(64, 64, 6)
    for landing in ("early", "late"):
        c = np.zeros((64, 64), np.float32)
        result = launch(kernel, 1, [a, b, c], landing=landing, check=True)
        assert {race.missing for race in result.races} == {missing}
        assert {race.second.kind for race in result.races} == {"accumulator"}
        if left_out == "WAIT":  # nothing is visible before the wait
            assert np.isnan(c).all()


def test_a_wgmma_takes_time_from_the_tensor_cores() -> None:
    cycles = {}
    for n in (64, 256):
        kernel = compile_kernel(
            WGMMA, threads=128, shared_bytes=128 * (64 + n), defines={**RIGHT, "N": n},
            arch="sm_90a",
        )  # fmt: skip
        c = np.zeros((64, n), np.float32)
        result = launch(kernel, 1, [halves(64, 64, 5), halves(n, 64, 6), c], order="timed")
        assert result.ok
        waits = kernel.source.splitlines().index("    WAIT") + 1
        cycles[n] = sum(
            stall for site, stall in result.stalls.items()
            if waits in kernel.module.sites[site].cell_lines
        )  # fmt: skip
    # Eight instructions of n/2 cycles by four warps, less what issuing them hides.
    assert 3.0 < cycles[256] / cycles[64] < 6.0


def test_an_operand_outside_shared_memory_is_refused() -> None:
    kernel = compile_kernel(
        WGMMA.replace("wgmma_descriptor(b + k * 32)", "wgmma_descriptor(b + 200000)"),
        threads=128, shared_bytes=128 * 128, defines={**RIGHT, "N": 64}, arch="sm_90a",
    )  # fmt: skip
    c = np.zeros((64, 64), np.float32)
    result = launch(kernel, 1, [halves(64, 64, 5), halves(64, 64, 6), c])
    assert not result.ok and "descriptor" in result.errors[0].message


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_ring_of_tensor_copies_into_wgmma(stages: int) -> None:
    """Accumulators are live across the waits before their first wgmma; launches leave no trace."""
    source = (Path(__file__).parent / "kernels" / "tma_wgmma_ring.cu").read_text()
    kernel = compile_kernel(
        source, threads=128, shared_bytes=stages * 24576, defines={"STAGES": stages}, arch="sm_90a"
    )
    for k, landing in ((64, "late"), (320, "early"), (320, "late"), (1088, "random")):
        a, b = (
            np.random.default_rng(s).integers(-1, 2, (r, k)).astype(np.float16)
            for s, r in ((7, 128), (8, 256))
        )
        c = np.full((128, 256), np.nan, np.float16)
        maps = [tensor_map(a, box=(64, 64), swizzle=128), tensor_map(b, box=(128, 64), swizzle=128)]
        result = launch(kernel, (2, 2), [*maps, c, 128, 256, k], landing=landing, check=True)
        assert result.ok and not result.races
        np.testing.assert_array_equal(c, product(a, b))
