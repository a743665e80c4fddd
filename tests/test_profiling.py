"""Profiles: exact counts, waits on the right lines, hypotheses worded as hypotheses."""

from __future__ import annotations

import numpy as np
import pytest
from ring_kernel import line_of, problem, ring

from course_lib.profiling import Profile, WaitingLine, _waits_of_stamps, profile


@pytest.fixture(scope="module")
def one():
    return profile(ring(1), problem(12), device="virtual")


def test_bytes_are_exact(one):
    case = problem(12)
    warps = 128 // 32
    adds = case.blocks() * case.tiles * warps * 4  # an atomicAdd of every warp for every tile
    assert one.global_bytes in (case.tiles * 2 * 4096 + adds, case.tiles * 2 * 4096 + 2 * adds)


def test_bytes_and_arithmetic_of_one_and_two_stages_are_alike(one):
    two = profile(ring(2), problem(12), device="virtual")
    assert two.global_bytes == one.global_bytes
    assert one.arithmetic <= two.arithmetic < 2 * one.arithmetic  # stage indices cost some
    assert two.wait_cycles < one.wait_cycles and two.issue_rate > one.issue_rate


def test_one_buffer_waits_at_its_wait(one):
    assert one.lines[0].line == line_of("__pipeline_wait_prior")
    assert line_of("__syncthreads") in [row.line for row in one.lines]
    assert one.lines[0].source == "__pipeline_wait_prior(STAGES - 1);"
    assert one.lines[0].kind == "waits for copies"
    assert sum(row.share for row in one.lines) == pytest.approx(1, abs=0.02)
    assert 0 < one.wait_cycles < one.warp_cycles


def test_a_larger_grid_is_scaled_from_one_sm(one):
    large = profile(ring(1), problem(12, blocks=264), device="virtual")
    assert large.global_bytes == one.global_bytes * 132
    assert large.instructions == pytest.approx(one.instructions * 132, rel=1e-3)


def test_the_waiting_line_is_a_hypothesis(one):
    assert one.hypothesis.startswith("Hypothesis")
    assert "do not prove" in one.hypothesis and "bytes and arithmetic the same" in one.hypothesis
    assert one.hypothesis in str(one)


def test_every_form_names_the_device_and_shows_the_lines(one):
    assert "virtual GPU, virtual cycles" in str(one) and "virtual GPU" in one._repr_html_()
    assert list(one.to_frame().columns) == ["source", "kind", "wait_cycles", "share"]
    axes = one.plot().axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(
        [row.wait_cycles for row in one.lines[:8]]
    )


def test_html_escapes_source():
    row = WaitingLine(1, "if (a < b) <b>", "barrier", 10.0, 1.0)
    text = Profile((row,), 10, 20, 20, None, None, None, None, "gpu", "X", "k")._repr_html_()
    assert "a &lt; b" in text and "<b>" not in text


def test_waits_of_stamps_pair_before_and_after():
    from types import SimpleNamespace

    from course_lib.ptx.probes import EVENT

    events = np.zeros(5, EVENT)
    events["warp"] = [0, 0, 1, 1, 0]
    events["site"] = [1, 1, 1, 1, 2]
    events["phase"] = [0, 1, 0, 1, 0]
    events["clock"] = [10, 60, 12, 32, 70]
    sites = [SimpleNamespace(index=1, cell_line=7), SimpleNamespace(index=2, cell_line=9)]
    waits, warps, span = _waits_of_stamps({"events": events, "sites": sites})
    assert dict(waits) == {7: 70.0} and warps == 2 and span == 60


def test_a_wrong_kernels_profile_says_that_it_is_wrong(one):
    wrong = profile(ring(2, "NO_WAIT"), problem(12), device="virtual")
    assert "WRONG by verify" in str(wrong) and "WRONG by verify" in wrong._repr_html_()
    assert "WRONG" not in str(one)


CHAIN = r"""
extern "C" __global__ void chain(const unsigned* x, unsigned* out, int tiles) {
    const unsigned* mine = x + (size_t)blockIdx.x * tiles * 1024;
    for (int t = 0; t < tiles; ++t) {
        unsigned value = mine[t * 1024 + threadIdx.x];
        for (int i = 0; i < 2000; ++i)
            value = __funnelshift_l(value, value + i, 7);
        atomicAdd(&out[blockIdx.x * tiles + t], value);
    }
}
"""


def test_a_chain_of_arithmetic_is_not_called_exposed_latency(one):
    from course_lib.kernel import compile_kernel

    kernel = compile_kernel(CHAIN, "chain", threads=128)
    found = profile(kernel, problem(4), device="virtual")
    assert "computing itself, not loading" in found.hypothesis, str(found)
    assert "change only the overlap" not in found.hypothesis
    assert "Wrong in every order" not in str(found) and "tile 0" in found.notes[0].lower()
    assert "computing itself" not in one.hypothesis
