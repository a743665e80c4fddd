"""Timelines: what every warp of a block did when, from clock stamps in an unmodified kernel.

``trace`` stamps the kernel's PTX (``ptx/probes.py``), runs it and rebuilds the steps of the
pipeline from the stamps. The kinds of intervals:

========  =========================================================================================
load      from the first copy instruction of a tile to the tile's landing. A real GPU doesn't tell
          when a copy lands: there the interval ends with the wait for that tile, so it says *landed
          by*. For plain loads through registers it ends when the value is stored to shared memory.
wait      from where the warp starts waiting for a tile (a wait on copies, a store of loaded values,
          the barrier that follows) to its first read, or to the next load where that comes first
read      from the first read of the tile in shared memory to the next point of synchronisation:
          the compute phase
reuse     the barrier (or arrival) after the reads: the edge after which the stage may be reused
========  =========================================================================================

A kernel with one barrier per iteration lets that barrier close both edges; its interval is then
in a ``wait`` and a ``reuse`` row.

All times are cycles of one SM's clock, counted from the first event.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from course_lib.problem_runs import VIRTUAL_LABEL, launch_timed, shaped_for

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from course_lib.kernel import Kernel
    from course_lib.pipeline_model import PipelineModel
    from course_lib.problems import Problem
    from course_lib.virtual_gpu.launch import LaunchResult

#: Stamps per warp of the first attempt at a trace, and where growing stops.
FIRST_CAPACITY, LAST_CAPACITY = 4096, 1 << 16

KINDS = ("load", "wait", "read", "reuse")


class Interval(NamedTuple):
    """One row of a timeline; ``start`` and ``end`` in cycles."""

    block: int
    warp: int
    kind: str
    tile: int
    stage: int
    start: float
    end: float
    line: int | None

    @property
    def cycles(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True)
class Timeline:
    """Intervals of some warps, in the order of their starts.

    ``device`` is ``"gpu"``, ``"virtual"`` or ``"model"``; ``overhead`` is the time with stamps over
    the time without (``None`` where stamps cost nothing, as on the virtual GPU).
    """

    intervals: Sequence[Interval]
    device: str
    device_label: str
    stages: int
    overhead: float | None = None
    kernel_name: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows = sorted(self.intervals, key=lambda row: (row.start, row.block, row.warp, row.end))
        object.__setattr__(self, "intervals", tuple(rows))

    def __len__(self) -> int:
        return len(self.intervals)

    def rows(self, kind: str | None = None, warp: int | None = None) -> list[Interval]:
        """The intervals of one kind, one warp, or all of them."""
        return [
            row for row in self.intervals if kind in (None, row.kind) and warp in (None, row.warp)
        ]

    @property
    def clock(self) -> str:
        """What the times are: measured cycles, virtual cycles or modelled ones."""
        return {"gpu": "cycles", "virtual": "virtual cycles"}.get(self.device, "modelled cycles")

    def figure_label(self) -> str:
        """The words that every figure of this timeline carries."""
        how = {"gpu": "measured", "virtual": "virtual cycles"}.get(self.device, "")
        return f"{self.device_label}, {how}" if how else self.device_label

    # --- figures of merit

    def mean_iteration(self) -> float:
        """Cycles from one tile's first read to the next one's, averaged over the steady state.

        The first and last ``stages`` tiles are left out where enough remain. With a single tile it
        is the whole span.
        """
        starts = self._by_tile("read", min, "start") or self._by_tile("load", min, "start")
        if len(starts) < 2:
            return self.total_cycles()
        times = list(starts.values())
        skip = self._skip(len(times))
        times = times[skip : len(times) - skip]
        return (times[-1] - times[0]) / (len(times) - 1)

    def total_cycles(self) -> float:
        """From the first interval's start to the last one's end."""
        if not self.intervals:
            return 0.0
        return max(row.end for row in self.intervals) - min(row.start for row in self.intervals)

    def load_cycles(self) -> float:
        """L: from a tile's first copy to its being there for the whole block, in the steady state.

        With one buffer it ends where the block may read: after the wait and the barrier behind it,
        so that L + C is the iteration but for the reuse edge. Take L from such a kernel: with more
        stages a real GPU shows only when the kernel *noticed* that a tile had landed, and the
        virtual one gives the landing itself.
        """
        return self._span("load", "wait" if self.stages == 1 else "load")

    def compute_cycles(self) -> float:
        """C: from the block's first read of a tile to its last, in the steady state."""
        return self._span("read")

    def wait_cycles(self) -> float:
        """Cycles per tile that a warp waits, averaged over warps and the steady state."""
        return self._mean("wait")

    def reuse_cycles(self) -> float:
        """Cycles per tile at the reuse edge, averaged over warps and the steady state."""
        return self._mean("reuse")

    def depth(self) -> int:
        """Tiles in flight while one is consumed: loaded ahead, in the middle of a read.

        The median over the steady state: 0 for one buffer, S-1 for a ring of S stages.
        """
        issued = self._by_tile("load", min, "start")
        begin = self._by_tile("read", min, "start")
        end = self._by_tile("read", max, "end")
        counts = []
        last = max(issued, default=0)
        for tile, start in begin.items():
            middle = (start + end[tile]) / 2
            if tile + self.stages <= last:  # beyond that the epilogue has nothing left to load
                counts.append(sum(t > tile and at < middle for t, at in issued.items()))
        if not counts:
            counts = [
                sum(t > tile and at < (start + end[tile]) / 2 for t, at in issued.items())
                for tile, start in begin.items()
            ]
            return max(counts, default=0)
        return int(np.median(counts))

    def _skip(self, count: int) -> int:
        for skip in (self.stages, 1):
            if count - 2 * skip >= 3:
                return skip
        return 0

    def _steady(self) -> set[int]:
        tiles = sorted(self._by_tile("read", min, "start") or self._by_tile("load", min, "start"))
        skip = self._skip(len(tiles))
        return set(tiles[skip : len(tiles) - skip])

    def _by_tile(self, kind: str, choose: Any, end: str) -> dict[int, float]:
        """Per tile of the first block, ``choose`` (min or max) over warps of ``end``."""
        found: dict[int, list[float]] = defaultdict(list)
        blocks = {row.block for row in self.intervals}
        for row in self.intervals:
            if row.kind == kind and row.block == min(blocks):
                found[row.tile].append(getattr(row, end))
        return {tile: choose(found[tile]) for tile in sorted(found)}

    def _span(self, kind: str, until: str | None = None) -> float:
        """Mean cycles per tile from the first start of ``kind`` to the last end of ``until``."""
        start = self._by_tile(kind, min, "start")
        end = self._by_tile(kind, max, "end") | self._by_tile(until or kind, max, "end")
        steady = [tile for tile in start if tile in self._steady()] or list(start)
        return float(np.mean([end[tile] - start[tile] for tile in steady])) if steady else 0.0

    def _mean(self, kind: str) -> float:
        steady = self._steady()
        cycles = [row.cycles for row in self.rows(kind) if row.tile in steady]
        return float(np.mean(cycles)) if cycles else 0.0

    # --- other forms

    def to_frame(self) -> pd.DataFrame:
        """A table with the columns block, warp, kind, tile, stage, start, end, line."""
        import pandas as pd

        frame = pd.DataFrame(list(self.intervals), columns=list(Interval._fields))
        frame["line"] = frame["line"].astype("Int64")
        return frame

    def to_perfetto(self, path: str | Path) -> Path:
        """Write a trace that ui.perfetto.dev opens (one cycle is shown as one microsecond)."""
        events: list[dict[str, Any]] = []
        for row in self.intervals:
            lane = f"stage {row.stage} (loads)" if row.kind == "load" else f"warp {row.warp}"
            events.append(
                {
                    "name": f"{row.kind} {row.tile}",
                    "cat": row.kind,
                    "ph": "X",
                    "ts": row.start,
                    "dur": row.cycles,
                    "pid": row.block,
                    "tid": _lane_number(row),
                    "args": {"tile": row.tile, "stage": row.stage, "line": row.line, "lane": lane},
                }
            )
        events += _lane_names(self.intervals)
        path = Path(path)
        path.write_text(
            json.dumps({"traceEvents": events, "otherData": {"device": self.figure_label()}})
        )
        return path

    def plot(
        self,
        model: PipelineModel | Timeline | None = None,
        title: str | None = None,
        tiles: int | tuple[int, int] | None = None,
        warps: Sequence[int] | None = None,
    ) -> Figure:
        """Draw it; with ``model``, the modelled timeline below on the same cycle axis.

        ``tiles`` is how many tiles to show (default 8), or a range (first, last).
        """
        from course_lib import plots

        return plots.draw_timelines(self, model, title=title, tiles=tiles, warps=warps)

    def __str__(self) -> str:
        steady = (
            f"{self.mean_iteration():.0f} {self.clock} per tile "
            f"(load {self.load_cycles():.0f}, wait {self.wait_cycles():.0f}, "
            f"compute {self.compute_cycles():.0f})"
        )
        words = f"{self.figure_label()}: {self.stages} stage{'s' * (self.stages != 1)}, {steady}"
        words += f", {self.depth()} tile{'s' * (self.depth() != 1)} in flight while one is consumed"
        if self.overhead is not None:
            words += f"; the stamps changed the kernel's time by {self.overhead - 1:+.1%}"
        return words + "".join(f"; {note}" for note in self.notes)

    def __repr__(self) -> str:
        return f"<Timeline: {self}>"


