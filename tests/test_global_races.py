"""Races in global memory within one launch: which pairs of accesses are ordered, and which are not.

Each kernel is a few lines; the edit that makes it wrong (or right) stands beside it, and what must
be found is fixed from the manual's rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import course_lib
from course_lib.kernel import compile_kernel
from course_lib.virtual_gpu import shadow
from course_lib.virtual_gpu.global_races import GlobalRace
from course_lib.virtual_gpu.launch import LaunchError, LaunchResult, launch

PLAIN = """
extern "C" __global__ void k(const float* in, float* out, unsigned* word) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
%s
}
"""

LAST_BLOCK = """
  __shared__ bool last;
  out[i] = in[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    %s
    last = atomicAdd(word, 1u) == gridDim.x - 1;
    %s
  }
  __syncthreads();
  if (last) {
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += out[b * blockDim.x + threadIdx.x];
    out[gridDim.x * blockDim.x + threadIdx.x] = sum;
  }"""

EACH_FENCES = """
  __shared__ bool last;
  out[i] = in[i];
  %s
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(word, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last) {
    %s
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += out[b * blockDim.x + threadIdx.x];
    out[gridDim.x * blockDim.x + threadIdx.x] = sum;
  }"""

ROUNDS = """
  // All blocks meet three times at a counter, and read each other's element after each.
  int next = blockIdx.x + 1 == gridDim.x ? 0 : blockIdx.x + 1;
  for (unsigned round = 0; round < 3; ++round) {
    out[round * 256 + i] = in[i] + round;
    %s
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(word, 1u);
      while (atomicAdd(word, 0u) < (round + 1) * gridDim.x) {}
    }
    __syncthreads();
    __threadfence();
    if (round > 0) out[768 + i] = out[round * 256 + next * blockDim.x + threadIdx.x];
  }"""

REDUCTION = """
  // The counter `word` was released, the flag beside it was not.
  volatile unsigned* go = word + 1;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    out[0] = in[0];
    asm volatile("st.release.gpu.u32 [%%0], 1;" :: "l"(word) : "memory");
    *go = 1;
  }
  if (blockIdx.x == 1 && threadIdx.x == 0) {
    while (*go == 0) {}
    %s
    __threadfence();
    out[1] = out[0];
  }"""

LAST_BLOCK_OF_THE_GUIDE = """
  // One thread writes its block's result and counts; the results are volatile.
  __shared__ bool last;
  volatile float* result = out;
  if (threadIdx.x == 0) {
    result[blockIdx.x] = in[i];
    __threadfence();
    last = atomicInc(word, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += result[b];
    result[64] = sum;
  }"""

HAND_ON = """
  volatile unsigned* flag = word;
  if (blockIdx.x == 0) {
    out[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) { %s *flag = 1; }
  } else if (blockIdx.x == 1) {
    if (threadIdx.x == 0) { while (*flag == 0) {} %s }
    __syncthreads();
    out[i] = out[threadIdx.x];
  }"""

RELAY = """
  // Block 0 hands on to block 1, that one to block 2, which reads what block 0 wrote.
  unsigned mine = blockIdx.x;
  if (threadIdx.x == 0) {
    unsigned seen;
    if (mine > 0) {
      do { asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(word + mine - 1)
                        : "memory"); } while (seen == 0);
    }
    if (mine == 0) out[0] = in[0];
    if (mine == 2) out[1] = out[0];
    asm volatile("st.release.SCOPE.u32 [%0], 1;" :: "l"(word + mine) : "memory");
  }"""

TWO_ROUNDS = """
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    #pragma unroll 1
    for (int k = 0; k < 2; ++k) {
      out[0] = in[k];
      if (%s) asm volatile("st.release.gpu.u32 [%%0], 1;" :: "l"(word) : "memory");
    }
  }
  if (blockIdx.x == 1 && threadIdx.x == 0) {
    unsigned seen;
    do { asm volatile("ld.acquire.gpu.u32 %%0, [%%1];" : "=r"(seen) : "l"(word) : "memory"); }
    while (seen == 0);
    out[1] = out[0];
  }"""

READERS = """
  if (blockIdx.x == 0) {
    out[16 + threadIdx.x] = out[0];
    %s
    if (threadIdx.x == 63) { __threadfence(); atomicExch(word, 1u); }
  }
  if (blockIdx.x == 1 && threadIdx.x == 0) {
    while (atomicAdd(word, 0u) == 0) {}
    __threadfence();
    out[0] = 1;
  }"""

THERE_AND_BACK = """
  // Thread 0 of block 0 writes, block 1 answers, thread 40 of block 0 reads.
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    out[0] = in[0];
    __threadfence(); atomicExch(word, 1u);
  }
  if (blockIdx.x == 1 && threadIdx.x == 0) {
    while (atomicAdd(word, 0u) == 0) {}
    __threadfence(); atomicExch(word + 1, 1u);
  }
  if (blockIdx.x == 0 && threadIdx.x == 40) {
    while (atomicAdd(word + 1, 0u) == 0) {}
    %s
    out[1] = out[0];
  }"""

COPY = """
  __shared__ alignas(16) float tile[64];
  out[threadIdx.x ^ 1] = in[i];
  %s
  unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
  asm volatile("cp.async.ca.shared.global [%%0], [%%1], 4;" :: "r"(to), "l"(out + threadIdx.x));
  asm volatile("cp.async.commit_group;");
  %s
  out[threadIdx.x] = 0;"""


@dataclass(frozen=True)
class Case:
    """A kernel's body and what is missing in it (none: it is right)."""

    body: str
    missing: tuple[str, ...] = ()
    blocks: int = 4


