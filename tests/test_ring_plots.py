"""Pictures of stages: what the ring holds, and that an overwritten stage is found and shown."""

from __future__ import annotations

import pytest

from course_lib import ring_plots
from course_lib.timeline import Interval, Timeline


def held(stages, tiles, consumed):
    return [(slot.state, slot.tile) for slot in ring_plots.slots(stages, tiles, consumed)]


def test_the_prologue_fills_every_stage_for_which_there_is_a_tile():
    assert held(3, 8, -1) == [("loading", 0), ("loading", 1), ("loading", 2)]
    assert held(3, 2, -1) == [("loading", 0), ("loading", 1), ("free", None)]


def test_in_the_steady_state_one_stage_is_read_and_the_others_are_ahead():
    assert held(3, 8, 4) == [("loading", 6), ("being read", 4), ("loading", 5)]


def test_the_epilogue_leaves_stages_free():
    assert held(3, 8, 6) == [("being read", 6), ("loading", 7), ("free", None)]
    assert held(3, 8, 7) == [("free", None), ("being read", 7), ("free", None)]


@pytest.mark.parametrize(("stages", "tiles"), [(1, 4), (3, 8), (4, 2)])
def test_every_tile_lies_in_its_stage_and_is_read_once(stages, tiles):
    read = []
    for consumed in range(tiles):
        for stage, slot in enumerate(ring_plots.slots(stages, tiles, consumed)):
            assert slot.tile is None or slot.tile % stages == stage
            if slot.state == "being read":
                read.append(slot.tile)
    assert read == list(range(tiles))


def test_the_ring_draws_what_slots_says():
    figure = ring_plots.draw_ring(3, 5)
    drawn = {p.get_gid() for p in figure.axes[0].patches}
    wanted = {
        f"slot:{moment}:{stage}:{'' if slot.tile is None else slot.tile}"
        for moment in range(-1, 5)
        for stage, slot in enumerate(ring_plots.slots(3, 5, moment))
    }
    assert drawn == wanted


def test_the_state_machine_has_four_states_and_two_edges():
    gids = [p.get_gid() for p in ring_plots.draw_stage_states().axes[0].patches]
    assert sorted(g for g in gids if g.startswith("state:")) == sorted(
        f"state:{name}" for name in ring_plots.STATES
    )
    assert (gids.count("edge"), gids.count("step")) == (2, 2)


def run(load_of_tile_2):
    """Two warps, two stages; warp 1 reads tile 0 until 300."""
    rows = [
        Interval(0, 0, "load", 0, 0, 0, 90, 1),
        Interval(0, 0, "load", 1, 1, 5, 95, 1),
        Interval(0, 0, "read", 0, 0, 100, 150, 2),
        Interval(0, 1, "read", 0, 0, 100, 300, 2),
        Interval(0, 0, "load", 2, 0, load_of_tile_2, load_of_tile_2 + 90, 1),
        Interval(0, 0, "read", 1, 1, 400, 450, 2),
        Interval(0, 1, "read", 1, 1, 400, 450, 2),
    ]
    return Timeline(rows, "gpu", "some GPU", 2)


def test_a_load_before_the_last_read_ends_is_an_overwrite():
    assert ring_plots.overwrites(run(load_of_tile_2=160)) == [
        ring_plots.Overwrite(stage=0, tile=0, later=2, warp=1, start=160, end=300)
    ]


def test_a_load_after_the_last_read_is_none():
    assert ring_plots.overwrites(run(load_of_tile_2=300)) == []


def test_the_box_begins_at_the_load_and_ends_with_the_read():
    axes = ring_plots.draw_overwrites(run(160), (0, 3), (0, 1)).axes[0]
    (box,) = [p for p in axes.patches if (p.get_gid() or "").startswith("overwritten:")]
    assert (box.get_x(), box.get_width()) == (160, 140)
    (words,) = [t.get_text() for t in axes.texts if "overwritten" in t.get_text()]
    assert "tile 2" in words and "warp 1 still reads tile 0" in words


def test_without_an_overwrite_nothing_is_boxed():
    axes = ring_plots.draw_overwrites(run(300), (0, 3), (0, 1)).axes[0]
    assert not [p for p in axes.patches if (p.get_gid() or "").startswith("overwritten:")]