def _lane_number(row: Interval) -> int:
    return 1000 * (row.warp + 1) + (1 + row.stage if row.kind == "load" else 0)


def _lane_names(rows: Iterable[Interval]) -> list[dict[str, Any]]:
    names = {}
    for row in rows:
        words = f"warp {row.warp}"
        if row.kind == "load":
            words += f": loads into stage {row.stage}"
        names[row.block, _lane_number(row)] = words
    return [
        {"name": "thread_name", "ph": "M", "pid": block, "tid": lane, "args": {"name": words}}
        for (block, lane), words in sorted(names.items())
    ]


# --- From stamps to intervals -------------------------------------------------------------------


class Stamp(NamedTuple):
    """One stamp of one warp, in program order.

    ``coordinate`` orders the tiles of a load (``None``: its array isn't loaded in tiles); ``site``
    tells apart instructions; ``phase`` is 0 before the instruction and 1 after it.
    """

    block: int
    warp: int
    kind: str
    phase: int
    clock: float
    line: int | None = None
    shared: int = 0
    coordinate: int | None = None
    landed: float | None = None


@dataclass
class _Load:
    """Copies of one tile by one warp, between two commits."""

    start: float
    end: float | None
    line: int | None
    position: int
    coordinate: int | None
    addresses: list[int] = field(default_factory=list)
    synchronous: bool = False
    open: bool = True
    tile: int = -1
    stage: int = 0


