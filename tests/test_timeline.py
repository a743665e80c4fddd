"""Timelines: rebuilding pipelines from stamps written by hand, and their figures of merit."""

from __future__ import annotations

import json

import pytest

from course_lib.pipeline_model import PipelineModel
from course_lib.timeline import KINDS
from course_lib.timeline_steps import Stamp, rebuild

TILE = 16384


class Warp:
    """Writes the stamps of one warp in program order, as the probes would."""

    def __init__(self, warp=0, block=0):
        self.key = block, warp
        self.offset = warp * 512  # where lane 0's first copy of a tile goes
        self.stamps: list[Stamp] = []
        self.now = 1000.0 + warp

    def __call__(self, kind, phase=0, cycles=0.0, line=None, shared=0, coordinate=None, **more):
        self.now += cycles
        self.stamps.append(
            Stamp(*self.key, kind, phase, self.now, line, shared, coordinate, **more)
        )

    def copy(self, tile, stage, landed=None):
        address = 128 + stage * TILE + self.offset
        self("copy", 0, 5, 30, address, tile, landed=landed)
        self("commit", 1, 8, 31)

    def wait(self, cycles):
        self("wait", 0, 2, 40)
        self("wait", 1, cycles, 40)
        self("barrier", 0, 1, 41)
        self("barrier", 1, 4, 41)

    def read(self, stage, cycles):
        # Lane 0 of warp w reads its own eighth of the tile: not where its copies went.
        self("read", 0, 3, 42, 128 + stage * TILE + self.key[1] * 2048)
        self.now += cycles

    def barrier(self, line=43):
        self("barrier", 0, 0, line)
        self("barrier", 1, 6, line)


def ring(warp, tiles, stages, wait=100, compute=200):
    """load(t+S-1); wait(t); read(t); barrier: the two-buffer kernel of lesson 03."""
    for tile in range(min(stages - 1, tiles)):
        warp.copy(tile, tile % stages)
    for tile in range(tiles):
        ahead = tile + stages - 1
        if ahead < tiles:
            warp.copy(ahead, ahead % stages)
        warp.wait(wait)
        warp.read(tile % stages, compute)
        warp.barrier()
    warp("exit")
    return warp.stamps


def build(stamps, **options):
    rows, stages = rebuild(stamps, **{"tile_bytes": TILE, **options})
    return sorted(rows, key=lambda r: (r.warp, r.tile, KINDS.index(r.kind))), stages


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_a_ring_gives_four_rows_per_tile_and_warp(stages, tiles):
    stamps = [stamp for w in range(3) for stamp in ring(Warp(w), tiles, stages)]
    rows, found = build(stamps)
    assert found == min(stages, tiles)
    assert [(r.warp, r.tile, r.kind) for r in rows] == [
        (w, t, k) for w in range(3) for t in range(tiles) for k in KINDS
    ]
    assert all(r.stage == r.tile % stages for r in rows)
    lines = {r.kind: r.line for r in rows}
    assert lines == {"load": 30, "wait": 40, "read": 42, "reuse": 43}


def test_the_intervals_are_where_the_stamps_say():
    rows, _ = build(ring(Warp(), 3, 1, wait=100, compute=200))
    first = {r.kind: (r.start, r.end) for r in rows if r.tile == 0}
    assert first == {
        "load": (1005, 1123),  # no landing time: to the end of the wait
        "wait": (1015, 1123),
        "read": (1123, 1323),
        "reuse": (1323, 1329),
    }
    assert [r.start for r in rows if r.kind == "load"][1] == 1334


def test_a_known_landing_ends_the_load():
    warp = Warp()
    warp.copy(0, 0, landed=1060.0)
    warp.wait(100)
    warp.read(0, 50)
    warp.barrier()
    rows, _ = build(warp.stamps)
    assert rows[0].end == 1060.0


