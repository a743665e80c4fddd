"""find_hazards: the edge, the lines, the tiles, the stage, the words, the picture, the scope."""

from __future__ import annotations

import re

import case_files
import numpy as np
import pytest
from ring_kernel import line_of, problem, ring
from test_lessons import RIGHT_REDUCTIONS, kernel

from course_lib import Gemm, TileReduction, compile_kernel, find_hazards
from course_lib.hazard_places import Place
from course_lib.hazard_plots import draw_hazard
from course_lib.hazards import Access, CannotCheck, Hazard, Reader, Scope, _Seen
from course_lib.verification import SMALL_POLICIES, Policy
from course_lib.virtual_gpu.dependence import Dependence, dependence
from course_lib.virtual_gpu.launch import LaunchResult, launch
from course_lib.virtual_gpu.races import RawAccess, RawRace

COPY, READ = line_of("__pipeline_memcpy_async"), line_of("sum += stage")


def lines(hazard: Hazard) -> tuple[int | None, int | None]:
    return hazard.first.line, hazard.second.line


# --- real kernels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_right_ring_has_no_hazard_under_any_policy(stages):
    report = find_hazards(ring(stages), problem(), policies=SMALL_POLICIES)
    assert report.ok and not report.remarks
    assert report.scope.launches == len(SMALL_POLICIES) * report.scope.shapes
    assert report.scope.every_schedule


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("policy", SMALL_POLICIES, ids=str)
def test_a_missing_reuse_edge_is_one_report_with_lines_tiles_and_stage(stages, policy):
    report = find_hazards(ring(stages, "NO_REUSE"), problem(), policies=[policy])
    (hazard,) = report.hazards
    assert hazard.edge == "reuse" and lines(hazard) == (READ, COPY)
    assert hazard.second.tile == hazard.first.tile + stages
    assert hazard.place.stage == hazard.first.tile % stages
    assert hazard.place.name == f"stage[{hazard.place.stage}]"
    assert (hazard.first.kind, hazard.second.kind) == ("read", "copy")


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("policy", SMALL_POLICIES, ids=str)
def test_a_missing_ready_edge_is_one_report_with_lines_tiles_and_stage(stages, policy):
    report = find_hazards(ring(stages, "NO_WAIT"), problem(), policies=[policy])
    (hazard,) = report.hazards
    assert hazard.edge == "ready" and lines(hazard) == (COPY, READ)
    assert hazard.second.tile == hazard.first.tile
    assert hazard.place.stage == hazard.first.tile % stages
    assert "never waited for" in hazard.message


def test_the_message_quotes_both_lines_and_says_what_supplies_the_edge():
    (hazard,) = find_hazards(ring(2, "NO_REUSE"), problem()).hazards
    assert f"line {READ}: {hazard.first.code}" in hazard.message
    assert f"line {COPY}: {hazard.second.code}" in hazard.message
    assert "Missing reuse edge at stage[" in hazard.message
    assert f"Put __syncthreads() after line {READ}" in hazard.message
    (hazard,) = find_hazards(ring(2, "NO_WAIT"), problem()).hazards
    assert f"__pipeline_wait_prior(1) before line {READ}" in hazard.message


@pytest.mark.parametrize(("lesson", "name", "defines"), RIGHT_REDUCTIONS, ids=str)
def test_the_lessons_right_kernels_have_no_hazard(lesson, name, defines):
    report = find_hazards(kernel(lesson, name, **defines), TileReduction.of_tiles(5, blocks=2))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("lesson", "name"),
    [("01_one_buffer", "gemm_one_buffer"), ("03_two_buffers", "gemm_two_buffers")],
)
def test_the_lessons_products_have_no_hazard(lesson, name):
    report = find_hazards(kernel(lesson, name), Gemm(128, 128, 160))
    assert report.ok, str(report)


def test_the_lessons_forgotten_wait_is_a_ready_edge():
    of = kernel("02_asynchronous_copies", "forgets_to_wait")
    report = find_hazards(of, TileReduction.of_tiles(5, blocks=2))
    assert report.hazards[0].edge == "ready"


BARRIERS = """
extern "C" __global__ void k(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned part[128];
    for (int t = 0; t < tiles; ++t) {
        part[threadIdx.x] = x[(blockIdx.x * tiles + t) * 128 + threadIdx.x];
        FIRST
        unsigned sum = part[127 - threadIdx.x];
        atomicAdd(&out[blockIdx.x * tiles + t], sum);
        SECOND
    }
}
"""


