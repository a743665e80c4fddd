"""Launches on the virtual GPU: results under every order and landing, arguments, collectives."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from course_lib.kernel import Kernel, compile_kernel
from course_lib.virtual_gpu import report
from course_lib.virtual_gpu.launch import LaunchError, launch
from course_lib.virtual_gpu.memory import ArgumentError
from course_lib.virtual_gpu.records import LANDINGS, ORDERS

TILE, WARPS, TILES, BLOCKS = 1024, 4, 6, 3
TWO_STAGES = """
#include <cuda_pipeline.h>
constexpr int TILE = 1024;
extern "C" __global__ void sums(const unsigned* x, unsigned* out, int tiles) {
  __shared__ __align__(16) unsigned stage[2][TILE];
  const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
  int i = threadIdx.x;
  auto load = [&](int t) {
    if (t < tiles)
      for (int part = 0; part < 2; part++)
        __pipeline_memcpy_async(&stage[t % 2][(part * 128 + i) * 4],
                                mine + t * TILE + (part * 128 + i) * 4, 16);
    __pipeline_commit();
  };
  load(0);
  load(1);
  for (int t = 0; t < tiles; t++) {
    READY
    __syncthreads();
    unsigned sum = 0;
    for (int part = 0; part < 8; part++) sum += stage[t % 2][part * 128 + i] * (part + 1);
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (i % 32 == 0) out[(blockIdx.x * tiles + t) * 4 + i / 32] = sum;
    REUSE
    load(t + 2);
  }
}
"""
WAIT, BARRIER = "__pipeline_wait_prior(1);", "__syncthreads();"


def two_stages(ready: str = WAIT, reuse: str = BARRIER) -> Kernel:
    source = TWO_STAGES.replace("READY", ready).replace("REUSE", reuse)
    return compile_kernel(source, threads=128)


def tiles_and_sums() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(7).integers(0, 2**32, BLOCKS * TILES * TILE, dtype=np.uint32)
    parts = x.reshape(-1, 8, WARPS, 32)
    factor = np.arange(1, 9, dtype=np.uint32)[None, :, None, None]
    return x, (parts * factor).sum((1, 3), dtype=np.uint32)


def wrong(kernel: Kernel, **how: object) -> int:
    """Wrong sums of a launch that must end without an error."""
    x, expected = tiles_and_sums()
    out = np.zeros_like(expected)
    result = launch(kernel, BLOCKS, [x, out, TILES], **how)  # type: ignore[arg-type]
    assert result.ok, result
    return int((out != expected).sum())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("landing", LANDINGS)
def test_a_right_kernel_is_right_under_every_policy(order: str, landing: str) -> None:
    kernel = two_stages()
    for victim in (0, 3):
        assert wrong(kernel, order=order, landing=landing, victim=victim, seed=victim) == 0


def test_a_missing_reuse_barrier_shows_when_one_warp_runs_ahead() -> None:
    kernel = two_stages(reuse="")
    assert wrong(kernel, order="round_robin", landing="late") == 0
    assert wrong(kernel, order="one_first", landing="early") > 0


def test_a_missing_wait_is_luck_under_early_landing_and_wrong_under_late() -> None:
    kernel = two_stages(ready="")
    assert wrong(kernel, landing="early") == 0
    assert wrong(kernel, landing="late") > 0


def test_a_read_before_its_copy_landed_names_the_copy() -> None:
    x, expected = tiles_and_sums()
    kernel = two_stages(ready="")
    result = launch(kernel, BLOCKS, [x, np.zeros_like(expected), TILES], landing="late")
    (note,) = result.warnings
    assert isinstance(note, report.UninitialisedRead)
    lines = kernel.source.splitlines()
    assert "stage[t % 2][part" in lines[(note.line or 0) - 1]
    copy_line = note.details["copy_line"]
    assert isinstance(copy_line, int) and "memcpy_async" in "".join(lines[copy_line - 1 :][:2])
    assert "has not been waited for" in note.message


def test_seeded_choices_do_not_depend_on_the_number_of_workers() -> None:
    kernel = two_stages(reuse="")
    x, expected = tiles_and_sums()
    outcomes = []
    for workers in (1, 2):
        out = np.zeros_like(expected)
        launch(
            kernel, BLOCKS, [x, out, TILES], order="random", landing="random", seed=5,
            workers=workers,
        )  # fmt: skip
        outcomes.append(out)
    assert np.array_equal(*outcomes)


def test_blocks_runs_only_these() -> None:
    x, expected = tiles_and_sums()
    out = np.zeros_like(expected)
    assert launch(two_stages(), BLOCKS, [x, out, TILES], blocks=[1]).ok
    ran = out.reshape(BLOCKS, -1).any(1)
    assert ran.tolist() == [False, True, False]


def test_a_repeated_launch_is_quick() -> None:
    """The reach is 3 ms; the bound leaves room for a busy machine."""
    kernel = two_stages()
    wrong(kernel)
    times = []
    for _ in range(15):
        start = time.perf_counter()
        wrong(kernel)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.010


# --- arguments and shapes -----------------------------------------------------------------------

MIXED = """
struct Pair { short a; double b; };
extern "C" __global__ void mixed(float* out, float f, double d, short s, unsigned char c,
                                 long long q, Pair p, const int* nothing) {
  out[0] = f; out[1] = d; out[2] = s; out[3] = c; out[4] = q >> 40; out[5] = p.a; out[6] = p.b;
  out[7] = nothing == nullptr;
}
"""


def test_numbers_and_structures_take_the_parameters_types() -> None:
    kernel = compile_kernel(MIXED, threads=1)
    out = np.zeros(8, np.float32)
    pair = np.zeros(1, np.dtype([("a", "<i2"), ("b", "<f8")], align=True))
    pair[0] = (-3, 2.5)
    result = launch(kernel, 1, [out, 1.5, 3, np.int16(-7), 200, 5 << 40, pair[0].tobytes(), None])
    assert result.ok, result
    assert out.tolist() == [1.5, 3, -7, 200, 5, -3, 2.5, 1]


FILL = """
extern "C" __global__ void fill(const float4* from, float* to, int n) {
  int i = threadIdx.x;
  if (i < n / 4) { float4 v = from[i]; to[4 * i] = v.x + v.y + v.z + v.w; }
}
"""


def test_a_misaligned_view_faults_as_on_a_gpu_and_an_aligned_one_does_not() -> None:
    kernel = compile_kernel(FILL, threads=8)
    whole, to = np.ones(68, np.float32), np.zeros(32, np.float32)
    assert launch(kernel, 1, [whole[4:36], to, 32]).ok
    assert to[0] == 4
    result = launch(kernel, 1, [whole[1:33], to, 32])
    assert isinstance(result.errors[0], report.MemoryFault)
    assert result.errors[0].details["problem"] == "misaligned"


def test_a_view_is_written_in_place_and_nothing_beside_it() -> None:
    kernel = compile_kernel(FILL, threads=8)
    whole = np.zeros(35, np.float32)
    assert launch(kernel, 1, [np.ones(32, np.float32), whole[1:33], 32]).ok
    assert whole[1] == 4 and whole[0] == 0 and not whole[33:].any()


def test_a_read_only_array_keeps_its_content() -> None:
    kernel = compile_kernel(FILL, threads=8)
    constant = np.zeros(32, np.float32)
    constant.flags.writeable = False
    assert launch(kernel, 1, [np.ones(32, np.float32), constant, 32]).ok
    assert not constant.any()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "to"], "takes 3 parameters"),
        (["wide", "to", 32], "8 bytes each"),
        (["x", "to", 2**40], "32 bits"),
        (["x", "to", 1.5], "whole number"),
        (["x", "to", "x"], "is a value"),
        (["x", "strided", 32], "not contiguous"),
        ([[1.0], "to", 32], "got a list"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(arguments: list, words: str) -> None:
    kernel = compile_kernel(FILL.replace("float4*", "float*").replace("float4 v = from[i];", "").
                            replace("v.x + v.y + v.z + v.w", "from[i]"), threads=8)  # fmt: skip
    arrays = {
        "x": np.ones(32, np.float32), "to": np.zeros(32, np.float32),
        "wide": np.ones(32), "strided": np.zeros(64, np.float32)[::2],
    }  # fmt: skip
    given = [arrays[a] if isinstance(a, str) else a for a in arguments]
    with pytest.raises(ArgumentError, match=words):
        launch(kernel, 1, given)


def test_shapes_beyond_the_limits_are_refused() -> None:
    kernel = compile_kernel(FILL)
    arguments = [np.ones(32, np.float32), np.zeros(32, np.float32), 32]
    with pytest.raises(LaunchError, match="at most 1024 threads"):
        launch(kernel, 1, arguments, threads=1025)
    with pytest.raises(LaunchError, match="no number of threads"):
        launch(kernel, 1, arguments)
    with pytest.raises(LaunchError, match="at least 1"):
        launch(kernel, 0, arguments, threads=32)
    with pytest.raises(LaunchError, match="order="):
        launch(kernel, 1, arguments, threads=32, order="timd")
    with pytest.raises(LaunchError, match="shared memory"):
        launch(kernel.shaped(threads=32, shared_bytes=300_000), 1, arguments)


INDICES = """
extern "C" __global__ void indices(int* out) {
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      blockIdx.z * 100000 + blockIdx.y * 10000 + blockIdx.x * 1000 +
      threadIdx.z * 100 + threadIdx.y * 10 + threadIdx.x;
}
"""


def test_three_dimensions() -> None:
    grid, block = (3, 2, 2), (4, 3, 2)
    out = np.zeros((2, 2, 3, 2, 3, 4), np.int32)
    assert launch(compile_kernel(INDICES), grid, [out], threads=block).ok
    index = np.indices(out.shape)
    factors = np.array([100000, 10000, 1000, 100, 10, 1]).reshape(-1, *[1] * 6)
    assert np.array_equal(out, (index * factors).sum(0))


# --- what threads do together ---------------------------------------------------------------------

TOGETHER = """
extern "C" __global__ void together(const unsigned* x, unsigned* out) {
  int i = threadIdx.x, lane = i % 32;
  unsigned v = x[i], *o = out + i;
  o[0] = __shfl_sync(~0u, v, (lane * 7) % 32);
  o[64] = __shfl_up_sync(~0u, v, 3);
  o[128] = __shfl_down_sync(~0u, v, 5, 16);
  o[192] = __shfl_xor_sync(~0u, v, 9);
  o[256] = __ballot_sync(~0u, v & 1);
  o[320] = __any_sync(~0u, v == x[3]) * 2 + __all_sync(~0u, v > 0);
  o[384] = __match_any_sync(~0u, v % 3);
  o[448] = __reduce_add_sync(~0u, v);
  o[512] = __reduce_max_sync(~0u, (int)v);
  if (lane < 20) o[576] = __ballot_sync(0xfffff, lane & 1) + __popc(__activemask());
  o[640] = __syncthreads_count(v & 1);
  o[704] = __syncthreads_and(v > 0) * 2 + __syncthreads_or(v == x[40]);
}
"""


def test_warp_wide_operations_and_reducing_barriers() -> None:
    x = np.random.default_rng(3).integers(1, 2**32, 64, dtype=np.uint32)
    out = np.zeros((12, 64), np.uint32)
    result = launch(compile_kernel(TOGETHER, threads=64), 1, [x, out])
    assert result.ok, result
    lane, warps = np.arange(32), x.reshape(2, 32)
    bits = np.uint64(1) << np.arange(32, dtype=np.uint64)

    def mask(true: np.ndarray) -> np.ndarray:
        return np.repeat((true * bits).sum(-1), 32)

    up = np.where(lane >= 3, lane - 3, lane)
    down = np.where(lane % 16 + 5 < 16, lane + 5, lane)
    same = (warps[:, :, None] % 3 == warps[:, None, :] % 3) * bits
    some = np.repeat((warps == x[3]).any(1), 32)
    expected = [
        warps[:, lane * 7 % 32], warps[:, up], warps[:, down], warps[:, lane ^ 9],
        mask(warps & 1), some * 2 + 1, same.sum(-1),
        np.repeat(warps.sum(1, dtype=np.uint32), 32),
        np.repeat(warps.astype(np.int32).max(1).astype(np.uint32), 32),
        np.where(np.arange(64) % 32 < 20, 0xAAAAA + 20, 0),
        np.full(64, (x & 1).sum()), np.full(64, 3),
    ]  # fmt: skip
    for row, (got, want) in enumerate(zip(out, expected, strict=True)):
        assert np.array_equal(got, np.asarray(want, np.uint64).ravel().astype(np.uint32)), row


NAMED = """
extern "C" __global__ void named(int* out) {
  __shared__ int box[32];
  if (threadIdx.x < 32) {
    for (int k = 0; k < 4; k++) {
      box[threadIdx.x] = k * 100 + threadIdx.x;
      asm volatile("bar.arrive 1, 64;" ::: "memory");
      asm volatile("bar.sync 2, 64;" ::: "memory");
    }
  } else {
    for (int k = 0; k < 4; k++) {
      asm volatile("bar.sync 1, 64;" ::: "memory");
      out[k * 32 + threadIdx.x - 32] = box[threadIdx.x - 32];
      asm volatile("bar.arrive 2, 64;" ::: "memory");
    }
  }
}
"""


@pytest.mark.parametrize("order", ["round_robin", "one_last", "one_first", "random", "timed"])
def test_named_barriers_hand_over_between_warps(order: str) -> None:
    out = np.zeros((4, 32), np.int32)
    assert launch(compile_kernel(NAMED, threads=64), 1, [out], order=order, victim=1).ok
    assert np.array_equal(out, np.arange(4)[:, None] * 100 + np.arange(32))


EARLY_EXIT = """
extern "C" __global__ void some(int* out, int n) {
  __shared__ int sum;
  if (threadIdx.x >= n) return;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, 1);
  __syncthreads();
  out[threadIdx.x] = sum;
}
"""


@pytest.mark.parametrize("n", [1, 31, 40, 64, 96])
def test_threads_that_returned_do_not_hold_up_a_barrier(n: int) -> None:
    out = np.zeros(96, np.int32)
    result = launch(compile_kernel(EARLY_EXIT, threads=96), 1, [out, n])
    assert result.ok, result
    assert (out[:n] == n).all() and not out[n:].any()


COPIES = """
#include <cuda_pipeline.h>
extern "C" __global__ void copies(const int* x, int* out, int groups) {
  __shared__ __align__(16) int box[32 * 128];
  int lane = threadIdx.x;
  for (int g = 0; g < groups; g++) {
    for (int k = 0; k < 2; k++)
      __pipeline_memcpy_async(&box[(g * 2 + k) % 128 * 32 + lane], x + (g * 2 + k) * 32 + lane, 4);
    __pipeline_commit();
  }
  __pipeline_wait_prior(groups - 10);
  int first = 0;
  for (int k = 0; k < 20; k++) first += box[k * 32 + lane];
  out[lane] = first;
  __pipeline_wait_prior(0);
  int all = 0;
  for (int k = 0; k < 128; k++) all += box[k * 32 + lane];
  out[32 + lane] = all;
  __syncwarp();
  __pipeline_memcpy_async(&box[lane * 4], x, 16, 4 * (lane % 4));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  for (int k = 0; k < 4; k++) out[64 + lane * 4 + k] = box[lane * 4 + k];
}
"""


@pytest.mark.parametrize("landing", LANDINGS)
def test_many_groups_in_flight_and_zero_fill(landing: str) -> None:
    x = np.arange(1, 64 * 64 + 1, dtype=np.int32)
    out = np.zeros(192, np.int32)
    result = launch(compile_kernel(COPIES, threads=32), 1, [x, out, 64], landing=landing)
    assert result.ok and not result.warnings, result
    rows = x.reshape(128, 32)
    assert np.array_equal(out[:32], rows[:20].sum(0))
    assert np.array_equal(out[32:64], rows.sum(0))
    filled = [[1, 2, 3, 4][: 4 - lane % 4] + [0] * (lane % 4) for lane in range(32)]
    assert out[64:].reshape(32, 4).tolist() == filled


def test_more_copies_than_there_is_room_for_land_early_and_say_so() -> None:
    source = COPIES.replace("__pipeline_wait_prior(groups - 10);", "__syncwarp();")
    x = np.arange(1, 600 * 64 + 1, dtype=np.int32)
    out = np.zeros(192, np.int32)
    result = launch(compile_kernel(source, threads=32), 1, [x, out, 600], landing="late")
    assert result.ok
    assert any(isinstance(note, report.CopiesLandedEarly) for note in result.warnings)
    assert np.array_equal(out[32:64], x.reshape(-1, 32)[-128:].sum(0))


def test_printf_prints_block_by_block() -> None:
    source = r"""
