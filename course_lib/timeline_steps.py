"""From clock stamps to the steps of a pipeline: which tile a warp loaded, awaited, read, gave back.

Stamps tell what was executed when, and at which addresses. Tiles and stages follow from the
addresses of copies and reads, never from counting. ``timeline`` says what the intervals mean.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from course_lib.timeline import Interval


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


def _hold_at_barriers(warps: Sequence[_Warp]) -> None:
    """End no warp's stay at a barrier of the block before the last one has come to it.

    On hardware the clock behind a barrier can be read before the barrier lets the warp go on, so
    the stamp alone makes a long stay look short. The n-th pass of every warp at one line is one
    barrier; where counts differ it is not a barrier of all warps. What the warp does next shows
    that it had gone on.
    """
    passes: dict[tuple[int, int | None], list[list[_Sync]]] = defaultdict(list)
    for warp in warps:
        mine: dict[int | None, list[_Sync]] = defaultdict(list)
        for sync in warp.syncs:
            if sync.kind == "barrier":
                mine[sync.line].append(sync)
        for line, syncs in mine.items():
            passes[warp.block, line].append(syncs)
    latest: dict[int, float] = {}
    for everyone in passes.values():
        if len({len(syncs) for syncs in everyone}) == 1:
            for instance in zip(*everyone, strict=True):
                arrived = max(sync.start for sync in instance)
                latest.update({id(sync): arrived for sync in instance})
    for warp in warps:
        starts = sorted(
            event.start for events in (warp.loads, warp.reads, warp.syncs) for event in events
        )
        for sync in warp.syncs:
            if sync.end < latest.get(id(sync), sync.end):
                after = bisect_left(starts, sync.end)
                then = starts[after] if after < len(starts) else latest[id(sync)]
                sync.end = max(sync.end, min(latest[id(sync)], then))


def _rows(warps: Sequence[_Warp]) -> list[Interval]:
    _hold_at_barriers(warps)
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