@dataclass
class _Sync:
    """A wait, a barrier, an arrival, or a store that waits for a loaded register."""

    kind: str
    start: float
    end: float
    line: int | None
    position: int


@dataclass
class _Read:
    """Reads between two points of synchronisation."""

    start: float
    end: float | None
    line: int | None
    position: int
    shared: int
    stage: int | None = None
    tile: int = -1


@dataclass
class _Warp:
    """One warp's steps in program order."""

    block: int
    warp: int
    loads: list[_Load] = field(default_factory=list)
    syncs: list[_Sync] = field(default_factory=list)
    reads: list[_Read] = field(default_factory=list)


def rebuild(
    stamps: Iterable[Stamp], *, dense: bool = True, tile_bytes: int | None = None
) -> tuple[list[Interval], int]:
    """Intervals and the number of stages, from stamps in program order per warp.

    ``dense`` says that coordinates are tile numbers already; else their rank is. ``tile_bytes``
    bounds the last stage, so that reads of other shared arrays aren't taken for reads of a tile.
    """
    per_warp: dict[tuple[int, int], list[Stamp]] = defaultdict(list)
    for stamp in stamps:
        per_warp[stamp.block, stamp.warp].append(stamp)
    rows: list[Interval] = []
    stages = 1
    for block in sorted({key[0] for key in per_warp}):
        warps = [_steps(*key, per_warp[key]) for key in sorted(per_warp) if key[0] == block]
        for warp in warps:
            _number_tiles(warp, dense)
        stages = max(stages, _number_stages(warps))
        _place_reads(warps, _Regions(warps, tile_bytes))
        rows += _rows(warps)
    return rows, stages


