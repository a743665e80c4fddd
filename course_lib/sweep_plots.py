"""The picture of a sweep: time, waiting and resident blocks over one define."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from course_lib import plots
from course_lib.plots import INK, MARKERS, MUTED, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.sweep_report import Row, Sweep

_LINES = ("-", "--", "-.", ":")


def draw_sweep(sweep: Sweep, title: str | None = None) -> plots.CourseFigure:
    """Three panels over the values of the first varied define; a line per problem and the rest.

    With several problems times are drawn over each one's fastest, so that short and long ones share
    an axis. What is not ranked has no point, and a cross at the foot where it was tried.
    """
    name = sweep.varied[0]
    values = list(dict.fromkeys(row.defines[name] for row in sweep.rows))
    series = _series(sweep, name)
    relative = len(sweep.problems) > 1
    figure = plots.new_figure(
        6.2, sweep.figure_label(), title or f"{sweep.kernel_name}: what {name} costs and gains"
    )
    times, waits, blocks = figure.subplots(3, 1, sharex=True, height_ratios=[3, 1.4, 1.4])
    for number, (label, rows) in enumerate(series.items()):
        _draw_times(times, sweep, label, rows, values, number, relative)
        _draw_line(waits, rows, values, number, name, "wait_share", 100)
    _draw_blocks(blocks, sweep, values, name)
    times.set_ylim(bottom=0)
    waits.set_ylim(0, 100)
    times.set_ylabel("time / fastest" if relative else f"time ({sweep.unit})", fontsize=10)
    waits.set_ylabel("% waiting", fontsize=10)
    blocks.set_ylabel("blocks per SM", fontsize=10)
    for axes in (times, waits, blocks):
        plots.tidy(axes, "both")
    blocks.set_xticks(range(len(values)), [str(value) for value in values])
    blocks.set_xlabel(name, fontsize=10)
    times.legend(frameon=False, fontsize=9.5, loc="best")
    return figure


def _series(sweep: Sweep, name: str) -> dict[str, list[Row]]:
    """Rows that differ in nothing but the define on the axis, by their label."""
    found: dict[str, list[Row]] = {}
    for row in sweep.rows:
        rest = [f"{k}={v}" for k, v in row.defines.items() if k != name and k in sweep.varied]
        found.setdefault(", ".join([row.problem, *rest]), []).append(row)
    return found


def _draw_times(
    axes: Axes,
    sweep: Sweep,
    label: str,
    rows: Sequence[Row],
    values: Sequence[object],
    number: int,
    relative: bool,
) -> None:
    name, best = sweep.varied[0], sweep.best.get(rows[0].problem)
    unit = best.time if relative and best is not None and best.time else 1.0
    timed = [row for row in rows if row.ranked]
    x = [values.index(row.defines[name]) for row in timed]
    y = [(row.time or 0) / unit for row in timed]
    errors = [
        [((row.time or 0) - (row.low or 0)) / unit for row in timed],
        [((row.high or 0) - (row.time or 0)) / unit for row in timed],
    ]
    color, marker = SERIES[number % 8], MARKERS[number % 8]
    if best is not None and best in rows:
        label += f" (fastest: {name}={best.defines[name]}, {best.time_words()})"
    axes.errorbar(
        x, y, yerr=errors, color=color, marker=marker, linestyle=_LINES[number % 4], label=label,
        capsize=3, linewidth=1.6,
    )  # fmt: skip
    for row, place, height in zip(timed, x, y, strict=True):
        if row is best:
            axes.plot(place, height, marker="o", markersize=15, fillstyle="none", color=color,
                      markeredgewidth=2)  # fmt: skip
    for row in rows:
        if not row.ranked and row.state != "not reached":
            _draw_unranked(axes, row, values.index(row.defines[name]))


def _draw_unranked(axes: Axes, row: Row, place: int) -> None:
    """A cross at the foot with one word."""
    word = "wrong" if row.right is False else "does not run"
    transform = axes.get_xaxis_transform()
    axes.plot(place, 0.04, marker="x", color=INK, markersize=9, markeredgewidth=2,
              transform=transform, clip_on=False)  # fmt: skip
    axes.text(place, 0.09, word, transform=transform, ha="center", va="bottom", fontsize=8.5,
              color=MUTED)  # fmt: skip


def _draw_line(
    axes: Axes,
    rows: Sequence[Row],
    values: Sequence[object],
    number: int,
    name: str,
    field: str,
    scale: float,
) -> None:
    shown = [row for row in rows if getattr(row, field) is not None]
    axes.plot(
        [values.index(row.defines[name]) for row in shown],
        [getattr(row, field) * scale for row in shown],
        color=SERIES[number % 8], marker=MARKERS[number % 8], linestyle=_LINES[number % 4],
        linewidth=1.6,
    )  # fmt: skip


def _draw_blocks(axes: Axes, sweep: Sweep, values: Sequence[object], name: str) -> None:
    """Bars of the resident blocks, with the resource that allows no more."""
    seen: dict[int, Row] = {}
    for row in sweep.rows:
        if row.blocks_per_sm is not None:
            seen.setdefault(values.index(row.defines[name]), row)
    for place, row in seen.items():
        axes.bar(place, row.blocks_per_sm or 0, width=0.6, color="#c9c9c9", edgecolor=INK,
                 linewidth=0.6)  # fmt: skip
        axes.text(place, (row.blocks_per_sm or 0), f"{row.blocks_per_sm}", ha="center", va="bottom",
                  fontsize=9, color=INK)  # fmt: skip
        axes.text(place, 0, f"{row.limited_by}", ha="center", va="bottom", fontsize=7.5,
                  color=INK)  # fmt: skip
    most = max([row.blocks_per_sm or 0 for row in seen.values()], default=1)
    axes.set_ylim(0, max(most, 1) * 1.3)