@pytest.mark.parametrize(
    ("first", "second", "edge"),
    [
        ("__syncthreads();", "__syncthreads();", None),
        ("", "__syncthreads();", "ready"),
        ("__syncthreads();", "", "reuse"),
        ("__syncthreads();", "__syncwarp();", "reuse"),
    ],
)
@pytest.mark.parametrize("policy", SMALL_POLICIES, ids=str)
def test_edges_of_plain_stores_are_told_apart(first, second, edge, policy):
    source = BARRIERS.replace("FIRST", first).replace("SECOND", second)
    small = TileReduction.of_tiles(4, 1, tile_elements=128, threads=128)
    report = find_hazards(compile_kernel(source, threads=128), small, policies=[policy])
    assert [hazard.edge for hazard in report.hazards] == ([edge] if edge else [])
    if second == "__syncwarp();":
        assert "only within one warp" in report.hazards[0].message


def test_a_memory_error_and_a_deadlock_have_their_own_places():
    source = 'extern "C" __global__ void k(const unsigned* x, unsigned* out, int tiles) {%s}'
    small = TileReduction.of_tiles(1, 1, tile_elements=128, threads=128)
    report = find_hazards(compile_kernel(source % "out[99999] = 1;", threads=128), small)
    assert report.memory_errors and not report.deadlock and not report.ok
    half = 'if (threadIdx.x < 64) __syncthreads(); else asm volatile("bar.sync 1;");'
    report = find_hazards(compile_kernel(source % half, threads=128), small)
    assert report.deadlock is not None and not report.memory_errors and not report.ok


def test_what_cannot_be_checked_is_a_sentence():
    with pytest.raises(CannotCheck, match="cannot be checked on this problem"):
        find_hazards(ring(2), Gemm(64, 64, 32))


def test_a_small_problem_is_checked_as_it_is_too():
    late = BARRIERS.replace("FIRST", "__syncthreads();").replace(
        "SECOND", "if (t != 11) __syncthreads();"
    )
    long = TileReduction.of_tiles(20, 1, tile_elements=128, threads=128)  # small() has 8 tiles
    report = find_hazards(compile_kernel(late, threads=128), long)
    assert [hazard.edge for hazard in report.hazards] == ["reuse"]


# --- constructed facts ----------------------------------------------------------------------------


def reader(*races: RawRace, tiles: int = 6) -> Reader:
    of = problem(tiles, blocks=1)
    x = 5 << 40
    result = LaunchResult(ok=True, races=list(races), array_addresses={"x": x})
    return Reader(ring(2), [_Seen(of, SMALL_POLICIES[0], result)])


def site(line: int, opcode: str) -> int:
    found = ring(2).module
    return next(
        item.site
        for item in found.functions["ring"].instructions
        if found.site_of(item).cell_line == line and item.opcode.startswith(opcode)
    )


def raw(kind: str, tile: int | None, warp: int = 0, group: int | None = None) -> RawAccess:
    line, opcode = (READ, "ld.shared") if kind == "read" else (COPY, "cp.async")
    source = None if tile is None else (5 << 40) + tile * 4096
    return RawAccess(warp * 32, warp, site(line, opcode), kind, source, group)


def test_constructed_races_name_stage_and_tiles():
    race = RawRace(0, 4096 + 16, 16, raw("read", 1, warp=2), raw("copy", 3), "order")
    (hazard,) = reader(race).hazards()
    assert (hazard.edge, hazard.place.name) == ("reuse", "stage[1]")
    assert (hazard.first.tile, hazard.second.tile, hazard.first.warp) == (1, 3, 2)


def test_a_reuse_edge_that_the_run_saw_from_the_wrong_side_is_still_reuse():
    wrong_way = RawRace(0, 0, 4, raw("copy", 2), raw("read", 0, warp=3), "wait")
    right_way = RawRace(0, 0, 4, raw("read", 0), raw("copy", 2, warp=1), "order")
    (hazard,) = reader(wrong_way, right_way).hazards()
    assert hazard.edge == "reuse" and lines(hazard) == (READ, COPY)