def _steps(block: int, warp: int, stamps: Sequence[Stamp]) -> _Warp:
    return _StepReader(block, warp).read(stamps)


class _StepReader:
    """Groups the stamps of one warp into loads, synchronisation and reads."""

    def __init__(self, block: int, warp: int) -> None:
        self.steps = _Warp(block, warp)
        self.unstored: list[_Load] = []  # loaded into registers, not yet in shared memory
        self.storing: _Load | None = None
        self.begun: Stamp | None = None  # phase 0 of a wait, barrier or store
        self.position = 0

    def read(self, stamps: Sequence[Stamp]) -> _Warp:
        """Walk over the stamps; what is still open at the end is closed at the last clock."""
        for self.position, stamp in enumerate(stamps):
            getattr(self, f"_{stamp.kind}", self._other)(stamp)
        self._end_unstored(stamps[-1].clock)
        for read in self.steps.reads:
            if read.end is None:
                read.end = max(read.start, stamps[-1].clock)
        return self.steps

    def _end_unstored(self, last: float) -> None:
        """Loads that stay in registers: they have come before the next such load is issued."""
        begins = [load.start for load in self.steps.loads if load.synchronous] + [last]
        for load in self.unstored:
            load.end = load.end or next(b for b in begins if b > load.start or b == last)

    def _other(self, stamp: Stamp) -> None:
        """Kinds that end nothing."""

    def _copy(self, stamp: Stamp) -> None:
        self._extend(stamp, synchronous=False).addresses.append(stamp.shared)

    def _load(self, stamp: Stamp) -> None:
        if stamp.coordinate is None:
            return  # a global load that brings no tile
        load = self._extend(stamp, synchronous=True)
        if load not in self.unstored:
            self.unstored.append(load)

    def _extend(self, stamp: Stamp, synchronous: bool) -> _Load:
        loads = self.steps.loads
        last = loads[-1] if loads else None
        if (
            last is None
            or not last.open
            or last.synchronous != synchronous
            or stamp.coordinate not in (None, last.coordinate)
        ):
            last = _Load(
                stamp.clock, None, stamp.line, self.position, stamp.coordinate,
                synchronous=synchronous,
            )  # fmt: skip
            loads.append(last)
        if stamp.landed is not None:
            last.end = max(last.end or 0, stamp.landed)
        self.storing = None
        return last

    def _close_load(self) -> None:
        if self.steps.loads:
            self.steps.loads[-1].open = False

    def _commit(self, stamp: Stamp) -> None:
        self._close_load()

    def _store(self, stamp: Stamp) -> None:
        if stamp.phase == 0:
            self.begun = stamp
            return
        if self.storing is None:
            if not self.unstored:
                return  # shared memory that holds no tile
            self.storing = self.unstored.pop(0)
        self.storing.open = False
        self.storing.end = stamp.clock
        if self.begun is not None:
            self.storing.addresses.append(self.begun.shared)
        self._sync(stamp)

    def _wait(self, stamp: Stamp) -> None:
        self._phase(stamp)

    def _barrier(self, stamp: Stamp) -> None:
        self._phase(stamp)

    def _phase(self, stamp: Stamp) -> None:
        self._close_load()
        self.storing = None
        if stamp.phase == 0:
            self.begun = stamp
        else:
            self._sync(stamp)

    def _arrive(self, stamp: Stamp) -> None:
        self.begun = stamp
        self._sync(stamp)

    def _exit(self, stamp: Stamp) -> None:
        self._close_reads(stamp.clock)

    def _sync(self, stamp: Stamp) -> None:
        begun = self.begun if self.begun and self.begun.kind == stamp.kind else stamp
        self._close_reads(begun.clock)
        self.steps.syncs.append(
            _Sync(stamp.kind, begun.clock, stamp.clock, stamp.line, self.position)
        )
        self.begun = None

    def _close_reads(self, clock: float) -> None:
        for read in reversed(self.steps.reads):
            if read.end is not None:
                break
            read.end = clock

    def _read(self, stamp: Stamp) -> None:
        self.storing = None
        self.steps.reads.append(_Read(stamp.clock, None, stamp.line, self.position, stamp.shared))