CASES = {
    "own_element": Case("out[i] = in[i];"),
    "same_element": Case("out[threadIdx.x] = in[i];", ("blocks",)),
    "second_word_of_a_wide_read": Case(
        "if (i == 1) out[1] = in[1]; if (i == 64) *(float4*)(out + 512) = *(float4*)out;",
        ("blocks",),
        blocks=2,
    ),
    "same_element_one_block": Case("out[threadIdx.x] = in[i];", blocks=1),
    "two_threads_same_element": Case("out[i / 2] = in[i];", ("order",)),
    "neighbours_barrier": Case("out[i] = in[i]; __syncthreads(); out[i + 256] = out[i ^ 1];"),
    "neighbours_no_barrier": Case("out[i] = in[i]; out[i + 256] = out[i ^ 1];", ("order",)),
    "other_blocks_output": Case(
        "out[i] = in[i]; __syncthreads(); out[i + 256] = out[(i + 64) % 256];", ("blocks",)
    ),
    "fence_alone": Case(
        "out[i] = in[i]; __threadfence(); out[i + 256] = out[(i + 64) % 256];", ("blocks",)
    ),
    "atomics_only": Case("atomicAdd(out + threadIdx.x, in[i]);"),
    "atomics_of_the_block": Case("atomicAdd_block(out + threadIdx.x, in[i]);", ("blocks",)),
    "plain_beside_atomics": Case(
        "atomicAdd(out + threadIdx.x, in[i]); if (i == 0) out[0] = 0;", ("blocks",)
    ),
    "last_block": Case(LAST_BLOCK % ("__threadfence();", "__threadfence();")),
    "last_block_of_the_guide": Case(LAST_BLOCK_OF_THE_GUIDE),
    "last_block_no_fence_before": Case(LAST_BLOCK % ("", "__threadfence();"), ("blocks",)),
    "last_block_no_fence_after": Case(LAST_BLOCK % ("__threadfence();", ""), ("blocks",)),
    "last_block_fence_of_the_block": Case(
        LAST_BLOCK % ("__threadfence_block();", "__threadfence();"), ("blocks",)
    ),
    "last_block_fence_of_the_system": Case(
        LAST_BLOCK % ("__threadfence_system();", "__threadfence();")
    ),
    # Each thread fences for itself; thread 0 alone counts (docs/memory_model.md, assumption 5).
    "each_thread_fences": Case(EACH_FENCES % ("__threadfence();", "__threadfence();")),
    "each_thread_fences_reader_before_barrier": Case(
        LAST_BLOCK.replace("  __syncthreads();", "  __threadfence(); __syncthreads();", 1)
        % ("", "__threadfence();")
    ),
    "each_thread_fences_twice": Case(
        EACH_FENCES % ("__threadfence(); out[i + 512] = 1; __threadfence();", "__threadfence();")
    ),
    "each_thread_fences_no_fence_before": Case(EACH_FENCES % ("", "__threadfence();"), ("blocks",)),
    "each_thread_fences_no_fence_after": Case(EACH_FENCES % ("__threadfence();", ""), ("blocks",)),
    "each_thread_fences_too_early": Case(
        EACH_FENCES.replace("  out[i] = in[i];", "  __threadfence(); out[i] = in[i];")
        % ("", "__threadfence();"),
        ("blocks",),
    ),
    "each_thread_fences_in_its_block": Case(
        EACH_FENCES % ("__threadfence_block();", "__threadfence();"), ("blocks",)
    ),
    "thread_0_fences_before_the_barrier": Case(
        EACH_FENCES % ("if (threadIdx.x == 0) __threadfence();", "__threadfence();"), ("blocks",)
    ),
    "thread_0_fences_after_the_barrier_only_for_itself": Case(
        EACH_FENCES % ("__threadfence();", "if (threadIdx.x == 0) __threadfence();"), ("blocks",)
    ),
    "others_fence_no_barrier_before_the_count": Case(
        EACH_FENCES.replace("  __syncthreads();\n", "", 1)
        % ("__threadfence();", "__threadfence();"),
        ("blocks",),
    ),
    "each_thread_fences_in_rounds": Case(ROUNDS % "__threadfence();"),
    "rounds_without_a_fence": Case(ROUNDS % "", ("blocks",)),
    "atomic_acquires": Case(REDUCTION % "if (atomicAdd(word, 1u) == 0) return;", blocks=2),
    "reduction_acquires_nothing": Case(
        REDUCTION % 'asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" :: "l"(word));',
        ("blocks",),
        blocks=2,
    ),
    "flag": Case(HAND_ON % ("__threadfence();", "__threadfence();")),
    "flag_no_fence": Case(HAND_ON % ("", "__threadfence();"), ("blocks",)),
    "flag_reader_no_fence": Case(HAND_ON % ("__threadfence();", ""), ("blocks",)),
    "relay": Case(RELAY.replace("SCOPE", "gpu")),
    "relay_of_the_block": Case(RELAY.replace("SCOPE", "cta"), ("blocks",)),
    "write_after_the_release": Case(
        RELAY.replace("    if (mine == 0) out[0] = in[0];\n", "")
        .replace("SCOPE", "gpu")
        .removesuffix("  }")
        + "    if (mine == 0) out[0] = in[0];\n  }",
        ("blocks",),
    ),
    "one_of_two_writes_of_a_line_released": Case(TWO_ROUNDS % "k == 0", ("blocks",), blocks=2),
    "both_writes_of_a_line_released": Case(TWO_ROUNDS % "k == 1", blocks=2),
    "one_of_many_readers_signals": Case(READERS % "", ("blocks",), blocks=2),
    "all_readers_meet_then_one_signals": Case(READERS % "__syncthreads();", blocks=2),
    "there_and_back": Case(THERE_AND_BACK % "__threadfence();"),
    "there_and_back_no_fence": Case(THERE_AND_BACK % "", ("order",)),
    "halo_in_place": Case("out[i] = out[i] + out[i + 1];", ("blocks", "order")),
    "halo_in_place_barrier": Case(
        "float next = out[i + 1]; __syncthreads(); out[i] = next;", ("blocks",)
    ),
    "halo_to_another": Case("out[i + 512] = out[i] + out[i + 1];"),
    "copy_of_own_block": Case(
        COPY % ("__syncthreads();", 'asm volatile("cp.async.wait_group 0;" ::: "memory");'),
        blocks=1,
    ),
    "copy_before_barrier": Case(
        COPY % ("", 'asm volatile("cp.async.wait_group 0;" ::: "memory");'), ("order",), blocks=1
    ),
    "copy_source_overwritten": Case(COPY % ("__syncthreads();", ""), ("wait",), blocks=1),
}