def timeline_of(stamps, **options):
    from course_lib.timeline import Timeline

    rows, stages = rebuild(stamps, **{"tile_bytes": TILE, **options})
    return Timeline(rows, "virtual", "virtual GPU", stages)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_depth_and_cycles_of_a_ring(stages):
    stamps = [s for w in range(2) for s in ring(Warp(w), 20, stages, wait=100, compute=200)]
    timeline = timeline_of(stamps)
    assert timeline.depth() == stages - 1
    assert timeline.mean_iteration() == pytest.approx(13 + 107 + 203 + 6)
    assert timeline.compute_cycles() == pytest.approx(201)  # warp 1 begins a cycle later
    assert timeline.wait_cycles() == pytest.approx(108)
    assert timeline.reuse_cycles() == pytest.approx(6)
    if stages == 1:
        assert timeline.load_cycles() == pytest.approx(119)


def test_one_barrier_per_iteration_closes_both_edges():
    warp = Warp()
    warp.copy(0, 0)
    for tile in range(4):
        warp.wait(50)
        if tile < 3:
            warp.copy(tile + 1, (tile + 1) % 2)
        warp.read(tile % 2, 80)
    warp("exit")
    rows, stages = build(warp.stamps)
    assert stages == 2
    reuse = [r for r in rows if r.kind == "reuse"]
    waits = [r for r in rows if r.kind == "wait"]
    assert [r.tile for r in reuse] == [0, 1, 2]
    assert len(waits) == 4
    for edge, wait in zip(reuse, waits[1:], strict=True):
        assert wait.start < edge.start < edge.end < wait.end
        assert wait.tile == edge.tile + 1


def test_plain_loads_end_at_their_store_and_wait_there():
    warp = Warp()
    for tile in range(3):
        warp("load", 0, 4, 20, coordinate=tile)
        warp("store", 0, 10, 21, 128)
        warp("store", 1, 400, 21)
        warp("barrier", 0, 0, 22)
        warp("barrier", 1, 5, 22)
        warp.read(0, 100)
        warp.barrier()
    rows, stages = build(warp.stamps)
    assert stages == 1 and len(rows) == 12
    load, wait = rows[0], rows[1]
    assert (load.kind, load.line, load.cycles) == ("load", 20, 418)
    assert (wait.kind, wait.line, wait.cycles) == ("wait", 21, 408)


def test_a_wait_lasts_to_the_first_read_and_load_and_compute_make_up_the_iteration():
    """On hardware later stores still wait behind the stamps, and the barrier lets go late."""
    stamps = []
    for w in range(2):
        warp = Warp(w)
        for tile in range(12):
            warp("load", 0, 4, 20, coordinate=tile)
            warp("store", 0, 10, 21, 128 + 512 * w)
            warp("store", 1, 400, 21)
            warp("barrier", 0, 300, 22)  # the other stores
            warp("barrier", 1, 2, 22)
            warp.now += 350  # the barrier, which the clock was read ahead of
            warp.read(0, 900)
            warp.barrier()
        stamps += warp.stamps
    timeline = timeline_of(stamps)
    for tile in range(12):
        rows = {r.kind: r for r in timeline.rows(warp=0) if r.tile == tile}
        assert rows["load"].end == rows["wait"].end == rows["read"].start
    both = timeline.load_cycles() + timeline.compute_cycles()
    assert timeline.mean_iteration() == pytest.approx(both, abs=12)  # the reuse edge and the skew


def test_a_wait_ends_where_a_load_is_issued_before_the_read():
    warp = Warp()
    warp.copy(0, 0)
    warp.wait(50)
    end = warp.now
    warp.now += 10
    warp.copy(1, 1)
    warp.read(0, 80)
    warp.barrier()
    rows, _ = build(warp.stamps)
    wait = next(r for r in rows if r.kind == "wait")
    assert wait.end == end + 15