def _number_tiles(warp: _Warp, dense: bool) -> None:
    """Give every load its tile: the coordinate, its rank, or its turn where there is none."""
    known = sorted({load.coordinate for load in warp.loads if load.coordinate is not None})
    rank = {value: value if dense else i for i, value in enumerate(known)}
    for turn, load in enumerate(warp.loads):
        load.tile = turn if load.coordinate is None else rank[load.coordinate]


def _number_stages(warps: Sequence[_Warp]) -> int:
    """Give every load its stage: the rank of the lowest address that its tile goes to."""
    lowest: dict[int, int] = {}
    for load in (load for warp in warps for load in warp.loads if load.addresses):
        lowest[load.tile] = min(lowest.get(load.tile, 1 << 62), load.addresses[0])
    rank = {address: i for i, address in enumerate(sorted(set(lowest.values())))}
    for load in (load for warp in warps for load in warp.loads):
        load.stage = rank.get(lowest.get(load.tile, -1), 0)
    return max(1, len(rank))


class _Regions:
    """Which stage a shared address belongs to, from where the loads went."""

    def __init__(self, warps: Sequence[_Warp], tile_bytes: int | None) -> None:
        table: dict[int, int] = {}
        bases: dict[tuple[int, int], int] = {}  # (nth access of a load, stage) -> lowest address
        for load in (load for warp in warps for load in warp.loads):
            for nth, address in enumerate(load.addresses):
                table[address] = load.stage
                key = nth, load.stage
                bases[key] = min(bases.get(key, address), address)
        self.addresses = sorted(table)
        self.stages = [table[address] for address in self.addresses]
        self.limit = self._limit(bases, tile_bytes)

    @staticmethod
    def _limit(bases: dict[tuple[int, int], int], tile_bytes: int | None) -> int:
        """First address behind the last stage; a large number where nothing tells."""
        if not bases:
            return 0
        (nth, stage), top = max(bases.items(), key=lambda item: item[1])
        if tile_bytes:
            return max(base for (n, _), base in bases.items() if n == 0) + tile_bytes
        below = bases.get((nth, stage - 1))
        return 1 << 62 if below is None else top + (top - below)

    def stage_of(self, address: int) -> int | None:
        """The stage, or None for shared memory outside all of them."""
        index = bisect_right(self.addresses, address) - 1
        return None if index < 0 or address >= self.limit else self.stages[index]


def _place_reads(warps: Sequence[_Warp], regions: _Regions) -> None:
    """Give reads their stage and tile; keep one per phase, drop what reads no tile."""
    everyone = sorted((load for warp in warps for load in warp.loads), key=lambda x: x.start)
    for warp in warps:
        kept: list[_Read] = []
        for read in warp.reads:
            read.stage = regions.stage_of(read.shared)
            if read.stage is None:
                continue
            read.tile = _tile_in_stage(read, warp.loads, everyone)
            if read.tile < 0:
                continue
            if kept and kept[-1].end == read.end:
                if kept[-1].tile == read.tile:
                    continue
                kept[-1].end = read.start  # the next tile, and no synchronisation between them
            kept.append(read)
        warp.reads = kept