def run(source: str, blocks: int, threads: int = 64, **options: object) -> LaunchResult:
    kernel = compile_kernel(source, threads=threads)
    arrays = [np.ones(256, np.float32), np.zeros(1024, np.float32), np.zeros(16, np.uint32)]
    result = launch(kernel, blocks, arrays, check_global=True, **options)  # type: ignore[arg-type]
    assert result.ok, result
    return result


def missing(result: LaunchResult) -> set[str]:
    return {race.missing for race in result.global_races}


@pytest.mark.parametrize("order", ("round_robin", "random"))
@pytest.mark.parametrize("name", CASES)
def test_pairs(name: str, order: str) -> None:
    case = CASES[name]
    assert missing(run(PLAIN % case.body, case.blocks, order=order)) == set(case.missing)


def test_a_race_names_element_blocks_threads_and_lines() -> None:
    body = "\n  out[0] = in[i];  // everybody\n"
    (race,) = [
        race for race in run(PLAIN % body, 2, threads=1).global_races if race.missing == "blocks"
    ]
    assert isinstance(race, GlobalRace)
    assert (race.where, race.bytes, race.first.kind) == ("out[0]", 4, "write")
    assert {race.first_block, race.second_block} == {0, 1}
    assert race.first.site == race.second.site


LONG = """
  volatile float* o = out;
  for (int k = 0; k < %d; ++k) o[i] = in[i];"""