extern "C" __global__ void speak(float* x) {
  if (threadIdx.x % 32 == 1)
    printf("%d/%2u %5.2f|%s|%c|%lld|%x|%%\n", blockIdx.x, threadIdx.x, x[0] + 1.5f, "abc", 'q',
           -123456789012LL, 255);
}
"""
    result = launch(compile_kernel(source, threads=64), 3, [np.zeros(1, np.float32)])
    lines = result.printed.splitlines()
    assert lines[0] == "0/ 1  1.50|abc|q|-123456789012|ff|%"
    assert [line[:4] for line in lines] == ["0/ 1", "0/33", "1/ 1", "1/33", "2/ 1", "2/33"]


def test_a_run_can_be_interrupted() -> None:
    kernel = compile_kernel(
        'extern "C" __global__ void spin(volatile int* x) { while (x[0] == 0) ; }', threads=256
    )

    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        launch(kernel, 64, [np.zeros(1, np.int32)], step_budget=10**12, progress=interrupt)
    assert time.perf_counter() - start < 5
    assert wrong(two_stages()) == 0


FRESH = """
import sys, numpy as np
from course_lib.kernel import compile_kernel
from course_lib.virtual_gpu.launch import launch
x = np.zeros(32, np.float32)
source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1; }'
kernel = compile_kernel(source, threads=32)
assert launch(kernel, 1, [x]).ok and x.all()
print([name for name in ("numba", "cupy", "matplotlib") if name in sys.modules])
"""


def test_a_launch_in_a_new_process_needs_no_numba() -> None:
    launch_here = wrong(two_stages())  # compiles the runtime where nobody has yet
    assert launch_here == 0
    done = subprocess.run(
        [sys.executable, "-c", FRESH], capture_output=True, text=True, timeout=120, check=True
    )
    assert "numba" not in done.stdout


# --- kernels and arguments that were once refused or lost -------------------------------------


def test_half_maths_warp_size_and_half_shuffles() -> None:
    source = """#include <cuda_fp16.h>
    extern "C" __global__ void f(const half* x, half* y) {
      half h = x[threadIdx.x];
      half other = __shfl_xor_sync(0xffffffffu, h, 1);
      y[threadIdx.x] = __hadd(hsqrt(h), __hadd(other, __int2half_rn(threadIdx.x % warpSize)));
    }"""
    x = np.linspace(1, 4, 64, dtype=np.float16)
    y = np.zeros(64, np.float16)
    assert launch(compile_kernel(source, threads=64), 1, [x, y]).ok
    swapped = x.reshape(-1, 2)[:, ::-1].reshape(-1)
    exact = np.sqrt(x.astype(float)) + swapped.astype(float) + np.arange(64) % 32
    assert np.allclose(y.astype(float), exact, rtol=2e-3)


def test_half_by_value() -> None:
    source = """#include <cuda_fp16.h>
    extern "C" __global__ void f(half h, float* y) { y[threadIdx.x] = __half2float(h); }"""
    y = np.zeros(32, np.float32)
    assert launch(compile_kernel(source, threads=32), 1, [np.float16(2.5), y]).ok
    assert (y == 2.5).all()


def test_many_barriers_are_no_endless_loop() -> None:
    source = """extern "C" __global__ void f(int* y) {
      for (int i = 0; i < 20000; i++) __syncthreads();
      y[threadIdx.x] = 1;
    }"""
    y = np.zeros(1024, np.int32)
    result = launch(compile_kernel(source, threads=1024), 1, [y])
    assert result.ok and y.all(), result


def test_a_loop_whose_turns_are_dear_is_stopped_by_the_clock(monkeypatch) -> None:
    monkeypatch.setattr("course_lib.virtual_gpu.launch.JOB_SECONDS", 0.3)
    source = 'extern "C" __global__ void f(int n) {\n  for (;;) printf("hello %d\\n", n);\n}'
    result = launch(compile_kernel(source, threads=64), 1, [1])
    assert isinstance(result.errors[0], report.StepBudget) and result.seconds < 15
    source = 'extern "C" __global__ void f(int* y) { y[blockIdx.x * 32 + threadIdx.x] = 1; }'
    y = np.zeros(64, np.int32)
    assert launch(compile_kernel(source, threads=32), 2, [y]).ok and y.all()


def test_a_read_only_view_does_not_swallow_writes_to_the_same_array() -> None:
    source = """extern "C" __global__ void f(const int* x, int* y) {
      y[threadIdx.x] = x[threadIdx.x] + 1;
    }"""
    array = np.arange(32, dtype=np.int32)
    view = array.view()
    view.flags.writeable = False
    assert launch(compile_kernel(source, threads=32), 1, [view, array]).ok
    assert np.array_equal(array, np.arange(1, 33))


@pytest.mark.parametrize(
    ("grid", "argument", "words"),
    [
        (1, float("nan"), "whole number"),
        (1, float("inf"), "whole number"),
        (1.5, 1, "whole numbers"),
        ("12", 1, "whole numbers"),
        (2**31 - 1, 1, "2,147,483,647 blocks"),
        ((2**31 - 1, 65535, 65535), 1, "blocks"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_in_words(grid, argument, words: str) -> None:
    kernel = compile_kernel('extern "C" __global__ void f(int n) {}', threads=32)
    with pytest.raises((ArgumentError, LaunchError), match=words):
        launch(kernel, grid, [argument])


def test_floats_too_large_integers_for_floats_and_swapped_bytes_are_refused() -> None:
    kernel = compile_kernel('extern "C" __global__ void f(float a, float* y) {}', threads=32)
    with pytest.raises(ArgumentError, match="too large"):
        launch(kernel, 1, [1e40, np.zeros(32, np.float32)])
    with pytest.raises(ArgumentError, match="holds int32"):
        launch(kernel, 1, [1.0, np.zeros(32, np.int32)])
    with pytest.raises(ArgumentError, match="swapped"):
        launch(kernel, 1, [1.0, np.zeros(32, ">f4")])


def test_printf_takes_its_precision_from_the_arguments() -> None:
    source = """extern "C" __global__ void f() {
      if (threadIdx.x == 0) printf("%.*f %d %.f\\n", 2, 3.14159, 7, 2.6);
    }"""
    assert launch(compile_kernel(source, threads=32), 1, []).printed == "3.14 7 3\n"