def _tile_in_stage(read: _Read, own: Sequence[_Load], everyone: Sequence[_Load]) -> int:
    """The last tile that was loaded into the stage in program order, else by the clock."""
    mine = [x.tile for x in own if x.stage == read.stage and x.position < read.position]
    if mine:
        return mine[-1]
    others = [x.tile for x in everyone if x.stage == read.stage and x.start < read.start]
    return others[-1] if others and not own else -1


def _rows(warps: Sequence[_Warp]) -> list[Interval]:
    rows: list[Interval] = []
    waits: dict[tuple[int | None, int], Interval] = {}  # (warp, or None for the first; tile)
    for warp in warps:
        for row in _consumer_rows(warp):
            rows.append(row)
            if row.kind == "wait":
                waits[warp.warp, row.tile] = row
                first = waits.get((None, row.tile), row)
                waits[None, row.tile] = min(row, first, key=lambda wait: wait.end)
    for warp in warps:
        rows += _load_rows(warp, waits)
    return rows


def _load_rows(warp: _Warp, waits: dict[tuple[int | None, int], Interval]) -> list[Interval]:
    """One row per tile: A's and B's panels of one K step are one tile."""
    merged: dict[int, Interval] = {}
    for load in warp.loads:
        wait = waits.get((warp.warp, load.tile), waits.get((None, load.tile)))
        end = load.end
        if end is None:
            if wait is None:
                continue  # nobody ever waited for it: when it landed is not known
            end = wait.end
        elif load.synchronous and wait is not None and wait.start <= end <= wait.end:
            end = wait.end  # its store began the wait that the barrier behind it completes
        row = Interval(
            warp.block, warp.warp, "load", load.tile, load.stage, load.start,
            max(end, load.start), load.line,
        )  # fmt: skip
        other = merged.get(load.tile)
        if other is not None:
            row = other._replace(start=min(other.start, row.start), end=max(other.end, row.end))
        merged[load.tile] = row
    return list(merged.values())


def _consumer_rows(warp: _Warp) -> list[Interval]:
    """Wait, read and reuse of every tile that the warp reads."""
    rows: list[Interval] = []
    taken = -1  # position of the last synchronisation that was a reuse edge only
    for number, read in enumerate(warp.reads):

        def row(kind: str, start: float, end: float, line: int | None, read: Any = read) -> None:
            rows.append(
                Interval(warp.block, warp.warp, kind, read.tile, read.stage, start, end, line)
            )

        before = warp.reads[number - 1].position if number else -1
        waits = [s for s in warp.syncs if before < s.position < read.position]
        waits = [s for s in waits if s.position > taken] or waits[-1:]
        waits = _last_wait(waits)
        if waits:
            waiting = next((s for s in waits if s.kind != "barrier"), waits[-1])
            row("wait", waits[0].start, _ready(warp, waits[-1], read), waiting.line)
        row("read", read.start, read.end or read.start, read.line)
        after = [s for s in warp.syncs if s.position > read.position]
        if number + 1 < len(warp.reads):
            after = [s for s in after if s.position < warp.reads[number + 1].position]
        edge = next((s for s in after if s.kind in ("barrier", "arrive")), None)
        if edge is not None:
            row("reuse", edge.start, edge.end, edge.line)
            if edge is after[0]:
                taken = edge.position
    return rows


def _ready(warp: _Warp, last: _Sync, read: _Read) -> float:
    """Where waiting ends: with the first read, or with a load that is issued before it.

    That may be later than the stamp behind the last barrier: on hardware the clock can be read
    before the barrier has let the warp go on.
    """
    between = (x.start for x in warp.loads if last.position < x.position < read.position)
    return max(last.end, min(between, default=read.start))


def _last_wait(syncs: list[_Sync]) -> list[_Sync]:
    """What is waited at before a read: from the first real wait on, else the last barrier."""
    for i, sync in enumerate(syncs):
        if sync.kind in ("wait", "store"):
            return syncs[i:]
    return syncs[-1:]


# --- Running ------------------------------------------------------------------------------------