def test_a_launch_with_more_accesses_than_can_be_remembered_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """4 blocks of 64 threads with 2 accesses in each round: 5,120 in 10 rounds, 25,600 in 50."""
    monkeypatch.setattr(shadow, "MOST_TRAIL", 8192)
    assert run(PLAIN % (LONG % 10), 4).ok
    with pytest.raises(LaunchError, match="check fewer blocks, or smaller tiles"):
        run(PLAIN % (LONG % 50), 4)


def test_a_block_with_more_reads_than_can_be_remembered_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = """
    extern "C" __global__ void k(float* out) {
      __shared__ float s[4096];
      for (int i = threadIdx.x; i < 4096; i += blockDim.x) s[i] = i;
      __syncthreads();
      float sum = 0;  // several warps read every element: more than one record for each
      for (int i = threadIdx.x % 32; i < 4096; i += 32) sum += s[i];
      out[threadIdx.x] = sum;
    }"""
    monkeypatch.setattr(shadow, "MOST_CHUNKS", 0)
    few, many = compile_kernel(source, threads=32), compile_kernel(source, threads=256)
    assert launch(few, 1, [np.zeros(32, np.float32)], check=True).ok
    with pytest.raises(LaunchError, match="check fewer blocks, or smaller tiles"):
        launch(many, 1, [np.zeros(256, np.float32)], check=True)


