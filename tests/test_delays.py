"""Delays: where they are written, that they change nothing but time, and what the census says."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ring_kernel import line_of, problem, ring
from test_probes import AWKWARD, NO_PARAMETERS, POLLING, TWO_STAGE

from course_lib import ptxas
from course_lib.kernel import compile_kernel
from course_lib.problem_runs import launch_virtual
from course_lib.ptx import delays, probes

PRODUCER = r"""
#include <cuda_pipeline.h>
// Warp 0 loads, warps 1 to 3 read: named barriers say full and empty.
extern "C" __global__ void roles(const unsigned* x, unsigned* out, int tiles) {
  __shared__ __align__(16) unsigned tile[1024];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) {
    for (int t = 0; t < tiles; t++) {
      for (int i = 0; i < 8; i++)
        __pipeline_memcpy_async(&tile[(i * 32 + lane) * 4],
                                x + (blockIdx.x * tiles + t) * 1024 + (i * 32 + lane) * 4, 16);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      asm volatile("bar.arrive 1, 128;" ::: "memory");
      asm volatile("bar.sync 2, 128;" ::: "memory");
    }
  } else {
    for (int t = 0; t < tiles; t++) {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      unsigned sum = 0;
      for (int i = threadIdx.x - 32; i < 1024; i += 96) sum += tile[i];
      atomicAdd(&out[blockIdx.x * tiles + t], sum);
      asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
}
"""


def delayed(kernel):
    """The kernel's PTX with delays, and the kernel that takes their parameters."""
    made = delays.delay(kernel.ptx(), kernel.module, kernel.name)
    return made, kernel.rewritten(made.text, delays.EXTRA_PARAMETERS)


def test_sites_of_the_ring():
    kernel = ring(2)
    made, _ = delayed(kernel)
    assert [site.kind for site in made.sites] == ["wait", "barrier", "read", "barrier"]
    lines = [site.cell_line for site in made.sites]
    assert lines[:2] == [line_of("__pipeline_wait_prior"), line_of("__syncthreads();")]
    assert lines[2:] == [line_of("sum += stage"), line_of("__syncthreads();", 1)]
    assert made.classes() == delays.ALL_CLASSES
    without = delays.delay(ring(2, "NO_WAIT").ptx(), None, "ring")
    assert without.classes() == delays.READS | delays.ARRIVES


def test_the_sleep_is_before_reads_and_arrivals_and_after_waits():
    text = delayed(ring(2))[0].text
    read = text[: re.search(r"\n\s*ld\.shared", text).start()].rsplit("// probe begin", 1)[1]
    assert "@!%delay0_reads bra" in read and "nanosleep" in read
    barrier = text[: text.index("bar.sync")].rsplit("// probe begin", 1)[1]
    assert "@!%delay0_arrives bra" in barrier
    wait = text[text.index("cp.async.wait_group") :].split("// probe end", 1)[0]
    assert "@!%delay0_waits bra" in wait and "nanosleep" in wait.split("// probe begin", 1)[1]
    # A run of unrolled reads sleeps once.
    assert text.count("nanosleep.u32") == len(delayed(ring(2))[0].sites)


def test_only_marked_lines_are_added():
    kernel = ring(2)
    text = delayed(kernel)[0].text
    parts = re.split(r"// probe begin\n.*?// probe end", text, flags=re.DOTALL)
    stripped = re.sub(r",\s*\.param \.u32 delay0_.*?(?=\n\))", "", "".join(parts), flags=re.DOTALL)
    assert stripped.split() == kernel.ptx().split()


@pytest.mark.parametrize("source", [TWO_STAGE, NO_PARAMETERS, POLLING, AWKWARD, PRODUCER])
def test_assembles(source):
    kernel = compile_kernel(source)
    made, _ = delayed(kernel)
    found = ptxas.assemble(made.text, kernel.arch).kernels[kernel.name]
    assert found.spill_bytes == 0
    assert found.registers <= kernel.resources.registers + 8
    # A kernel with clock stamps can be delayed too, and the other way round.
    stamped = probes.stamp(made.text, None, kernel.name)
    again = delays.delay(stamped.text, None, kernel.name)
    assert ptxas.assemble(again.text, kernel.arch).cubin


def test_a_spinning_wait_sleeps_when_it_is_over():
    made, _ = delayed(compile_kernel(POLLING))
    after = made.text[made.text.index("mbarrier.try_wait") :].split("// probe end", 1)[0]
    assert re.search(r"and\.pred %delay0_now, %delay0_waits, p;", after)
    assert "@!%delay0_now bra" in after


def test_guards_and_loops_of_reads():
    made, _ = delayed(compile_kernel(AWKWARD))
    read = made.text[: re.search(r"\n\s*ld\.shared", made.text).start()]
    read = read.rsplit("// probe begin", 1)[1]
    assert re.search(r"and\.b32 %delay0_scratch, %delay0_bits, 1;", read)  # once for the loop
    assert "@!%delay0_now bra" in read


def test_tensor_cores_read_where_their_fence_is():
    assert delays.delayable_kind("wgmma.fence.sync.aligned") == "read"
    assert delays.delayable_kind("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == "read"
    for other in ("cp.async.cg.shared.global", "st.shared.b32", "ld.global.u32", "bar.warp.sync"):
        assert delays.delayable_kind(other) is None


@pytest.mark.parametrize("order", ["round_robin", "one_last", "random"])
@pytest.mark.parametrize("landing", ["early", "late"])
def test_the_delayed_kernel_computes_the_same(order, landing):
    case = problem(tiles=5)
    _, kernel = delayed(ring(2))
    inputs = case.inputs()
    for warp in (delays.NO_WARP, 0, 3):
        extra = delays.launch_arguments(warp, cycles=500)
        result, outputs = launch_virtual(
            kernel, case, inputs, extra=extra, order=order, landing=landing, victim=1
        )
        assert result.ok and case.compare(outputs, case.reference(inputs))[0]


def test_only_the_chosen_warp_of_the_chosen_block_sleeps():
    """A sleep ends a turn on the virtual GPU, so the turns tell how many there were."""
    case = problem(tiles=4, blocks=2)
    made, kernel = delayed(ring(2))

    def turns(**arguments):
        extra = delays.launch_arguments(**arguments)
        return launch_virtual(kernel, case, extra=extra)[0].counters["turns"]

    none = turns()
    reads, arrives, waits = (turns(warp=2, classes=bit) - none for bit in (1, 2, 4))
    assert (reads, arrives, waits) == (8, 16, 8)  # tiles x blocks; two barriers per tile
    assert turns(warp=2) == none + 32
    assert turns(warp=2, block=1) == none + 16
    assert turns(warp=2, block=7) == none == turns(warp=77)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (lambda: ring(2), [7, 7, 7, 7]),
        (lambda: compile_kernel(PRODUCER, threads=128), [6, 3, 3, 3]),
    ],
)
def test_census(kernel, expected):
    case = problem(tiles=3, blocks=2)
    census = np.zeros(4, np.uint32)
    extra = delays.launch_arguments(census=census)
    result, outputs = launch_virtual(delayed(kernel())[1], case, extra=extra)
    assert result.ok and case.compare(outputs, case.reference(case.inputs()))[0]
    assert census.tolist() == expected


def test_census_needs_the_last_of_several_exits():
    source = """extern "C" __global__ void k(unsigned* out, int n) {
      __shared__ unsigned s[64];
      if (threadIdx.x >= n) return;
      s[threadIdx.x] = threadIdx.x;
      asm volatile("bar.sync 1, 64;" ::: "memory");
      out[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    _, kernel = delayed(compile_kernel(source, threads=96))
    census = np.zeros(3, np.uint32)
    from course_lib.virtual_gpu.launch import launch

    out = np.zeros(64, np.uint32)
    launch(kernel, 1, [out, 64, *delays.launch_arguments(census=census)])
    assert census.tolist() == [3, 3, 0] and out[0] == 63


def test_no_such_kernel():
    with pytest.raises(KeyError, match="ring"):
        delays.delay(compile_kernel(TWO_STAGE).ptx(), None, "ring")