def trace(kernel: Kernel, problem: Problem, device: str = "auto", *, blocks: int = 1) -> Timeline:
    """Run a kernel once with clock stamps and give the timeline of its first block(s).

    ``blocks`` counts stamped blocks, all from one SM. Raises ``DoesNotRun`` (virtual) or
    ``GpuError`` (real) with the reason where the kernel cannot finish. A kernel that ``verify``
    finds wrong on the problem's small case is traced all the same, and a note says so.
    """
    from course_lib.devices import resolve
    from course_lib.verification import doubt

    where, _ = resolve(device, kernel)
    found = (_trace_real if where == "gpu" else _trace_virtual)(kernel, problem, blocks)
    wrong = doubt(kernel, problem)
    return replace(found, notes=(wrong, *found.notes)) if wrong else found


def _trace_real(kernel: Kernel, problem: Problem, blocks: int) -> Timeline:
    from course_lib.real_gpu.guard import shared_helper

    answer = shared_helper().call(
        "trace_problem",
        kernel=kernel.to_spec(),
        problem=problem.to_spec(),
        slots=blocks,
        lock=True,
    )
    stamps = stamps_from_events(
        answer["events"], answer["sites"], answer["arrays"], answer["offsets"], problem
    )
    timeline = _timeline(kernel, problem, stamps, "gpu", answer["device"])
    notes = tuple(answer["notes"]) + _truncation_notes(answer["truncated"])
    return replace(timeline, overhead=answer["overhead"], notes=notes)


