"""Lessons 04 and later: their kernels, read out of the notebooks, do what the text says of them."""

from __future__ import annotations

import pytest
from test_lessons import LANDINGS, LESSONS, NOTEBOOKS, cell_of, kernel, outcomes

from course_lib import PipelineModel, TileReduction, find_hazards, stress, trace, verify
from course_lib.cuda_magic import kernel_from_text
from course_lib.gpu_limits import occupancy
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


# --- 05 A ring of stages --------------------------------------------------------------------------

RING = "05_a_ring_of_stages"
NINE = TileReduction.of_tiles(9, blocks=2)


def edited(old: str, new: str, **defines: int):
    """The ring with one piece of its text replaced, as the lesson does it."""
    text = cell_of(RING, "ring")
    assert text.count(old) == 1
    return kernel_from_text(text.replace(old, new)).variant(WORK=1, **defines)


@pytest.mark.parametrize(
    ("name", "stages"),  # the form with one barrier loads into the stage read before: it needs two
    [("ring", s) for s in (1, 2, 3, 5)] + [("ring_one_barrier", s) for s in (2, 3, 5)],
)
def test_one_source_is_right_for_any_number_of_stages_and_tiles(name, stages):
    of = kernel(RING, name, STAGES=stages)
    for tiles in (1, 2, 5):
        few = TileReduction.of_tiles(tiles, blocks=2)
        assert outcomes(of, few, orders=("one_last",)) == {(x, True) for x in LANDINGS}
    assert edges(of, NINE) == set()


@pytest.mark.parametrize(("pending", "lacks"), [(0, set()), (1, set()), (2, set()), (3, {"ready"})])
def test_with_three_stages_two_groups_may_be_on_their_way_and_not_three(pending, lacks):
    of = edited("wait_prior(STAGES - 1)", f"wait_prior({pending})")
    assert edges(of) == lacks
    right = {("early", True), ("late", not lacks)}
    assert outcomes(of, FEW, landings=("early", "late"), orders=("round_robin",)) == right


def test_the_form_with_one_barrier_may_leave_one_group_less():
    text = cell_of(RING, "ring_one_barrier")
    wrong = kernel_from_text(text.replace("STAGES - 2)", "STAGES - 1)")).variant(WORK=1)
    assert edges(wrong) == {"ready"}


def test_a_count_that_is_too_large_is_told_with_the_line_of_the_wait():
    of = edited("wait_prior(STAGES - 1)", "wait_prior(STAGES)")
    (hazard,) = find_hazards(of, FEW).hazards
    lines = cell_of(RING, "ring").splitlines()
    wait = next(n for n, line in enumerate(lines, 1) if "wait_prior" in line)
    assert f"The wait on line {wait} (`__pipeline_wait_prior(3)`) lets 3 younger groups" in (
        hazard.message
    )


REUSE_LINE = (
    "__syncthreads();                                     // reuse edge: everyone has read t"
)
TAIL_LINE = "else __pipeline_commit();                            // epilogue: an empty group"


@pytest.mark.parametrize(
    ("old", "lacks"),
    [
        ("__pipeline_wait_prior(STAGES - 1);", {"ready"}),
        (REUSE_LINE, {"reuse"}),
        (TAIL_LINE, {"ready"}),
    ],
    ids=["no wait", "no reuse barrier", "no empty groups"],
)
def test_the_common_errors_lack_the_edge_that_the_lesson_says(old, lacks):
    assert edges(edited(old, ""), NINE) == lacks


def test_more_stages_do_not_cure_a_missing_reuse_edge():
    many = TileReduction.of_tiles(20)
    assert edges(edited(REUSE_LINE, "", STAGES=8), many) == {"reuse"}


@pytest.mark.parametrize("tiles", range(1, 9))
def test_careless_ends_of_the_ring_fail_for_the_tile_counts_in_the_table(tiles):
    unguarded = edited("if (t < tiles) start_load", "if (true) start_load", STAGES=4)
    whole_turns = edited(
        "for (int t = 0; t < tiles; ++t)",
        "for (int t = 0; t < (tiles + STAGES - 1) / STAGES * STAGES; ++t)",
        STAGES=4,
    )
    block = TileReduction.of_tiles(tiles)
    assert verify(unguarded, block, device="virtual").ok == (tiles >= 4)
    assert verify(whole_turns, block, device="virtual").ok == (tiles % 4 == 0)


def test_waiting_for_everything_gives_the_overlap_away():
    problem = TileReduction.of_tiles(20)
    of, eager = (
        edited("wait_prior(STAGES - 1)", f"wait_prior({n})").variant(WORK=8) for n in (2, 0)
    )
    times = [trace(k, problem, device="virtual").mean_iteration() for k in (of, eager)]
    assert times[1] > 1.25 * times[0]


# --- 06 How many stages? --------------------------------------------------------------------------

HOW_MANY = "06_how_many_stages"
BIG = {"TILE": 12288, "THREADS": 128, "TOGETHER": 1}


@pytest.mark.parametrize(
    "defines",
    [{}, {"STAGES": 1}, {"STAGES": 4, "TILE": 2048, "WORK": 0}, {"STAGES": 4} | BIG],
    ids=str,
)
def test_the_ring_is_right_in_every_size_that_the_lesson_uses(defines):
    of = kernel(HOW_MANY, "ring", **defines)
    few = TileReduction.of_tiles(
        5, 2, tile_elements=defines.get("TILE", 4096), threads=defines.get("THREADS", 256)
    )
    assert verify(of, few, device="virtual").ok
    assert edges(of, few) == set()


def test_the_worked_example_is_the_models():
    models = {s: PipelineModel(500, 220, stages=s, tiles=64) for s in range(1, 5)}
    uncovered = {s: round(m.uncovered_latency()) for s, m in models.items()}
    assert uncovered == {1: 500, 2: 280, 3: 30, 4: 0}


def test_two_stages_of_48_kb_fit_twice_and_four_once():
    kernels = {s: kernel(HOW_MANY, "ring", STAGES=s, **BIG) for s in (1, 2, 3, 4)}
    fits = {s: occupancy("sm_90", 128, 40, 0, k.shared_bytes) for s, k in kernels.items()}
    assert {s: fit.blocks for s, fit in fits.items()} == {1: 4, 2: 2, 3: 1, 4: 1}
    assert {fit.limited_by for fit in fits.values()} == {"shared memory"}


@pytest.mark.parametrize(("stages", "blocks"), [(4, 2), (6, 1)])
def test_the_blocks_in_the_last_question_are_right(stages, blocks):
    assert occupancy("sm_90", 256, 32, 0, stages * 24 * 1024).blocks == blocks


def test_the_start_page_and_the_readme_lead_to_every_lesson():
    start = (NOTEBOOKS / "start.ipynb").read_text()
    readme = (NOTEBOOKS.parent / "README.md").read_text()
    for lesson in LESSONS:
        assert f"({lesson}.ipynb)" in start and f"(notebooks/{lesson}.ipynb)" in readme
    assert "docs/glossary.md" in start and "docs/glossary.md" in readme