def test_register_prefetch_belongs_to_the_next_tile():
    """fetch(t+1); read(t); store(t+1); barrier, with two arrays."""
    warp = Warp()

    def store(tile):
        warp("store", 0, 1, 21, 128 + tile % 2 * TILE)
        warp("store", 1, 20, 21)

    warp("load", 0, 4, 20, coordinate=0)
    store(0)
    warp.barrier(22)
    for tile in range(4):
        if tile < 3:
            warp("load", 0, 4, 20, coordinate=tile + 1)
        warp.read(tile % 2, 100)
        if tile < 3:
            store(tile + 1)
        warp.barrier(22)
    rows, stages = build(warp.stamps)
    assert stages == 2
    assert [r.tile for r in rows if r.kind == "read"] == [0, 1, 2, 3]
    loads = {r.tile: r for r in rows if r.kind == "load"}
    reads = {r.tile: r for r in rows if r.kind == "read"}
    assert loads[1].start < reads[0].start < reads[0].end < loads[1].end <= reads[1].start
    assert timeline_of(warp.stamps).depth() == 1


def test_a_plain_load_that_is_stored_before_the_computation_is_over_by_then():
    """fetch(t+1); store(t+1); read(t); barrier: it began early, and nothing overlaps."""
    warp = Warp()

    def fetch_and_store(tile):
        warp("load", 0, 4, 20, coordinate=tile)
        warp("store", 0, 1, 20, 128 + tile % 2 * TILE)
        warp("store", 1, 600, 20)

    fetch_and_store(0)
    warp.barrier(22)
    for tile in range(4):
        if tile < 3:
            fetch_and_store(tile + 1)
        warp.read(tile % 2, 100)
        warp.barrier(22)
    rows, stages = build(warp.stamps)
    assert stages == 2
    loads = {r.tile: r for r in rows if r.kind == "load"}
    reads = {r.tile: r for r in rows if r.kind == "read"}
    assert list(loads) == list(reads) == [0, 1, 2, 3]
    for tile in range(3):
        assert loads[tile + 1].start < loads[tile + 1].end <= reads[tile].start
        assert loads[tile + 1].cycles > 600


def test_two_operands_are_one_tile_and_coordinates_need_not_be_dense():
    warp = Warp()
    sizes = 4096, 8192  # A's and B's panel; B's two stages follow A's two
    for tile in range(5):
        for operand, size in enumerate(sizes):
            base = 128 + operand * 2 * sizes[0] + tile % 2 * size
            warp("copy", 0, 3, 30 + operand, base, coordinate=32 * tile)
        warp("commit", 1, 5, 32)
        warp.wait(60)
        warp("read", 0, 2, 42, 128 + tile % 2 * sizes[0] + 64)
        warp("read", 0, 2, 42, 128 + 2 * sizes[0] + tile % 2 * sizes[1] + 64)
        warp.now += 50
        warp.barrier()
    rows, stages = build(warp.stamps, dense=False, tile_bytes=None)
    assert stages == 2
    assert [(r.tile, r.kind) for r in rows] == [(t, k) for t in range(5) for k in KINDS]


def test_reads_of_other_shared_arrays_are_not_reads_of_a_tile():
    warp = Warp()
    for tile in range(3):
        warp.copy(tile, 0)
        warp.wait(50)
        warp.read(0, 80)
        warp("store", 0, 1, 50, 128 + TILE + 4)  # a partial sum, behind the tile
        warp("store", 1, 1, 50)
        warp.barrier(51)
        warp("read", 0, 1, 52, 128 + TILE)
        warp.barrier(53)
    rows, _ = build(warp.stamps)
    assert [(r.tile, r.kind) for r in rows] == [(t, k) for t in range(3) for k in KINDS]
    assert all(r.line == 51 for r in rows if r.kind == "reuse")


def test_a_warp_that_loads_nothing_takes_tiles_by_the_clock():
    producer, consumer = Warp(0), Warp(1)
    for tile in range(4):
        producer.now = 1000 + 300 * tile
        producer.copy(tile, tile % 2)
        consumer.now = 1150 + 300 * tile
        consumer("wait", 0, 0, 60)
        consumer("wait", 1, 20, 60)
        consumer.read(tile % 2, 50)
        consumer("arrive", 0, 0, 61)
    rows, stages = build(producer.stamps + consumer.stamps)
    assert stages == 2
    assert [r.tile for r in rows if r.kind == "read"] == [0, 1, 2, 3]
    assert [r.warp for r in rows if r.kind == "load"] == [0] * 4
    loads = [r for r in rows if r.kind == "load"]
    assert loads[0].end == 1173  # when the consumer's wait was over
    assert all(r.line == 61 for r in rows if r.kind == "reuse")


