"""What ``sweep`` found: one row per variant and problem, the table, and which is fastest."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from course_lib.gpu_limits import KB
from course_lib.timing import CONFIDENCE, RESOLUTION, Ratio, ratio_of

if TYPE_CHECKING:
    import pandas as pd

    from course_lib.plots import CourseFigure


class Row(NamedTuple):
    """One variant on one problem. None is what is not known, or was not reached.

    ``time`` is the median, ``low`` and ``high`` bound it, in ``unit``; ``wait_cycles`` are those of
    an average warp, ``wait_share`` their part of its life. ``wrong`` is why ``verify`` refuses it,
    ``error`` why it could not be compiled or run.
    """

    problem: str
    defines: Mapping[str, Any]
    unit: str = "us"
    time: float | None = None
    low: float | None = None
    high: float | None = None
    wait_cycles: float | None = None
    wait_share: float | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None
    blocks_per_sm: int | None = None
    limited_by: str = ""
    threads: int | None = None
    right: bool | None = None
    wrong: str = ""
    error: str = ""
    note: str = ""
    times: np.ndarray | None = None

    @property
    def label(self) -> str:
        """The variant in words, such as ``STAGES=4``."""
        return ", ".join(f"{name}={value}" for name, value in self.defines.items())

    @property
    def ranked(self) -> bool:
        """Whether it takes part in the ranking: right, and timed."""
        return bool(self.right) and self.time is not None and not self.error

    @property
    def state(self) -> str:
        """Why it is not ranked, in words; "" where it is."""
        if self.error:
            return self.error
        if self.right is False:
            return f"WRONG by verify, so not ranked: {self.wrong}"
        return "" if self.ranked else "not reached"

    def time_words(self) -> str:
        """The median with its interval."""
        if self.time is None:
            return ""
        if self.unit != "us":
            return f"{self.time:,.0f} {self.unit}"
        return f"{self.time:,.1f} [{self.low:,.1f}, {self.high:,.1f}] {self.unit}"

    def __repr__(self) -> str:
        words = f"{self.label} on {self.problem}: {self.state or self.time_words()}"
        if self.blocks_per_sm is not None:
            words += f", {self.blocks_per_sm} blocks per SM (limited by {self.limited_by})"
        return words


def _short(state: str) -> str:
    """The first sentence: a table has no room for more, and ``to_frame`` has it all."""
    return state.split(". ")[0]


@dataclass(frozen=True)
class Sweep:
    """The rows of a sweep, in the order problem by problem, variant by variant."""

    rows: tuple[Row, ...]
    kernel_name: str
    device: str
    device_label: str
    problems: tuple[str, ...]
    varied: tuple[str, ...]
    interrupted: bool = False

    @property
    def unit(self) -> str:
        """Of the times: ``"us"`` or ``"virtual cycles"``."""
        return "us" if self.device == "gpu" else "virtual cycles"

    def figure_label(self) -> str:
        """The words that every figure of this sweep carries."""
        how = "measured" if self.device == "gpu" else "virtual cycles"
        return f"{self.device_label}, {how}"

    def of(self, problem: str) -> list[Row]:
        """The rows of one problem."""
        if problem not in self.problems:
            raise KeyError(f"no problem is labelled {problem!r}; there are {self.problems}")
        return [row for row in self.rows if row.problem == problem]

    @property
    def best(self) -> dict[str, Row]:
        """For each problem, the fastest of the right variants; none where there is no such one.

        ``result.best["16 tiles"].defines["STAGES"]``. On a real GPU look at ``ties`` too.
        """
        found = {}
        for problem in self.problems:
            ranked = [row for row in self.of(problem) if row.ranked]
            if ranked:
                found[problem] = min(ranked, key=lambda row: row.time or 0.0)
        return found

    def ratio(self, row: Row) -> Ratio:
        """A ranked row's time over the best one's of the same problem."""
        best = self.best[row.problem]
        assert row.times is not None and best.times is not None
        return ratio_of(row.times, best.times, RESOLUTION if self.device == "gpu" else 0.0)

    def ties(self, problem: str) -> list[Row]:
        """The right variants that the measurement cannot tell from the best, itself excluded."""
        best = self.best.get(problem)
        others = [row for row in self.of(problem) if row.ranked and row is not best]
        return [row for row in others if not self.ratio(row).conclusive]

    def to_frame(self) -> pd.DataFrame:
        """One row per problem and variant; the columns' names say when cycles are virtual."""
        import pandas as pd

        cycles = "wait cycles" if self.device == "gpu" else "virtual wait cycles"
        best = self.best
        rows = []
        for row in self.rows:
            rows.append(
                {
                    "problem": row.problem,
                    **row.defines,
                    f"time ({self.unit})": row.time,
                    "low": row.low,
                    "high": row.high,
                    "times the best": float(self.ratio(row)) if row.ranked else None,
                    cycles: row.wait_cycles,
                    "wait share": row.wait_share,
                    "registers": row.registers,
                    "shared bytes": row.shared_bytes,
                    "spill bytes": row.spill_bytes,
                    "blocks per SM": row.blocks_per_sm,
                    "limited by": row.limited_by,
                    "best": row is best.get(row.problem),
                    "state": row.state,
                }
            )
        frame = pd.DataFrame(rows)
        whole = ["registers", "shared bytes", "spill bytes", "blocks per SM"]
        return frame.astype(dict.fromkeys(whole, "Int64"))

    def plot(self, title: str | None = None) -> CourseFigure:
        """Time, waiting and resident blocks over the first define that was varied."""
        from course_lib.sweep_plots import draw_sweep

        return draw_sweep(self, title)

    # --- for reading

    def _cells(self, row: Row) -> list[str]:
        def number(value: float | None, form: str = ",.0f") -> str:
            return "" if value is None else format(value, form)

        mark = "★ " if row is self.best.get(row.problem) else ""
        if not mark and row.ranked and row in self.ties(row.problem):
            mark = "≈ "
        shared = None if row.shared_bytes is None else row.shared_bytes / KB
        resident = f"{row.blocks_per_sm} ({row.limited_by})" if row.limited_by else ""
        return [
            row.problem, row.label, mark + (row.time_words() or "–"),
            number(row.wait_cycles), number(row.wait_share, ".0%"), number(row.registers),
            number(shared, ",.3g"), number(row.spill_bytes), resident,
            " ".join(filter(None, [_short(row.state), row.note])),
        ]  # fmt: skip

    def _head(self) -> list[str]:
        waits = "wait cycles" if self.device == "gpu" else "virtual wait cycles"
        return [
            "problem", "variant", "time", waits, "of a warp's life", "registers",
            "shared KB", "spilled bytes", "blocks per SM", "",
        ]  # fmt: skip

    def _how(self) -> str:
        words = f"{self.kernel_name} on {self.figure_label()}"
        if self.device == "gpu":
            words += f": medians of interleaved rounds, L2 flushed, {CONFIDENCE:.0%} intervals"
        words += "; ★ fastest"
        if any(self.ties(problem) for problem in self.best):
            words += ", ≈ not told apart from it"
        if self.interrupted:
            words += ". INTERRUPTED: what was not reached is missing"
        return words

    def __str__(self) -> str:
        table = [self._head(), *(self._cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]) - 1)]
        lines = [
            "  ".join([*(f"{c:<{w}}" for c, w in zip(line, widths, strict=False)), line[-1]])
            for line in table
        ]
        return "\n".join([*(line.rstrip() for line in lines), f"({self._how()})"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        left = "text-align:left"
        head = "".join(f"<th style='{left}'>{html.escape(name)}</th>" for name in self._head())
        body = "".join(
            "<tr>"
            + "".join(f"<td style='{left}'>{html.escape(cell)}</td>" for cell in self._cells(row))
            + "</tr>"
            for row in self.rows
        )
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<div style='color:#5f5f5f'>{html.escape(self._how())}</div>"
        )
