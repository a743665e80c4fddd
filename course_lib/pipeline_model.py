"""A model of a software pipeline: from L, C and the number of stages to the time per iteration.

The block is one consumer. To consume tile ``t`` it waits until the tile has landed, computes for
``C`` cycles and passes the reuse edge (``sync`` cycles); then the tile's stage is free. Written
with ``ready(t)``, when the wait of tile ``t`` ends, and ``end(t)``, when its stage is free::

    ready(t) = max(end(t-1), landed(t))
    end(t)   = ready(t) + C + sync

A load is issued at a place in the program, and lands ``L`` later::

    landed(u) = begin(u) + L           begin(u) = max(issue(u), begin(u-1) + transfer)

``transfer`` is the part of L for which the copy path is busy with this tile alone (bytes over
bandwidth). With 0, loads overlap freely and L is pure latency; with L, one load runs at a time.

The first loads are the prologue, issued at time 0. In the steady state ``issue(u)`` depends on
where the kernel puts the load:

``"after_wait"`` (S ≥ 2)
    ``wait(t); load(t+S-1); compute(t)``: the load goes into the stage that was freed by tile
    ``t-1``, once tile ``t`` is ready. While one tile is consumed, S-1 future ones are in flight.
    ``issue(u) = ready(u-S+1)``.
``"after_reuse"``
    ``load(t+S-1); wait(t); compute(t)``, or just as well ``wait(t); compute(t); load(t+S)``: the
    load goes out as soon as its stage is free, before the next wait. While the block *waits*, S
    loads are in flight. ``issue(u) = end(u-S)``. One stage leaves no other choice.

Both are linear recurrences in (max, +), so the time per iteration settles to the largest cycle
mean of their dependency graph. Only three cycles are there: consumer to itself, copy path to
itself, and load → consume → load through a stage:

=============  =============================================================================
S = 1          ``L + C + sync``
after_wait     ``max(C + sync, transfer, L / (S-1))``
after_reuse    ``max(C + sync, transfer, (L + C + sync) / S)``
=============  =============================================================================

So "from L + C to max(L, C)" is what two stages give when one future tile is in flight while one
computes (after_wait), or when one load runs at a time (transfer = L) for any S ≥ 2. A kernel that
issues its next load before waiting can be faster than max(L, C) where L > C and loads really
overlap, down to ``max(C, (L + C) / 2)``, and is never slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from course_lib.timeline import Timeline

Issue = Literal["after_wait", "after_reuse"]


@dataclass(frozen=True)
class PipelineModel:
    """A ring of stages as the module's text describes it; all times in cycles.

    Args:
        load_cycles: L, from a load's issue to its tile being there.
        compute_cycles: C, consuming one tile.
        stages: S, tiles that the ring holds.
        tiles: how many tiles one block consumes.
        sync_cycles: what passing the reuse edge costs, per tile.
        transfer_cycles: the part of L in which no other load can move (0 … L).
        issue: where the kernel issues its next load.

    Raises:
        ValueError: for negative cycles, fewer than one stage or tile, or an unknown ``issue``.
    """

    load_cycles: float
    compute_cycles: float
    stages: int
    tiles: int
    sync_cycles: float = 0
    transfer_cycles: float = 0
    issue: Issue = "after_wait"

    def __post_init__(self) -> None:
        if min(self.load_cycles, self.compute_cycles, self.sync_cycles, self.transfer_cycles) < 0:
            raise ValueError("cycles cannot be negative")
        if self.transfer_cycles > self.load_cycles:
            raise ValueError("transfer_cycles is a part of load_cycles, so it cannot be larger")
        if self.stages < 1 or self.tiles < 1:
            raise ValueError("a pipeline has at least one stage and one tile")
        if self.issue not in ("after_wait", "after_reuse"):
            raise ValueError(f'issue is "after_wait" or "after_reuse", not {self.issue!r}')

    def iteration_cycles(self) -> float:
        """Cycles per tile in the steady state, averaged over a turn of the ring."""
        busy = self.compute_cycles + self.sync_cycles
        if self.stages == 1:
            return self.load_cycles + busy
        if self.issue == "after_wait":
            lookahead = self.load_cycles / (self.stages - 1)
        else:
            lookahead = (self.load_cycles + busy) / self.stages
        return max(busy, self.transfer_cycles, lookahead)

    def uncovered_latency(self) -> float:
        """Cycles per iteration that the consumer still waits in the steady state.

        L for one stage; ``max(0, L - C)`` for two with one future tile in flight.
        """
        return self.iteration_cycles() - self.compute_cycles - self.sync_cycles

    def total_cycles(self) -> float:
        """From the first load's issue to the last tile's end: prologue and epilogue included."""
        return float(self._schedule()[-1, 3])

    def timeline(self) -> Timeline:
        """The modelled intervals, in the columns of a measured ``Timeline``."""
        from course_lib.timeline import Interval, Timeline

        rows = []
        previous_end = 0.0
        for tile, (issue, landed, ready, end) in enumerate(self._schedule()):
            stage = tile % self.stages
            computed = ready + self.compute_cycles
            rows.append(Interval(0, 0, "load", tile, stage, issue, landed, None))
            rows.append(Interval(0, 0, "wait", tile, stage, previous_end, ready, None))
            rows.append(Interval(0, 0, "read", tile, stage, ready, computed, None))
            rows.append(Interval(0, 0, "reuse", tile, stage, computed, end, None))
            previous_end = end
        return Timeline(rows, device="model", device_label="model", stages=self.stages)

    def _schedule(self) -> np.ndarray:
        """One row (issue, landed, ready, end) per tile, by the recurrence."""
        schedule = np.zeros((self.tiles, 4))
        end = 0.0
        path_free = 0.0
        for tile in range(self.tiles):
            issue = self._issue_time(schedule, tile)
            begin = max(issue, path_free)
            path_free = begin + self.transfer_cycles
            landed = begin + self.load_cycles
            ready = max(end, landed)
            end = ready + self.compute_cycles + self.sync_cycles
            schedule[tile] = issue, landed, ready, end
        return schedule

    def _issue_time(self, schedule: np.ndarray, tile: int) -> float:
        lookahead = self.stages - 1
        if self.issue == "after_wait" and lookahead:
            # The prologue loads S-1 tiles; the next goes out when tile 0 is ready.
            return schedule[tile - lookahead, 2] if tile >= lookahead else 0.0
        return schedule[tile - self.stages, 3] if tile >= self.stages else 0.0