def test_without_any_wait_each_stage_change_is_a_new_read():
    warp = Warp()
    warp.copy(0, 0)
    warp.copy(1, 1)
    warp.read(0, 70)
    warp.read(1, 70)
    warp("exit")
    rows, _ = build(warp.stamps)
    reads = [r for r in rows if r.kind == "read"]
    assert [r.tile for r in reads] == [0, 1]
    assert reads[0].end == reads[1].start
    assert not [r for r in rows if r.kind == "wait"]


def test_a_kernel_without_shared_memory_still_shows_its_loads():
    warp = Warp()
    for tile in range(5):
        warp("load", 0, 600, 9, coordinate=tile)
    warp("exit", 0, 600)
    timeline = timeline_of(warp.stamps)
    assert [row.cycles for row in timeline.intervals] == [600] * 5
    assert timeline.mean_iteration() == 600 and timeline.load_cycles() == 600
    assert timeline.depth() == 0 and timeline.compute_cycles() == 0


def test_frame_has_the_public_columns_and_every_row():
    timeline = timeline_of(ring(Warp(), 6, 2))
    frame = timeline.to_frame()
    assert list(frame.columns) == "block warp kind tile stage start end line".split()
    assert len(frame) == len(timeline) == 24
    assert frame.start.is_monotonic_increasing


def test_perfetto_file_has_every_row_with_its_lane(tmp_path):
    timeline = timeline_of(ring(Warp(), 6, 2))
    events = json.loads(timeline.to_perfetto(tmp_path / "t.json").read_text())["traceEvents"]
    bars = [e for e in events if e["ph"] == "X"]
    names = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M"}
    assert len(bars) == len(timeline)
    assert {(e["pid"], e["tid"]) for e in bars} == names


def test_text_names_the_device_and_the_figures():
    text = str(timeline_of(ring(Warp(), 20, 2)))
    assert "virtual GPU, virtual cycles" in text and "2 stages" in text
    assert "1 tile in flight" in text


def test_the_model_has_the_figures_it_was_made_from():
    timeline = PipelineModel(500, 220, 2, 40, 10).timeline()
    assert timeline.load_cycles() == 500 and timeline.compute_cycles() == 220
    assert timeline.mean_iteration() == pytest.approx(500) and timeline.depth() == 1


def test_shared_issue_slots_are_compute_and_not_barrier():
    from course_lib.tracing import charge_contention

    stamps = []
    for w, stay in enumerate((620, 900)):
        warp = Warp(w)
        warp.copy(0, 0)
        warp.wait(50)
        warp.read(0, 100)
        warp("barrier", 0, 0, 43)
        warp("barrier", 1, stay, 43)
        stamps += warp.stamps
    before, _ = build(stamps)
    after = charge_contention(before, barrier_cycles=20)
    old, new = ({(r.warp, r.kind): r for r in rows} for rows in (before, after))
    for w in range(2):
        assert new[w, "read"].cycles == old[w, "read"].cycles + 600
        assert new[w, "reuse"].start == new[w, "read"].end
        assert new[w, "reuse"].end == old[w, "reuse"].end
        assert new[w, "load"] == old[w, "load"] and new[w, "wait"] == old[w, "wait"]
    assert charge_contention(after, barrier_cycles=20) == after


