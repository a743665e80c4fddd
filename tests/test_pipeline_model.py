"""The pipeline model against closed forms and an event simulation written from the words alone."""

from __future__ import annotations

import heapq
import itertools

import pytest

from course_lib.pipeline_model import PipelineModel


def simulate(load, compute, stages, tiles, sync=0.0, transfer=0.0, issue="after_wait"):
    """Run the kernel's program as a coroutine against a queue of events; ends of all tiles.

    Nothing of the recurrence is used: the program requests loads and waits, the copy path serves
    requests in order, and a stage that is overwritten while in use is an error.
    """
    landed: dict[int, float] = {}
    owner: dict[int, int | None] = dict.fromkeys(range(stages))
    path_free = 0.0
    now = 0.0
    events: list[tuple[float, int]] = []
    ends = []

    def request(tile):
        nonlocal path_free
        if tile >= tiles:
            return
        assert owner[tile % stages] is None, "a stage was reused too early"
        owner[tile % stages] = tile
        begin = max(now, path_free)
        path_free = begin + transfer
        heapq.heappush(events, (begin + load, tile))

    def program():
        """Yields ("wait", tile) and ("busy", cycles), as the module's text has the loop."""
        ahead = max(stages - 1, 1) if issue == "after_wait" else stages
        for tile in range(ahead):
            request(tile)
        for tile in range(tiles):
            yield "wait", tile
            if issue == "after_wait" and stages > 1:
                request(tile + stages - 1)
            yield "busy", compute
            yield "busy", sync
            owner[tile % stages] = None
            ends.append(now)
            if issue == "after_reuse" or stages == 1:
                request(tile + stages)

    for what, amount in program():
        if what == "busy":
            now += amount
            continue
        while amount not in landed:
            time, tile = heapq.heappop(events)
            landed[tile] = time
        now = max(now, landed[amount])
    return ends


CASES = list(
    itertools.product(
        [(500, 220), (300, 300), (100, 700), (1000, 10)],
        [1, 2, 3, 5],
        [1, 2, 7, 24],
        [0, 35],
        [0.0, 0.4, 1.0],
        ["after_wait", "after_reuse"],
    )
)


def test_every_schedule_equals_the_event_simulation():
    for (load, compute), stages, tiles, sync, share, issue in CASES:
        model = PipelineModel(load, compute, stages, tiles, sync, share * load, issue)
        ends = simulate(load, compute, stages, tiles, sync, share * load, issue)
        assert model.total_cycles() == pytest.approx(ends[-1]), model
        rows = [row for row in model.timeline().intervals if row.kind == "reuse"]
        assert [row.end for row in rows] == pytest.approx(ends), model


def test_iteration_cycles_is_what_the_simulation_settles_to():
    for (load, compute), stages, _, sync, share, issue in CASES[::4]:
        turn = 6 * stages * max(stages - 1, 1)  # a multiple of either issue's period
        tiles = 3 * turn + 1
        model = PipelineModel(load, compute, stages, tiles, sync, share * load, issue)
        ends = simulate(load, compute, stages, tiles, sync, share * load, issue)
        settled = (ends[-1] - ends[-1 - turn]) / turn
        assert model.iteration_cycles() == pytest.approx(settled), model


@pytest.mark.parametrize(("load", "compute"), [(500, 220), (220, 500), (400, 400)])
def test_one_buffer_is_the_sum_and_two_are_the_maximum(load, compute):
    one, two = (PipelineModel(load, compute, stages, 50) for stages in (1, 2))
    assert one.iteration_cycles() == load + compute
    assert two.iteration_cycles() == max(load, compute)
    assert one.uncovered_latency() == load


def test_the_worked_example_of_the_lesson():
    assert PipelineModel(500, 220, 2, 50).uncovered_latency() == 280
    assert PipelineModel(500, 220, 4, 50).uncovered_latency() == 0


def test_one_load_at_a_time_gives_the_maximum_at_any_depth():
    for stages, issue in itertools.product((2, 3, 8), ("after_wait", "after_reuse")):
        model = PipelineModel(500, 220, stages, 50, transfer_cycles=500, issue=issue)
        assert model.iteration_cycles() == 500


def test_issuing_before_the_wait_is_never_slower_than_the_maximum():
    for load, compute, stages in itertools.product((100, 500, 900), (50, 220, 800), (2, 3, 4)):
        early = PipelineModel(load, compute, stages, 50, issue="after_reuse").iteration_cycles()
        assert compute <= early <= max(load, compute)
    assert PipelineModel(500, 220, 2, 50, issue="after_reuse").iteration_cycles() == 360


def test_short_problems_cost_more_per_tile_than_the_steady_state():
    for tiles in (1, 2, 3, 10):
        model = PipelineModel(500, 220, 4, tiles, 10)
        assert model.total_cycles() >= tiles * model.iteration_cycles()
        assert model.total_cycles() >= 500 + tiles * 230
    assert PipelineModel(500, 220, 4, 1).total_cycles() == 720


def test_timeline_has_one_row_of_each_kind_per_tile_and_the_stage_is_free_when_loaded():
    timeline = PipelineModel(500, 220, 3, 9, 10).timeline()
    assert timeline.stages == 3 and len(timeline) == 36
    for stage in range(3):
        free = 0.0
        for row in timeline.rows("load"):
            if row.stage == stage:
                assert row.start >= free
                free = next(
                    r.end for r in timeline.rows("reuse") if r.tile == row.tile and r.stage == stage
                )
    assert timeline.depth() == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"load_cycles": -1},
        {"stages": 0},
        {"tiles": 0},
        {"transfer_cycles": 501},
        {"issue": "sometimes"},
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError):
        PipelineModel(
            **{"load_cycles": 500, "compute_cycles": 220, "stages": 2, "tiles": 3, **wrong}
        )
