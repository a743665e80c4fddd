"""The virtual clock: latency, bandwidth, sharing, and what a pipeline of stages makes of them."""

from __future__ import annotations

from dataclasses import replace

import half_kernels
import numpy as np
import pytest

from course_lib.kernel import Kernel, compile_kernel
from course_lib.tensor_maps import tensor_map
from course_lib.virtual_gpu.launch import LaunchResult, launch
from course_lib.virtual_gpu.machine import H200, Machine, load_figures
from tools import micro_kernels

RING = """
#include <cuda_pipeline.h>
constexpr int TILE = 4096;
extern "C" __global__ void __launch_bounds__(256) ring(const unsigned* x, unsigned* out,
                                                       long long* stamps, int tiles) {
  __shared__ __align__(16) unsigned stage[STAGES][TILE];
  int i = threadIdx.x, w = i / 32, l = i % 32;
  auto load = [&](int t) {
    if (t < tiles)
      for (int k = 0; k < 4; k++)
        __pipeline_memcpy_async(&stage[t % STAGES][(k * 256 + i) * 4],
                                x + t * TILE + (k * 256 + i) * 4, 16);
    __pipeline_commit();
  };
  for (int t = 0; t < STAGES - 1; t++) load(t);
  for (int t = 0; t < tiles; t++) {
    long long begin = clock64();
    load(t + STAGES - 1);
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();
    long long ready = clock64();
    unsigned sum = 0;
    for (int r = 0; r < WORK; r++)
      for (int k = 0; k < 16; k++) sum = sum * 33 + (stage[t % STAGES][w * 512 + k * 32 + l] ^ r);
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    long long done = clock64();
    if (l == 0) {
      out[t * 8 + w] = sum;
      long long* s = stamps + (t * 8 + w) * 3;
      s[0] = begin; s[1] = ready; s[2] = done;
    }
    __syncthreads();
  }
}
"""
TILES = 16
WAIT_LINE = RING.splitlines().index("    __pipeline_wait_prior(STAGES - 1);") + 1


def ring(stages: int, work: int) -> Kernel:
    return compile_kernel(RING, defines={"STAGES": stages, "WORK": work}, threads=256)


def cycles_of(stages: int, work: int, **how: object) -> tuple[float, float, float, LaunchResult]:
    """(iteration, wait, compute) in the steady state."""
    x = np.arange(TILES * 4096, dtype=np.uint32)
    out, stamps = np.zeros((TILES, 8), np.uint32), np.zeros((TILES, 8, 3), np.int64)
    result = launch(ring(stages, work), 1, [x, out, stamps, TILES], order="timed", **how)  # type: ignore[arg-type]
    assert result.ok, result
    begin, ready, done = (stamps[3:-4, :, k].mean(1) for k in range(3))
    return (
        float(np.diff(begin).mean()), float((ready - begin).mean()), float((done - ready).mean()),
        result,
    )  # fmt: skip


QUIET = replace(H200, crowd_delay=0)
"""An SM whose neighbours ask HBM for nothing."""


def test_one_stage_takes_load_plus_compute_and_two_take_the_longer() -> None:
    one, load, compute, _ = cycles_of(1, 16, machine=QUIET)
    two, wait, _, _ = cycles_of(2, 16, machine=QUIET)
    assert compute > load > 900  # 976 cycles on the H200
    assert one == pytest.approx(load + compute, rel=0.05)
    # Each turn also passes two barriers, and hands out the copies of the next tile.
    assert two == pytest.approx(compute + 2 * H200.barrier_cycles(8), rel=0.12)
    assert wait < load / 4


def test_with_little_work_a_third_stage_still_helps() -> None:
    one, two, three = (cycles_of(stages, 1)[0] for stages in (1, 2, 3))
    # The H200's times of the same loop: S=2 0.74 and S=3 0.67 of S=1 (docs/virtual_clock.md).
    assert one > 1.15 * two and two > 1.05 * three
    # No ring is faster than the SM's share of the bandwidth.
    assert three > 0.8 * 4096 * 4 / H200.bytes_per_cycle