def test_a_read_before_the_first_tile_is_a_ready_edge():
    early = RawRace(0, 0, 4, raw("read", None, warp=1), raw("copy", 0), "order")
    (hazard,) = reader(early).hazards()
    assert hazard.edge == "ready" and lines(hazard) == (COPY, READ)


@pytest.mark.parametrize(("found_reads", "edge"), [(True, "ready"), (False, "reuse")])
def test_a_copy_over_a_tile_that_had_been_read_is_due(found_reads, edge):
    over = RawRace(0, 0, 4, raw("copy", 0), raw("copy", 2), "wait")
    late = RawRace(0, 0, 4, raw("copy", 2), raw("read", 2), "wait", 1, 2, found_reads)
    assert {hazard.edge for hazard in reader(over, late).hazards()} == {edge}


def test_the_message_names_the_element():
    race = RawRace(0, 4096 + 16, 16, raw("read", 1, warp=2), raw("copy", 3), "order")
    (hazard,) = reader(race).hazards()
    assert "Seen first at stage[1][4]." in hazard.message


def test_a_checked_launch_does_not_leave_out_blocks_after_the_first_error():
    source = """extern "C" __global__ void k(unsigned* out) {
        __shared__ volatile unsigned word;
        if (blockIdx.x == 0) asm volatile("bar.sync 1, 64;" ::: "memory");
        if (threadIdx.x == 0) word = 1;
        if (threadIdx.x == blockIdx.x) out[blockIdx.x] = word;
    }"""
    stuck = compile_kernel(source, threads=32)
    result = launch(stuck, 4, [np.zeros(4, np.uint32)], check=True, workers=1)
    assert result.errors and result.races


def test_a_barrier_used_before_its_initialisation_is_named_so():
    case = case_files.load(case_files.FOLDER / "other_bulk_init_not_visible.edit")
    report = find_hazards(case.kernel, case.problem)
    (message, *_) = [h.message for h in report.hazards if h.edge == "other"]
    assert message.startswith("Barrier used before its initialisation is visible: warp")


def test_the_operand_that_other_warps_copy_has_its_tiles_too():
    case = case_files.load(case_files.FOLDER / "reuse_gemm_two_stages.edit")
    policy = Policy("random", "random", seed=7)
    found = find_hazards(case.kernel, case.problem, policies=[policy]).hazards
    both = [hazard for one in found for hazard in (one, *one.also)]
    assert {hazard.place.array for hazard in both} == {"a", "b"}
    assert {(h.first.tile, h.second.tile) for h in both} == {(0, 2)}


def test_the_lower_kind_is_a_remark_and_no_hazard():
    found = reader(RawRace(0, 0, 4, raw("read", 0), raw("bulk copy", 2), "proxy-read"))
    assert not found.hazards()
    assert "fence.proxy.async" in found.remarks()[0]


@pytest.mark.parametrize(
    ("missing", "words"),
    [("visibility", "covers the waiting thread's own copies only"), ("wait", "wrong number")],
)
def test_causes_have_their_own_words(missing, words):
    race = RawRace(0, 0, 4, raw("copy", 0), raw("read", 0, warp=1), missing)
    (hazard,) = reader(race).hazards()
    assert words in hazard.message


# --- pictures -------------------------------------------------------------------------------------


def side(kind: str, tile: int | None, line: int) -> Access:
    return Access(line, "code", 1, kind, tile, 32, f"line {line}")


@pytest.mark.parametrize(
    ("edge", "first", "second", "stages"),
    [
        ("reuse", side("read", 1, 20), side("copy", 3, 11), 2),
        ("ready", side("copy", 2, 11), side("read", 2, 20), 3),
        ("reuse", side("read", 4, 31), side("bulk copy", 8, 22), 4),
        ("reuse", side("read", None, 9), side("write", None, 7), 1),
    ],
)
def test_the_picture_names_edge_tiles_and_stage_and_has_one_missing_arrow(
    edge, first, second, stages
):
    stage = (first.tile or 0) % stages
    place = Place(f"ring[{stage}]", "ring", stage, stages)
    figure = draw_hazard(Hazard(edge, first, second, place, "order", 0, 1, ""), "k")
    words = " ".join(
        text.get_text() for text in [*figure.axes[0].texts, *figure.texts, figure._suptitle]
    )
    assert f"missing {edge} edge" in words and place.name in words
    assert all(f"tile {a.tile if a.tile is not None else 't'}" in words for a in (first, second))
    gids = [patch.get_gid() for patch in figure.axes[0].patches]
    assert gids.count("missing") == 1
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == stages and place.name in labels


