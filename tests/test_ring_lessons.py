"""Lessons 04 and later: their kernels, read out of the notebooks, do what the text says of them."""

from __future__ import annotations

import pytest
from test_lessons import LANDINGS, cell_of, kernel, outcomes

from course_lib import TileReduction, find_hazards, stress, trace, verify
from course_lib.ring_plots import overwrites

FEW = TileReduction.of_tiles(5, blocks=2)


def edges(of, problem=FEW) -> set[str]:
    """The edges that a kernel lacks; a deadlock or a memory error counts under its own name."""
    report = find_hazards(of, problem)
    found = {hazard.edge for hazard in report.hazards}
    found |= {"deadlock"} if report.deadlock else set()
    return found | ({"memory"} if report.memory_errors else set())


# --- 04 Two edges ---------------------------------------------------------------------------------

TWO_EDGES = "04_two_edges"
READY_TWICE = "__pipeline_wait_prior(0); __syncthreads(); __syncthreads()"


@pytest.mark.parametrize(
    ("name", "defines"),
    [
        ("two_stages", {}),
        ("two_stages", {"SLOW": 4}),
        ("one_barrier", {}),
        ("with_pipeline", {}),
        ("with_mbarriers", {}),
    ],
    ids=str,
)
def test_kernels_with_both_edges_are_right_and_free_of_hazards(name, defines):
    of = kernel(TWO_EDGES, name, **defines)
    for tiles in (1, 2, 5):
        few = TileReduction.of_tiles(tiles, blocks=2)
        assert outcomes(of, few, orders=("one_last", "random")) == {(x, True) for x in LANDINGS}
    assert edges(of) == set()


@pytest.mark.parametrize(
    ("name", "defines", "lacks"),
    [
        ("two_stages", {"REUSE": ""}, {"reuse"}),
        ("two_stages", {"REUSE": "", "READY": READY_TWICE}, {"reuse"}),
        ("two_stages", {"REUSE": "__syncwarp()"}, {"reuse"}),
        ("two_stages", {"REUSE": "__threadfence_block()"}, {"reuse"}),
        ("two_stages", {"REUSE": "__pipeline_wait_prior(0)"}, {"reuse"}),
        ("two_stages", {"READY": ""}, {"ready"}),
        ("with_pipeline", {"RELEASE": 2}, {"reuse"}),
        ("with_pipeline", {"RELEASE": 0}, {"ready", "deadlock"}),
        ("with_mbarriers", {"RELEASE": 2}, {"reuse"}),
        ("with_mbarriers", {"RELEASE": 0}, {"deadlock"}),
    ],
    ids=str,
)
def test_a_missing_edge_is_named(name, defines, lacks):
    assert edges(kernel(TWO_EDGES, name, **defines)) == lacks


def test_two_stages_is_two_buffers_with_its_edges_named():
    lesson_03 = cell_of("03_two_buffers", "two_buffers").split("extern")[1]
    here = cell_of(TWO_EDGES, "two_stages")
    edge = {
        name: here.partition(f"#define {name} ")[2].partition("  //")[0].strip()
        for name in ("READY", "REUSE")
    }
    body = here.split("extern")[1].replace("READY;", edge["READY"] + ";")
    body = body.replace("REUSE;", edge["REUSE"] + ";")
    assert statements(body.replace("two_stages", "two_buffers").replace("stage[", "buffer[")) == (
        statements(lesson_03.replace("PENDING", "1"))
    )


def statements(text: str) -> list[str]:
    """The code without comments and spaces, cut at semicolons."""
    code = " ".join(line.partition("//")[0] for line in text.splitlines())
    return ["".join(part.split()) for part in code.split(";")]


def test_without_the_reuse_edge_undisturbed_runs_pass_and_delayed_ones_fail():
    of = kernel(TWO_EDGES, "two_stages", REUSE="")
    report = stress(of, FEW, iterations=40, device="virtual")
    assert report.failures.undelayed == 0
    assert report.failures.delayed == report.delayed_iterations == 20
    assert stress(kernel(TWO_EDGES, "two_stages"), FEW, iterations=40, device="virtual").ok


def test_a_slow_warp_makes_the_overwritten_stage_visible():
    problem = TileReduction.of_tiles(8)
    of = kernel(TWO_EDGES, "two_stages", WORK=24, SLOW=4)
    assert overwrites(trace(of, problem, device="virtual")) == []
    wrong = kernel(TWO_EDGES, "two_stages", WORK=24, SLOW=4, REUSE="")
    found = overwrites(trace(wrong, problem, device="virtual"))
    assert found and {one.warp for one in found} == {3}
    assert not verify(wrong, problem, device="virtual").ok