def test_a_load_takes_latency_and_transfer() -> None:
    _, load, _, _ = cycles_of(1, 1, machine=QUIET)
    # An SM that rests between its loads has saved up its share, and takes a tile at full speed.
    transfer = 4096 * 4 / H200.burst_bytes_per_cycle
    assert load == pytest.approx(H200.copy_latency + transfer, rel=0.1)
    slow = replace(QUIET, copy_latency=2000, burst_bytes_per_cycle=9.0)
    _, load, _, _ = cycles_of(1, 1, machine=slow)
    assert load == pytest.approx(2000 + 4096 * 4 / 9, rel=0.05)


def test_a_crowd_at_the_memory_delays_more_the_more_it_asks_for() -> None:
    iteration, load, _, _ = cycles_of(1, 1)
    _, alone, _, _ = cycles_of(1, 1, machine=QUIET)
    busy = 4096 * 4 / iteration / H200.bytes_per_cycle
    expected = H200.crowd_delay * busy / (1 - busy)
    assert 0.6 * expected < load - alone < 2 * expected  # a window holds whole tiles only
    _, seldom, _, _ = cycles_of(1, 48)
    _, seldom_alone, _, _ = cycles_of(1, 48, machine=QUIET)
    assert seldom - seldom_alone < 0.5 * (load - alone)


# What the H200 gave for the same kernel: cycles of the SM's shared-memory unit, of a scheduler, or
# of a chain of dependent instructions.
LANE = "lane * 4"
ISSUED = [
    # (figure, body, chains, warps, place of a lane, of how many warps the unit is shared)
    ("shared_lds32", "lds32", 4, 16, LANE, 16),
    ("shared_lds128", "lds128", 4, 16, "lane * 16", 16),
    *((f"shared_conflict_{n}", "lds32", 4, 16, f"lane * {4 * n}", 16) for n in (2, 4, 8, 16, 32)),
    ("latency_shared", "lds32", 1, 1, LANE, 1),
    ("dependent_shfl", "shfl", 1, 1, LANE, 1),
    ("issue_fma", "fma", 4, 16, LANE, 4),
    ("issue_iadd", "iadd", 4, 16, LANE, 4),
    ("issue_imad", "imad", 4, 16, LANE, 4),
    ("issue_xor_shl", "xor_shl", 4, 16, LANE, 4),
    ("issue_xor_mad", "xor_mad", 4, 16, LANE, 4),
    ("issue_ex2", "ex2", 4, 16, LANE, 4),
]


@pytest.mark.parametrize(
    "figure, body, chains, warps, place, sharers", ISSUED, ids=[i[0] for i in ISSUED]
)
def test_an_instruction_takes_what_it_takes_on_the_h200(
    figure: str, body: str, chains: int, warps: int, place: str, sharers: int
) -> None:
    kernel = compile_kernel(
        micro_kernels.ISSUE, threads=32 * warps,
        defines={"BODY": micro_kernels.BODIES[body], "CHAINS": chains, "PLACE": place},
    )  # fmt: skip
    # The whole launch: between two barriers a warp's own clock does not see the other warps' turns.
    few, many = (
        launch(kernel, 1, [np.zeros(1001, np.int64), steps], order="timed").cycles
        for steps in (16, 80)
    )
    measured = load_figures()["figures"][figure]["value"]
    assert (many - few) / (64 * 8 * chains * sharers) == pytest.approx(measured, rel=0.15)


def test_waiting_is_charged_to_the_lines_that_wait() -> None:
    kernel = ring(1, 1)
    _, load, _, result = cycles_of(1, 1)
    by_line: dict[int | None, float] = {}
    for site, waited in result.stalls.items():
        line = kernel.module.sites[site].cell_line
        by_line[line] = by_line.get(line, 0) + waited
    wait, barrier = by_line[WAIT_LINE], by_line[WAIT_LINE + 1]
    assert wait + barrier == pytest.approx(8 * TILES * load, rel=0.15)
    assert wait > 0.5 * sum(by_line.values())