def test_a_report_shows_itself_with_its_picture():
    report = find_hazards(ring(2, "NO_REUSE"), problem())
    assert "data:image/png" in report._repr_html_() and "missing reuse edge" in report._repr_html_()
    assert list(report.to_frame()["edge"]) == ["reuse"]
    with pytest.raises(IndexError, match="1 hazard"):
        report.plot(1)


# --- scope ----------------------------------------------------------------------------------------

DEPENDS = r"""
#include <cuda/barrier>
#include <cuda/ptx>
extern "C" __global__ void waits(unsigned* out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    bar.arrive_and_wait();
    out[threadIdx.x] = 1;
}
extern "C" __global__ void polls(unsigned* out) {
    __shared__ unsigned long long bar;
    if (threadIdx.x == 0) cuda::ptx::mbarrier_init(&bar, 32);
    __syncthreads();
    if (cuda::ptx::mbarrier_test_wait_parity(&bar, 0)) out[1] = 2;
}
extern "C" __global__ void counts(unsigned* out) {
    __shared__ unsigned long long bar;
    if (threadIdx.x == 0) cuda::ptx::mbarrier_init(&bar, 32);
    __syncthreads();
    int asked = 0;
    while (!cuda::ptx::mbarrier_try_wait_parity(&bar, 1)) ++asked;
    if (asked > 3) out[1] = 2;
}
extern "C" __global__ void ticket(unsigned* out) {
    if (atomicAdd(&out[0], 1) == 3) out[1] = 1;
}
extern "C" __global__ void clocked(unsigned* out) {
    if (clock64() % 2) out[1] = 1;
}
extern "C" __global__ void flag(volatile unsigned* out) {
    while (out[0] == 0) {}
    out[1] = 1;
}
extern "C" __global__ void lookup(const unsigned* x, unsigned* out) {
    out[x[threadIdx.x]] = 1;
}
"""


def depends(name: str) -> Dependence:
    compiled = compile_kernel(DEPENDS, name, threads=32, arch="sm_90")
    return dependence(compiled.module, name)


def test_waiting_for_an_mbarrier_is_no_poll_but_its_phases_take_arrivals_as_they_come():
    found = depends("waits")
    assert not found.reasons and found.phases and found.on_schedule
    assert dependence(ring(2).module, "ring") == Dependence()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("polls", "a poll"), ("ticket", "atomic"), ("clocked", "clock"), ("flag", "volatile"),
        ("counts", "how often a poll"),
    ],
)  # fmt: skip
def test_what_makes_a_kernel_depend_on_the_schedule_is_named(name, words):
    found = depends(name)
    assert found.on_schedule and words in " ".join(found.reasons)
    assert re.search(r"line \d+", found.reasons[0])


def test_dependence_on_input_is_its_own_kind():
    found = depends("lookup")
    assert found.on_data and not found.on_schedule


def test_the_scope_says_how_far_the_verdict_reaches():
    free = str(Scope(2, 2, SMALL_POLICIES[:1], 4, 4, Dependence()))
    assert "holds for every schedule" in free and "2 shapes" in free
    bound = Scope(2, 14, SMALL_POLICIES, 4, 90, Dependence(("a branch depends on a clock",)))
    assert "not for all" in str(bound) and "4 of 90 blocks" in str(bound)
    assert "14 launches" in str(bound)


def test_a_fault_that_needs_many_rounds_is_found_on_a_large_problem() -> None:
    """The small case of a large problem has nine tiles; this ring errs on its twelfth."""
    from ring_kernel import RING

    edge = "#ifndef NO_REUSE\n        __syncthreads();"
    late = RING.replace(edge, "if (t < 12) __syncthreads();\n#ifndef NO_REUSE")
    assert late != RING
    kernel = compile_kernel(late, "ring", {"STAGES": 2}, threads=128)
    large = TileReduction(4096, 4096, tile_elements=1024, blocks=256, threads=128)
    report = find_hazards(kernel, large)
    assert [hazard.edge for hazard in report.hazards] == ["reuse"]
    assert report.hazards[0].second.tile >= 12