# --- on the virtual GPU


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_traced_kernel_gives_its_ring(stages):
    from ring_kernel import line_of, problem, ring

    from course_lib.tracing import trace

    timeline = trace(ring(stages), problem(12), device="virtual")
    assert timeline.stages == stages and timeline.depth() == stages - 1
    rows = timeline.intervals
    assert sorted((r.warp, r.tile, r.kind) for r in rows) == sorted(
        (w, t, k) for w in range(4) for t in range(12) for k in KINDS
    )
    assert all(r.stage == r.tile % stages and r.cycles >= 0 for r in rows)
    assert {r.line for r in rows if r.kind == "wait"} == {line_of("__pipeline_wait_prior")}
    for row in rows:  # nobody reads before every warp's copy of the tile has landed
        if row.kind == "read":
            landed = [r.end for r in rows if r.kind == "load" and r.tile == row.tile]
            assert len(landed) == 4 and max(landed) <= row.start


def test_two_stages_take_less_than_load_and_compute_one_stage_takes_them_all():
    from ring_kernel import problem, ring

    from course_lib.tracing import trace

    one, two = (trace(ring(s), problem(30), device="virtual") for s in (1, 2))
    both = one.load_cycles() + one.compute_cycles()
    assert one.mean_iteration() == pytest.approx(both, rel=0.2)
    assert two.mean_iteration() < 0.8 * both


def test_trace_does_not_change_the_virtual_time():
    from ring_kernel import problem, ring

    from course_lib.problem_runs import launch_timed
    from course_lib.tracing import trace

    plain = launch_timed(ring(2), problem(20)).cycles
    assert trace(ring(2), problem(20), device="virtual").total_cycles() == pytest.approx(
        plain, rel=0.05
    )


def test_a_kernel_that_fails_has_no_timeline_but_a_reason():
    from ring_kernel import problem, ring

    from course_lib.problem_runs import DoesNotRun
    from course_lib.tracing import trace

    case = problem()
    case.arguments = lambda kernel, inputs, outputs: [inputs["x"], outputs["out"], 99]
    with pytest.raises(DoesNotRun, match="past the end"):
        trace(ring(2), case, device="virtual")


def test_a_wrong_kernel_is_traced_and_the_timeline_says_that_it_is_wrong():
    from ring_kernel import problem, ring

    from course_lib.tracing import trace

    wrong = trace(ring(2, "NO_REUSE"), problem(), device="virtual")
    assert "WRONG by verify" in str(wrong)
    assert "wrong by verify" in wrong.plot().axes[0].get_title(loc="left")
    assert "WRONG" not in str(trace(ring(2), problem(), device="virtual"))


def early_at_the_barrier(line_of_slow_warp=43):
    """Warp 0 reads 100 cycles and warp 1 500; both stamps behind the barrier come after 6."""
    stamps = []
    for number, compute in ((0, 100), (1, 500)):
        warp = Warp(number)
        warp.now = 1000.0
        warp.copy(0, 0)
        warp.wait(10)
        warp.read(0, compute)
        warp.barrier(43 if number == 0 else line_of_slow_warp)
        warp.now = 1540.0
        warp.copy(1, 0)
        warp("exit")
        stamps += warp.stamps
    rows = build(stamps)[0]
    return {r.warp: r for r in rows if r.kind == "reuse"}, rows


def test_nobody_leaves_a_barrier_before_the_last_one_has_come():
    reuse, rows = early_at_the_barrier()
    (last,) = [r.end for r in rows if r.kind == "read" and r.warp == 1]
    assert reuse[0].end == last > reuse[0].start + 100
    assert reuse[1].end == reuse[1].start + 6


def test_barriers_at_two_lines_are_not_one():
    reuse, _ = early_at_the_barrier(line_of_slow_warp=44)
    assert reuse[0].end == reuse[0].start + 6


def test_what_a_warp_does_next_shows_that_it_had_left_the_barrier():
    stamps = []
    for number, compute in ((0, 100), (1, 500)):
        warp = Warp(number)
        warp.copy(0, 0)
        warp.wait(10)
        warp.read(0, compute)
        warp.barrier()
        warp.now += 50
        warp.copy(1, 0)
        warp("exit")
        stamps += warp.stamps
    rows = build(stamps)[0]
    reuse = next(r for r in rows if r.kind == "reuse" and r.warp == 0)
    assert reuse.end == reuse.start + 6 + 50 + 5  # where it issues its next copy
