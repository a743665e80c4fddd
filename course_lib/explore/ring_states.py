"""What each stage of a ring holds at a moment, from the rows of a timeline's ``to_frame()``.

A stay is one tile's time in one stage: its load begins, it has landed, its first read begins, its
last read ends. Between these the stage is *loading*, *ready*, *being read*; otherwise it is *free*.
Two stays of one stage that overlap are the thing that must not be: a tile comes in while an
earlier one is not yet read to its end (the reuse edge), or is read before it is there (the ready
edge).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

FREE, LOADING, READY, READING = "free", "loading", "ready", "being read"
OVERWRITTEN, TOO_EARLY = "overwritten", "read too early"
STATES = (FREE, LOADING, READY, READING, OVERWRITTEN, TOO_EARLY)

EDGE_OF = {OVERWRITTEN: "reuse", TOO_EARLY: "ready"}
"""The edge that keeps each clash from being, in the words of ``Hazard.edge``."""


class Stay(NamedTuple):
    """One tile in one stage; times in cycles, infinite where the timeline has no such row."""

    stage: int
    tile: int
    load: float
    landed: float
    read: float
    done: float
    readers: tuple[int, ...] = ()

    def state(self, time: float) -> str:
        """What this tile does to its stage at a time."""
        loading = self.load <= time < self.landed
        reading = self.read <= time < self.done
        if loading:
            return TOO_EARLY if reading else LOADING
        if reading:
            return READING
        if self.landed <= time < self.read and self.read < math.inf:
            return READY
        return FREE


class Slot(NamedTuple):
    """A stage at a moment: its state, the tile it is about, and the tile that comes over it."""

    stage: int
    state: str
    tile: int | None
    coming: int | None = None


class Clash(NamedTuple):
    """A span of time in which a stage holds what it must not."""

    stage: int
    kind: str
    tile: int
    coming: int | None
    start: float
    end: float
    warps: tuple[int, ...]


def stays_of(frame: pd.DataFrame, block: int | None = None) -> list[Stay]:
    """The stays of one block (default: the first), in the order of their first moment."""
    if block is None:
        block = int(frame["block"].min()) if len(frame) else 0
    loads: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    reads: dict[tuple[int, int], list[tuple[float, float, int]]] = defaultdict(list)
    for row in frame[frame["block"] == block].itertuples():
        key = int(row.stage), int(row.tile)
        if row.kind == "load":
            loads[key].append((row.start, row.end))
        elif row.kind == "read":
            reads[key].append((row.start, row.end, int(row.warp)))
    stays = []
    for stage, tile in {**loads, **reads}:
        mine, theirs = loads.get((stage, tile), []), reads.get((stage, tile), [])
        stays.append(
            Stay(
                stage, tile,
                min((start for start, _ in mine), default=-math.inf),
                max((end for _, end in mine), default=-math.inf),
                min((start for start, _, _ in theirs), default=math.inf),
                max((end for _, end, _ in theirs), default=math.inf),
                tuple(sorted({warp for _, _, warp in theirs})),
            )
        )  # fmt: skip
    return sorted(stays, key=lambda stay: (min(stay.load, stay.read), stay.stage, stay.tile))


def clashes_of(stays: Iterable[Stay], landings_known: bool = True) -> list[Clash]:
    """Where a tile comes over one that is not read to its end, or is read before it is there.

    Where a device does not tell landings (a real GPU says *landed by*), the second is not looked
    for: only the first is seen in its clock stamps.
    """
    found = []
    by_stage: dict[int, list[Stay]] = defaultdict(list)
    for stay in stays:
        by_stage[stay.stage].append(stay)
    for stage, mine in by_stage.items():
        for stay in mine:
            for later in mine:
                if later.tile > stay.tile and later.load < stay.done < math.inf:
                    start, end = max(later.load, stay.load), stay.done
                    found.append(
                        Clash(stage, OVERWRITTEN, stay.tile, later.tile, start, end, stay.readers)
                    )
            if landings_known and stay.read < stay.landed:
                end = min(stay.landed, stay.done)
                found.append(Clash(stage, TOO_EARLY, stay.tile, None, stay.read, end, stay.readers))
    return sorted((clash for clash in found if clash.end > clash.start), key=lambda c: c.start)


def slots_at(
    stays: Iterable[Stay], clashes: Iterable[Clash], stages: int, time: float
) -> list[Slot]:
    """Every stage at a time. A clash comes before all; then reading, loading, ready, free."""
    slots = [Slot(stage, FREE, None) for stage in range(stages)]
    order = (FREE, READY, LOADING, READING)
    for stay in stays:
        state = stay.state(time)
        state = LOADING if state == TOO_EARLY else state  # the clash below says the rest
        if stay.stage < stages and order.index(state) > order.index(slots[stay.stage].state):
            slots[stay.stage] = Slot(stay.stage, state, stay.tile)
    for clash in clashes:
        if clash.stage < stages and clash.start <= time < clash.end:
            slots[clash.stage] = Slot(clash.stage, clash.kind, clash.tile, clash.coming)
    return slots