BULK = """
#include <cuda/ptx>
#include <cuda/barrier>
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const float* in, float* out, unsigned* word) {
  __shared__ alignas(128) float tile[64];
  __shared__ alignas(8) unsigned long long full;
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 1);
  %s
  __syncthreads();
  if (threadIdx.x == 0) {
%s
  }
}
"""
LOAD = """
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, 256);
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, out, 256, &full);
    while (!ptx::mbarrier_try_wait_parity(&full, 0)) {}
"""
STORE = """
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, tile, 256);
    ptx::cp_async_bulk_commit_group();
    %s
    out[64] = out[0];
"""
BULKS = {
    "load_of_untouched": ("", LOAD, ()),
    "load_after_proxy_fence": (
        "out[threadIdx.x] = 1; ptx::fence_proxy_async(ptx::space_global);", LOAD, ()
    ),
    "load_after_both_proxies_fence": ("out[threadIdx.x] = 1; ptx::fence_proxy_async();", LOAD, ()),
    "load_no_proxy_fence": ("out[threadIdx.x] = 1;", LOAD, ("proxy",)),
    "load_fence_of_shared": (
        "out[threadIdx.x] = 1; ptx::fence_proxy_async(ptx::space_shared);", LOAD, ("proxy",)
    ),
    "store_waited": ("", STORE % "ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());", ()),
    "store_not_waited": ("", STORE % "", ("group",)),
    "store_waited_for_reads": (
        "", STORE % "ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());", ("group",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BULKS)
def test_bulk_copies(name: str) -> None:
    before, body, expected = BULKS[name]
    assert missing(run(BULK % (before, body), 1)) == set(expected)


def test_blocks_that_store_the_same_tile_in_bulk() -> None:
    body = STORE % "ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());"
    assert "blocks" in missing(run(BULK % ("", body), 2))


SUMS = """
extern "C" __global__ void sums(const unsigned* x, unsigned* out, int tiles) {
  for (int t = 0; t < tiles; ++t) {
    unsigned sum = 0;
    for (int e = threadIdx.x; e < 1024; e += 128)
      sum += x[((size_t)blockIdx.x * tiles + t) * 1024 + e];
    atomicAdd(out + blockIdx.x * tiles + t, sum);
  }
}
"""


def test_find_hazards_names_element_tile_blocks_and_lines() -> None:
    problem = course_lib.TileReduction(96, 128, tile_elements=1024, blocks=3)
    right = compile_kernel(SUMS, threads=128)
    report = course_lib.find_hazards(right, problem, global_memory=True)
    assert report.ok and "Global memory was checked too" in str(report.scope)
    wrong = compile_kernel(
        SUMS.replace("atomicAdd(out + blockIdx.x * tiles + t, sum);", "out[t] = sum;"), threads=128
    )
    assert course_lib.find_hazards(wrong, problem).ok  # it is not looked for unless asked
    report = course_lib.find_hazards(wrong, problem, global_memory=True)
    hazard = report.global_hazards[0]
    assert not report.ok and hazard.missing == "blocks"
    assert hazard.array.startswith("out") and hazard.first_line == hazard.second_line == 7
    assert hazard.tile is not None and hazard.first_block != hazard.second_block
    assert "Nothing orders the two blocks" in str(report)
    assert hazard.message in report._repr_html_().replace("&#x27;", "'").replace("&lt;", "<")


ONE_UPDATES = "atomicAdd(&total, sum); __syncthreads(); if (!threadIdx.x) PLACE += total;"


@pytest.mark.parametrize(
    ("update", "looked", "ok"),
    [
        ("PLACE += sum;", True, False),
        ("if (!(threadIdx.x % 32)) PLACE += sum;", True, False),
        (f"__shared__ unsigned total; total = 0; __syncthreads(); {ONE_UPDATES}", True, True),
        ("atomicAdd(&PLACE, sum);", False, True),
    ],
)
def test_an_array_that_is_read_and_written_is_looked_at_unasked(update, looked, ok) -> None:
    place = "out[blockIdx.x * tiles + t]"
    source = SUMS.replace(
        "atomicAdd(out + blockIdx.x * tiles + t, sum);", update.replace("PLACE", place)
    )
    problem = course_lib.TileReduction.of_tiles(3, 2, tile_elements=1024, threads=128)
    report = course_lib.find_hazards(compile_kernel(source, threads=128), problem)
    assert bool("Global memory was checked too" in str(report.scope)) == looked
    assert not report.global_hazards if ok else report.global_hazards