def _trace_virtual(kernel: Kernel, problem: Problem, blocks: int) -> Timeline:
    from course_lib.ptx import probes
    from course_lib.virtual_gpu.machine import H200

    probed = probes.stamp(kernel.ptx(), kernel.module, kernel.name)
    stamped = shaped_for(kernel, problem).rewritten(probed.text, probes.EXTRA_PARAMETERS)
    inputs = problem.inputs()
    warps = -(-problem.threads(kernel) // 32)
    stride = H200.sms
    capacity = FIRST_CAPACITY
    while True:
        buffer = probes.allocate(np, blocks, warps, capacity)
        extra = (buffer, np.uint32(capacity), np.uint32(blocks), np.uint32(stride))
        result = launch_timed(stamped, problem, inputs, extra=extra, trace=True)
        decoded = probes.decode(buffer, probed)
        if not decoded.truncated or capacity >= LAST_CAPACITY:
            break
        capacity *= 4
    stamps = _virtual_stamps(decoded.events, probed.sites, _origin(buffer), result, problem, inputs)
    timeline = _timeline(kernel, problem, stamps, "virtual", VIRTUAL_LABEL)
    return replace(timeline, notes=tuple(probed.notes) + _truncation_notes(decoded.truncated))


def _origin(buffer: np.ndarray) -> int:
    """The raw clock that decoded clocks count from: that of the first header."""
    from course_lib.ptx.probes import HEADER_MARK

    headers = buffer[:, :, 0, :].reshape(-1, 4)
    present = headers[headers[:, 1] == HEADER_MARK]
    return int(present[0, 0]) if len(present) else 0


def _virtual_stamps(
    events: np.ndarray,
    sites: Sequence[Any],
    origin: int,
    result: LaunchResult,
    problem: Problem,
    inputs: dict[str, Any],
) -> list[Stamp]:
    """Stamps with the landing times that the virtual GPU alone knows."""
    # A window of the virtual address space begins at every array, so what is left of an address
    # in a stamp is the offset; the arrays that are loaded in tiles are asked in turn.
    offsets = events["global_address"].astype(np.int64)
    arrays = []
    for offset, block in zip(offsets, events["block"], strict=True):
        inside = [
            name
            for name, array in inputs.items()
            if offset < array.nbytes and problem.tile_of(name, int(offset), int(block)) is not None
        ]
        arrays.append(inside[0] if inside else "")
    landed = _landing_times(events, sites, origin, result.landings)
    return stamps_from_events(events, sites, arrays, offsets, problem, landed)


def _landing_times(
    events: np.ndarray, sites: Sequence[Any], origin: int, log: np.ndarray
) -> list[float | None]:
    """For each stamp of a run of copies, when the last copy of the run landed.

    The log has every copy of lane 0, the stamps only the first of each run: a run's copies are
    those that were issued from its stamp on and before the warp's next one.
    """
    copies = {site.index for site in sites if site.kind == "copy"}
    landed: list[float | None] = [None] * len(events)
    is_copy = np.isin(events["site"], list(copies))
    for block, warp in {(int(e["block"]), int(e["warp"])) for e in events}:
        mine = np.flatnonzero(is_copy & (events["block"] == block) & (events["warp"] == warp))
        logged = log[(log["block"] == block) & (log["warp"] == warp)]
        run = np.searchsorted(events["clock"][mine], logged["issued"] - origin, "right") - 1
        for number, index in enumerate(mine):
            times = logged["landed"][run == number]
            if len(times):
                landed[index] = float(times.max() - origin)
    return landed


def _truncation_notes(truncated: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    if not truncated:
        return ()
    return (f"{len(truncated)} warps had more to tell than there was room for",)


def _timeline(
    kernel: Any, problem: Any, stamps: Sequence[Stamp], device: str, label: str
) -> Timeline:
    rows, stages = rebuild(stamps, dense=problem.dense_tiles, tile_bytes=problem.tile_bytes())
    if device == "virtual":
        rows = charge_contention(rows)
    origin = min((row.start for row in rows), default=0.0)
    rows = [row._replace(start=row.start - origin, end=row.end - origin) for row in rows]
    return Timeline(rows, device, label, stages, kernel_name=kernel.name)


def charge_contention(
    rows: Sequence[Interval], barrier_cycles: float | None = None
) -> list[Interval]:
    """Move time that warps spend sharing issue slots from a barrier to the compute before it.

    The virtual clock adds this time where a warp next stops, which is the barrier at the end of its
    reads; stamps in between don't see it. The last warp passes a barrier in ``barrier_cycles``, so
    what even the shortest stay at a reuse edge takes beyond that was computing.
    """
    from course_lib.virtual_gpu.machine import H200

    cost = H200.barrier_cycles if barrier_cycles is None else barrier_cycles
    edges: dict[tuple[int, int], list[Interval]] = defaultdict(list)
    for row in rows:
        if row.kind == "reuse":
            edges[row.block, row.tile].append(row)
    excess = {key: min(row.cycles for row in found) - cost for key, found in edges.items()}
    starts = {(row.block, row.warp, row.tile): row.start for row in rows if row.kind == "reuse"}
    ends = {(row.block, row.warp, row.tile): row.end for row in rows if row.kind == "read"}
    moved = []
    for row in rows:
        key = row.block, row.warp, row.tile
        late = max(0.0, excess.get((row.block, row.tile), 0.0))
        if late and key in ends and starts.get(key) == ends[key]:
            if row.kind == "read":
                row = row._replace(end=row.end + late)
            elif row.kind == "reuse":
                row = row._replace(start=row.start + late)
        moved.append(row)
    return moved


def stamps_from_events(
    events: np.ndarray,
    sites: Sequence[Any],
    arrays: Sequence[str],
    offsets: Sequence[int] | np.ndarray,
    problem: Problem,
    landed: Sequence[float | None] | None = None,
) -> list[Stamp]:
    """``Stamp`` records from decoded events (``ptx.probes.EVENT``) of either device."""
    by_index = {site.index: site for site in sites}
    stamps = []
    for number, event in enumerate(events):
        site = by_index[int(event["site"])]
        name, offset = arrays[number], int(offsets[number])
        block = int(event["block"])
        coordinate = problem.tile_of(name, offset, block) if name else None
        stamps.append(
            Stamp(
                block,
                int(event["warp"]),
                site.kind,
                int(event["phase"]),
                float(event["clock"]),
                site.cell_line,
                int(event["shared"]),
                coordinate,
                landed[number] if landed is not None else None,
            )  # fmt: skip
        )
    return stamps
