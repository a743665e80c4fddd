"""The widgets without a browser: what they compute, and that they draw what they compute."""

from __future__ import annotations

import re
import time

import case_files
import pytest
from ring_kernel import problem, ring

from course_lib import explore_stages, explore_timeline, find_hazards, trace
from course_lib.explore.ring_states import (
    FREE,
    LOADING,
    OVERWRITTEN,
    READING,
    READY,
    TOO_EARLY,
    clashes_of,
    stays_of,
)
from course_lib.explore.situation import PRESETS, Situation
from course_lib.pipeline_model import PipelineModel
from course_lib.problem_runs import launch_timed

SLIDER_SECONDS = 0.1


def traced(stages, *broken, tiles=12):
    return trace(ring(stages, *broken), problem(tiles), device="virtual")


# --- explore_timeline


def by_brute_force(frame, stage, now):
    """A stage's state and tile, from the rows alone, one by one."""
    mine = frame[(frame.block == frame.block.min()) & (frame.stage == stage)]
    states = {}
    for tile, rows in mine.groupby("tile"):
        loads, reads = rows[rows.kind == "load"], rows[rows.kind == "read"]
        if now < loads.start.min() or now >= reads.end.max():
            continue
        if now < loads.end.max():
            states[int(tile)] = LOADING
        elif now < reads.start.min():
            states[int(tile)] = READY
        else:
            states[int(tile)] = READING
    assert len(states) <= 1, "a right kernel has one tile in a stage at a time"
    return next(((state, tile) for tile, state in states.items()), (FREE, None))


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_every_slot_shows_what_the_rows_of_to_frame_hold(stages):
    timeline = traced(stages)
    frame, explorer = timeline.to_frame(), explore_timeline(timeline)
    assert explorer.stages == stages and not explorer.clashes
    seen = set()
    for frame_number in range(0, len(explorer.times), 13):
        explorer.frame.value = frame_number
        drawn = drawn_slots(explorer)
        for slot in explorer.slots():
            expected = by_brute_force(frame, slot.stage, explorer.time)
            assert (slot.state, slot.tile) == expected
            assert drawn[slot.stage] == (slot.state, "" if slot.tile is None else str(slot.tile))
            seen.add(slot.state)
    assert {FREE, LOADING, READING} <= seen


def drawn_slots(explorer):
    pattern = r'data-stage="(\d+)" data-state="([^"]+)" data-slot-tile="(\d*)"'
    return {int(s): (state, tile) for s, state, tile in re.findall(pattern, explorer._shown.value)}


@pytest.mark.parametrize(("missing", "kind"), [("NO_REUSE", OVERWRITTEN), ("NO_WAIT", TOO_EARLY)])
def test_a_missing_edge_is_seen_in_the_trace_and_in_the_report(missing, kind):
    explorer = explore_timeline(traced(2, missing))
    assert explorer.clashes and {clash.kind for clash in explorer.clashes} == {kind}
    report = find_hazards(ring(2, missing), problem(6))
    for one in (explorer, explore_timeline(report)):
        # It opens at the moment that matters, and says so where nobody looks past it.
        assert kind in {slot.state for slot in one.slots()}
        words = {OVERWRITTEN: "OVERWRITTEN", TOO_EARLY: "READ TOO EARLY"}[kind]
        assert words in one._shown.value and "⚠ Stage" in one._shown.value
        assert kind in one.picture().label and kind in one.static_html()


def test_a_clash_is_seen_however_short_it_is():
    timeline = traced(2, "NO_REUSE", tiles=40)
    explorer = explore_timeline(timeline)
    seen = {
        clash
        for moment in explorer.times
        for clash in explorer.clashes
        if clash.start <= moment < clash.end
    }
    assert seen == set(explorer.clashes)


def test_overlaps_in_bytes_of_their_own_are_no_hazard():
    case = case_files.load(case_files.FOLDER / "right_own_bytes_only.cu")
    timeline = trace(case.kernel, case.problem, device="virtual")
    assert clashes_of(stays_of(timeline.to_frame()))  # a stage is loaded and read at once
    assert not explore_timeline(timeline).clashes
    assert not explore_timeline(timeline, find_hazards(case.kernel, case.problem)).clashes


def test_a_hazard_report_decides_which_edge_is_shown_as_missing():
    timeline = traced(2, "NO_REUSE")
    assert explore_timeline(timeline, find_hazards(ring(2, "NO_REUSE"), problem(6))).clashes
    assert not explore_timeline(timeline, find_hazards(ring(2, "NO_WAIT"), problem(6))).clashes
    assert not explore_timeline(timeline, find_hazards(ring(2), problem(6))).clashes


def test_a_real_gpu_tells_no_landings_so_none_is_called_late():
    stays = stays_of(traced(2, "NO_WAIT").to_frame())
    assert clashes_of(stays) and not clashes_of(stays, landings_known=False)


