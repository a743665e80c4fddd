"""Timelines: what every warp of a block did when, from clock stamps in an unmodified kernel.

``tracing.trace`` stamps the kernel's PTX (``ptx/probes.py``), runs it and rebuilds the steps of the
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
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from course_lib.pipeline_model import PipelineModel

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

    ``device`` is ``"gpu"``, ``"virtual"``, ``"model"`` or ``"hazard"`` (an order, no times);
    ``overhead`` is the time with stamps over the time without (``None`` where stamps cost nothing,
    as on the virtual GPU).
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
        words = {"gpu": "cycles", "virtual": "virtual cycles", "hazard": "steps, not to scale"}
        return words.get(self.device, "modelled cycles")

    @property
    def doubted(self) -> bool:
        """Whether ``verify`` calls the kernel wrong; the notes say why."""
        return any(note.startswith("WRONG") for note in self.notes)

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