def test_counters() -> None:
    *_, result = cycles_of(2, 1)
    assert result.counters["copy_bytes"] == TILES * 4096 * 4
    assert result.counters["shared_load_bytes"] == TILES * 4096 * 4
    assert result.counters["global_store_bytes"] == TILES * 8 * (4 + 24)
    assert result.counters["instructions"] > TILES * 8 * 16


def test_the_log_of_landings() -> None:
    *_, result = cycles_of(2, 1, trace=True, landing="late")
    log = result.landings
    assert len(log) == TILES * 8 * 4
    assert (log["landed"] - log["issued"] >= H200.global_latency).all()
    source = log["address"] - result.array_addresses["x"]
    assert sorted(set(source // (4096 * 4))) == list(range(TILES))
    tile = source // (4096 * 4)
    assert np.array_equal(log["shared_offset"] // (4096 * 4), tile % 2)


def test_landing_changes_data_and_never_time() -> None:
    results = {landing: cycles_of(2, 4, landing=landing)[0] for landing in ("early", "late")}
    assert results["early"] == results["late"]


def test_a_timed_run_repeats_exactly() -> None:
    assert cycles_of(2, 4)[3].cycles == cycles_of(2, 4)[3].cycles


def test_resident_blocks_hide_each_others_waits_and_share_the_bandwidth() -> None:
    kernel = ring(1, 8)
    x = np.arange(TILES * 4096, dtype=np.uint32)
    arguments = [x, np.zeros((TILES, 8), np.uint32), np.zeros((TILES, 8, 3), np.int64), TILES]
    machine = replace(H200, sms=1)
    times = {
        resident: launch(
            kernel, 4, arguments, order="timed", machine=machine, resident=resident
        ).cycles
        for resident in (1, 2)
    }
    assert times[2] < 0.85 * times[1]
    assert times[2] > 4 * TILES * 1000  # four blocks' arithmetic still goes through one SM


CHASE = """
extern "C" __global__ void chase(const int* next, long long* out, int n) {
  int at = 0;
  long long start = clock64();
  for (int k = 0; k < n; k++) at = next[at];
  out[0] = clock64() - start;
  out[1] = at;
}
"""


def chase(next_: np.ndarray, steps: int) -> float:
    out = np.zeros(2, np.int64)
    result = launch(compile_kernel(CHASE, threads=1), 1, [next_, out, steps], order="timed")
    assert result.ok, result
    return out[0] / steps


def test_a_pointer_chase_measures_each_level() -> None:
    far = (np.arange(1 << 16, dtype=np.int32) + 64) % (1 << 16)  # a new line each time
    assert chase(far, 1000) == pytest.approx(H200.global_latency, rel=0.1)
    near = np.zeros(16, np.int32)
    assert chase(near, 1000) < 2 * H200.l1_latency
    middle = (np.arange(1 << 16, dtype=np.int32) + 64) % (1 << 16)
    rounds = 3 * 1024  # three times through 256 KB of lines: too much for L1's tags
    mean = (H200.global_latency + 2 * H200.l2_latency) / 3
    assert chase(middle, rounds) == pytest.approx(mean, rel=0.35)


STREAM = """
extern "C" __global__ void stream(const float4* x, float* out, int n) {
  float sum = 0;
  #pragma unroll 8
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x) {
    float4 v = x[k];
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 12345) out[0] = sum;
}
"""


def test_plain_loads_queue_for_the_same_bandwidth() -> None:
    n = 1 << 18
    x = np.ones(4 * n // 132 * 132, np.float32)
    kernel = compile_kernel(STREAM, threads=256)
    count = len(x) // 4
    result = launch(kernel, 132 * 4, [x, np.zeros(1, np.float32), count], order="timed")
    per_cycle = len(x) * 4 / 132 / result.cycles
    assert 0.3 * H200.bytes_per_cycle < per_cycle < 1.02 * H200.bytes_per_cycle


SCHEDULERS = """
extern "C" __global__ void burn(unsigned* out, int n) {
  unsigned a = threadIdx.x;
  for (int k = 0; k < n; k++) a = a * 1664525u + 1013904223u;
  out[threadIdx.x] = a;
}
"""


def test_four_schedulers_issue_side_by_side_and_their_warps_take_turns() -> None:
    kernel = compile_kernel(SCHEDULERS)
    cycles = {
        warps: launch(
            kernel, 1, [np.zeros(1024, np.uint32), 2000], order="timed", threads=32 * warps
        ).cycles
        for warps in (1, 4, 8, 16)
    }
    assert cycles[4] == pytest.approx(cycles[1], rel=0.02)
    assert cycles[8] == pytest.approx(2 * cycles[1], rel=0.1)
    assert cycles[16] == pytest.approx(4 * cycles[1], rel=0.1)


def test_an_sm_takes_its_own_blocks_and_all_of_them() -> None:
    source = """extern "C" __global__ void who(int* out) {
  int sm; asm volatile("mov.u32 %0, %smid;" : "=r"(sm)); if (threadIdx.x == 0) out[blockIdx.x] = sm;
}"""
    out = np.full(10, -1, np.int32)
    kernel = compile_kernel(source, threads=32)
    assert launch(kernel, 10, [out], order="timed", machine=Machine(sms=4)).ok
    assert out.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_bulk_copies_land_at_their_cycle_whoever_else_runs() -> None:
    """Late landing once let one resident block run to its end while the others waited."""
    kernel = half_kernels.kernel("tma_wgmma_ring", 1)
    m, n, k = 128, 256, 640
    a, b = (np.ones((rows, k), np.float16) for rows in (m, n))
    maps = [tensor_map(a, (64, 64), swizzle=128), tensor_map(b, (128, 64), swizzle=128)]
    arguments = [*maps, np.zeros((m, n), np.float16), m, n, k]
    machine = replace(QUIET, sms=1)
    cycles = {
        (landing, resident): launch(
            kernel, (2, 2), arguments, order="timed", landing=landing, machine=machine,
            resident=resident,
        ).cycles
        for landing in ("early", "late") for resident in (1, 2, 4)
    }  # fmt: skip
    for resident in (1, 2, 4):
        late, early = cycles["late", resident], cycles["early", resident]
        assert late == pytest.approx(early, rel=0.03)
    assert cycles["late", 4] < 0.9 * cycles["late", 2] < 0.9 * 0.9 * cycles["late", 1]


COPY_TILES = """
extern "C" __global__ void __launch_bounds__(256) copy_tiles(const uint4* __restrict__ x, uint4* y,
                                                             int tiles) {
  __shared__ uint4 buffer[1024];
  for (int t = 0; t < tiles; ++t) {
    for (int k = threadIdx.x; k < 1024; k += 256) buffer[k] = x[t * 1024 + k];
    for (int k = threadIdx.x; k < 1024; k += 256) y[t * 1024 + k] = buffer[k];
    __syncthreads();
  }
}
"""


def test_a_warps_later_stores_do_not_delay_another_warps_earlier_loads() -> None:
    """A warp is simulated up to its next barrier before the next one begins, far back in time."""
    x, y = np.arange(TILES * 4096, dtype=np.uint32), np.zeros(TILES * 4096, np.uint32)
    kernel = compile_kernel(COPY_TILES, threads=256)
    result = launch(kernel, 1, [x, y, TILES], order="timed")
    assert result.ok and np.array_equal(x, y)
    # At worst each of a thread's four loads is awaited by its store before the next is issued.
    most = 4 * H200.global_latency + 2 * 4096 * 4 / H200.bytes_per_cycle + 500
    assert result.cycles < TILES * most