def test_buttons_go_to_events_and_to_the_unsafe_moment():
    explorer = explore_timeline(traced(2, "NO_REUSE"))
    first = explorer.clashes[0]
    assert first.start <= explorer.time < first.end
    explorer._to_clash()
    second = explorer.clashes[1]
    assert second.start <= explorer.time < second.end
    before = explorer.frame.value
    explorer._forth()
    assert explorer.frame.value > before
    explorer._back()
    assert explorer.frame.value <= before
    explorer.go_to(0)
    assert explorer.frame.value == 0
    explorer._back()
    assert explorer.frame.value == 0


def test_what_cannot_be_shown_says_why():
    with pytest.raises(ValueError, match="no hazard"):
        explore_timeline(find_hazards(ring(2), problem(6)))
    with pytest.raises(ValueError, match="explore_stages\\(kernel, problem\\)"):
        explore_stages(ring(2))


# --- explore_stages


def test_one_block_alone_takes_what_the_model_of_the_pipeline_says():
    for preset in PRESETS.values():
        for stages in (1, 2, 4):
            alone = preset.with_stages(stages)
            model = PipelineModel(alone.L, alone.C, stages, alone.tiles)
            assert alone.time() == max(model.total_cycles(), alone.tiles * alone.C)
    worked = Situation(L=500, C=220, S=2)
    assert worked.model().uncovered_latency() == 280
    assert worked.with_stages(1).model().iteration_cycles() == 720


def test_resident_blocks_take_turns_computing_and_come_in_rounds():
    base = Situation(L=1000, C=100, S=1, tiles=10, threads=1024, registers=32, blocks=2)
    assert base.resident == 2 and base.time() == 11000
    assert Situation(**{**vars(base), "blocks": 3}).time() == 22000  # a second round for one block
    busy = Situation(**{**vars(base), "C": 2000})
    assert busy.time() == 2 * 10 * 2000  # computing fills the SM: (1000 + 2000) · 10 is less
    slow = Situation(**{**vars(base), "bandwidth": 4})  # 16 KB in 4,096 cycles
    assert slow.time() == 2 * 10 * 4096


def test_more_stages_lose_where_residency_halves_and_stop_where_none_fits():
    ring_of = Situation(L=800, C=400, tiles=16, tile_bytes=38 * 1024, blocks=2, threads=128)
    times = ring_of.over_stages()
    assert [ring_of.with_stages(s).resident for s in (2, 3, 5, 6)] == [2, 1, 1, 0]
    assert times[3] > times[2] and times[6] is None and ring_of.best_stages() == 2
    assert "no block fits" in explore_stages(**{**vars(ring_of), "S": 8}).picture().label


def test_sliders_change_the_picture_within_a_tenth_of_a_second():
    for name in explore_stages().sliders:
        explorer = explore_stages()
        slider, before = explorer.sliders[name], explorer._shown.value
        begin = time.perf_counter()
        slider.value = slider.max if slider.value != slider.max else slider.min
        assert time.perf_counter() - begin < SLIDER_SECONDS
        assert getattr(explorer.situation, name) == slider.value
        assert without_ids(explorer._shown.value) != without_ids(before), name
        assert slider.tooltip


def without_ids(svg):
    return re.sub(r"course\d+", "", svg)


def test_a_preset_sets_every_slider_and_the_picture_follows():
    explorer = explore_stages(L=500, C=220)
    assert explorer.situation.L == 500 and "uncovered latency" in explorer.still().label
    name = next(name for name in PRESETS if "GEMM" in name)
    explorer.preset.value = name
    assert explorer.situation == PRESETS[name]
    assert "1,481" in explorer._shown.value


def test_this_kernels_figures_come_from_its_traces_and_launches():
    case = problem(12, 264)
    kernel = ring(3)
    explorer = explore_stages(kernel, case, device="virtual", stages=[1, 3])
    one = trace(ring(1), case, device="virtual")
    now = explorer.situation
    assert round(one.load_cycles()) == now.L and round(one.compute_cycles()) == now.C
    assert (now.S, now.tiles, now.blocks, now.threads) == (3, 12, 2, 128)
    assert (now.tile_bytes, now.more_shared) == (4096, 0)
    assert now.registers == kernel.resources.registers
    assert now.issue == "after_reuse"  # the ring loads before it waits
    measured = {s: launch_timed(ring(s), case).cycles for s in (1, 3)}
    assert explorer.measured == measured
    assert explorer._shown.value.count("cycles measured") == 2
    assert "virtual" in explorer._shown.value
    explorer.preset.value = next(iter(PRESETS))
    assert "cycles measured" not in explorer._shown.value  # they are not those of a preset


# --- for all


def test_a_page_without_a_kernel_has_the_picture_in_words_and_as_an_image():
    for explorer in (explore_stages(), explore_timeline(traced(2))):
        page = explorer._repr_html_()
        assert (
            'src="data:image/svg+xml;base64,' in page and f'alt="{explorer.still().label}' in page
        )
        assert 'role="img"' in explorer._shown.value and "aria-label" in explorer._shown.value
