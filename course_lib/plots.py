"""Every drawing of the course, in one palette.

Colours keep their order of lightness in greyscale and differ for colour-blind readers; kinds also
differ by hatching. Figures are plain ``Figure`` objects (no pyplot state, no interactive backend),
and each says in its lower right corner which device the numbers come from. Whatever is drawn for an
interval carries a ``gid`` ``row:<n>``, the number of its row in ``Timeline.intervals``.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from course_lib.pipeline_model import PipelineModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.stress_report import StressReport
    from course_lib.timeline import Interval, Timeline

WIDTH = 10.0  # inches: the width of a notebook cell
INK = "#1b1b1b"
MUTED = "#5f5f5f"
GRID = "#d9d9d9"


class Style(NamedTuple):
    """How one kind of interval looks."""

    face: str
    hatch: str
    edge: str
    text: str
    words: str


# Lightness (CIE L*) falls from wait (92) over load (77) and read (37) to reuse (11).
STYLES: Mapping[str, Style] = {
    "load": Style("#8fc7e8", "///", "#2f7fb0", INK, "load in flight"),
    "wait": Style("#fff1d6", "...", "#c98a1b", INK, "wait"),
    "read": Style("#0b5a8a", "", "#06324d", "#ffffff", "read and compute"),
    "reuse": Style("#1b1b1b", "", "#1b1b1b", "#ffffff", "reuse edge"),
}

# Okabe and Ito's palette, ordered so that neighbours differ in lightness as well.
SERIES = ("#0072B2", "#E69F00", "#1b1b1b", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#8c8c8c")
MISSING = "#D55E00"
"""A missing edge and what comes of it: vermillion, which no bar of a timeline has."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo", "--")


class CourseFigure(Figure):
    """A figure that a notebook shows by itself, whichever backend is (not) set."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def new_figure(height: float, device_words: str, title: str | None = None) -> CourseFigure:
    """An empty figure with its title and the words about the device."""
    figure = CourseFigure(figsize=(WIDTH, height), layout="constrained", facecolor="white")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    label = figure.supxlabel(device_words, x=0.995, ha="right", fontsize=9, color=MUTED)
    label.set_gid("device")
    return figure


def tidy(axes: Axes, grid: str = "x") -> None:
    """Quiet frame, light grid behind the data."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(MUTED)
    axes.tick_params(colors=INK, labelsize=9.5)
    axes.grid(axis=grid, color=GRID, linewidth=0.7)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


# --- Timelines ----------------------------------------------------------------------------------


def draw_timelines(
    timeline: Timeline,
    model: PipelineModel | Timeline | None = None,
    *,
    title: str | None = None,
    tiles: int | tuple[int, int] | None = None,
    warps: Sequence[int] | None = None,
) -> CourseFigure:
    """A timeline, and below it the modelled one on the same scale of cycles.

    ``tiles`` is a number of tiles from the first, or a half-open range of them (default: 8).
    ``warps`` are the warps to draw (default: the first that reads tiles).
    """
    window = _window(timeline, tiles)
    panels = [_Panel(timeline, window, warps)]
    if model is not None:
        modelled = model.timeline() if isinstance(model, PipelineModel) else model
        panels.append(_Panel(modelled, window, None))
    lanes = [len(panel.lanes) for panel in panels]
    height = 1.25 + sum(0.36 * count + 0.5 for count in lanes)
    figure = new_figure(height, timeline.figure_label(), title or timeline.kernel_name or None)
    axes = figure.subplots(
        len(panels), 1, sharex=True, squeeze=False, height_ratios=[c + 0.6 for c in lanes]
    )[:, 0]
    for one, panel in zip(axes, panels, strict=True):
        panel.draw(one)
    words = "cycles" if timeline.device != "virtual" else "virtual cycles"
    if window[0] > 0:
        words += f", counted from where the read of tile {window[0]} begins"
    axes[-1].set_xlabel(words, fontsize=10, color=INK)
    left = min(panel.extent[0] for panel in panels)
    right = max(panel.extent[1] for panel in panels)
    margin = 0.01 * max(right - left, 1.0)
    axes[0].set_xlim(left - margin, right + margin)
    _legend(figure, panels)
    return figure


def _window(timeline: Timeline, tiles: int | tuple[int, int] | None) -> tuple[int, int]:
    if tiles is None:
        tiles = 8
    if isinstance(tiles, int):
        tiles = (0, tiles)
    last = max((row.tile for row in timeline.intervals), default=0) + 1
    first, stop = int(tiles[0]), min(int(tiles[1]), last)
    if first < 0 or stop <= first:
        raise ValueError(f"there are tiles 0 to {last - 1} to draw, none of them in {tiles}")
    return first, stop


class _Panel:
    """One timeline laid out in lanes: a lane per stage for loads, then a lane per warp."""

    def __init__(
        self, timeline: Timeline, window: tuple[int, int], warps: Sequence[int] | None
    ) -> None:
        self.timeline = timeline
        shown = [
            (number, row)
            for number, row in enumerate(timeline.intervals)
            if window[0] <= row.tile < window[1]
        ]
        block = min((row.block for _, row in shown), default=0)
        shown = [(n, row) for n, row in shown if row.block == block]
        consumers = sorted({row.warp for _, row in shown if row.kind == "read"})
        producers = sorted({row.warp for _, row in shown if row.kind == "load"})
        self.all_warps = len({row.warp for _, row in shown})
        self.warps = list(warps) if warps is not None else (consumers[:1] or producers[:1])
        self.rows = [(n, row) for n, row in shown if self._wanted(row)]
        self.origin = self._origin(window)
        stages = sorted({row.stage for _, row in self.rows if row.kind == "load"})
        self.lanes: dict[tuple[str, int], int] = {}
        for stage in stages:
            self.lanes["stage", stage] = len(self.lanes)
        for warp in self.warps:
            if any(row.warp == warp and row.kind != "load" for _, row in self.rows):
                self.lanes["warp", warp] = len(self.lanes)
        starts = [row.start - self.origin for _, row in self.rows]
        ends = [row.end - self.origin for _, row in self.rows]
        self.extent = (min(starts, default=0.0), max(ends, default=1.0))

    def _wanted(self, row: Interval) -> bool:
        # Every warp brings a part of the tile, so the bar in a stage's lane is all their loads.
        return row.kind == "load" or row.warp in self.warps

    def _origin(self, window: tuple[int, int]) -> float:
        """Time 0: the first event, or the read of the first tile shown where that is later."""
        if window[0] == 0:
            return min((row.start for _, row in self.rows), default=0.0)
        reads = [row.start for _, row in self.rows if row.kind == "read" and row.tile == window[0]]
        return min(reads, default=min((row.start for _, row in self.rows), default=0.0))

    def _lane(self, row: Interval) -> int:
        return (
            self.lanes["stage", row.stage] if row.kind == "load" else self.lanes["warp", row.warp]
        )

    def draw(self, axes: Axes) -> None:
        """Put the bars on the axes; small ones on top, so that none is hidden."""
        self._widths = max(self.extent[1] - self.extent[0], 1.0)
        for number, row in self.rows:
            self._bar(axes, number, row)
        for (_, tile, lane), rows in self._groups().items():
            self._number(axes, tile, lane, rows)
        names = [f"stage {k}" if what == "stage" else self._warp_words(k) for what, k in self.lanes]
        if self.timeline.device == "model":
            names = [n if n.startswith("stage") else "block" for n in names]
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.45, -0.55)
        axes.tick_params(axis="y", length=0)
        tidy(axes)
        axes.spines["left"].set_visible(False)
        words = "measured" if self.timeline.device == "gpu" else self.timeline.device_label
        if self.timeline.device == "virtual":
            words = "on the virtual GPU"
        per_tile = f"{self.timeline.mean_iteration():,.0f} {self.timeline.clock} per tile"
        if self.timeline.doubted:
            per_tile += " (wrong by verify: these times mean nothing)"
        axes.set_title(f"{words}: {per_tile}", loc="left", fontsize=10.5, color=INK)

    def _warp_words(self, warp: int) -> str:
        """The name of a warp's lane; where not every warp has one, of how many it is."""
        drawn = sum(what == "warp" for what, _ in self.lanes)
        return f"warp {warp} of {self.all_warps}" if drawn < self.all_warps else f"warp {warp}"

    def _bar(self, axes: Axes, number: int, row: Interval) -> None:
        style = STYLES[row.kind]
        height = {"load": 0.62, "wait": 0.62, "read": 0.72, "reuse": 0.86}[row.kind]
        lane = self._lane(row)
        bar = Rectangle(
            (row.start - self.origin, lane - height / 2), row.cycles, height,
            facecolor=style.face, edgecolor=style.edge, hatch=style.hatch,
            linewidth=0.0 if row.kind == "load" else 0.8,
            zorder={"wait": 2, "load": 2, "read": 3, "reuse": 4}[row.kind],
        )  # fmt: skip
        bar.set_gid(f"row:{number}")
        axes.add_patch(bar)

    def _groups(self) -> dict[tuple[str, int, int], list[Interval]]:
        """Rows that look like one bar: one kind, one tile, one lane."""
        groups: dict[tuple[str, int, int], list[Interval]] = {}
        for _, row in self.rows:
            if row.kind != "reuse":
                groups.setdefault((row.kind, row.tile, self._lane(row)), []).append(row)
        return groups

    def _number(self, axes: Axes, tile: int, lane: int, rows: Sequence[Interval]) -> None:
        """The tile's number in its bar, where there is room."""
        start, end = min(row.start for row in rows), max(row.end for row in rows)
        if end - start < 0.022 * self._widths:
            return
        style = STYLES[rows[0].kind]
        box = {"boxstyle": "round,pad=0.12", "facecolor": style.face, "edgecolor": "none"}
        axes.text(
            (start + end) / 2 - self.origin, lane, str(tile), ha="center", va="center",
            fontsize=8.5, color=style.text, zorder=5, bbox=box if style.hatch else None,
            clip_on=True,
        )  # fmt: skip


def _legend(figure: Figure, panels: Sequence[_Panel]) -> None:
    kinds = {row.kind for panel in panels for _, row in panel.rows}
    handles = []
    for kind, style in STYLES.items():
        if kind not in kinds:
            continue
        words = style.words
        if kind == "load" and panels[0].timeline.device == "gpu":
            words = "load (landed by)"
        handles.append(
            Patch(
                facecolor=style.face,
                edgecolor=style.edge,
                hatch=style.hatch,
                label=words,
            )  # fmt: skip
        )
    figure.legend(
        handles=handles, loc="outside lower left", ncols=max(len(handles), 1), fontsize=9,
        frameon=False, handlelength=1.8, columnspacing=1.4, title="numbers in bars: tiles",
        title_fontsize=9, alignment="left",
    )  # fmt: skip


# --- Comparisons --------------------------------------------------------------------------------


def draw_ratios(
    labels: Sequence[str],
    ratios: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    *,
    words: Sequence[str],
    xlabel: str,
    device_words: str,
    title: str | None = None,
) -> CourseFigure:
    """Bars of ratios with their intervals, and a line at 1; ``words`` stand beside the bars."""
    figure = new_figure(1.15 + 0.46 * len(labels), device_words, title)
    axes = figure.subplots()
    places = range(len(labels))
    errors = [
        [r - low for r, low in zip(ratios, lows, strict=True)],
        [high - r for r, high in zip(ratios, highs, strict=True)],
    ]
    for i in places:
        axes.barh(
            i, ratios[i], height=0.62, color=SERIES[0] if i else "#8c8c8c", edgecolor=INK,
            linewidth=0.6,
        )  # fmt: skip
    axes.errorbar(
        ratios, places, xerr=errors, fmt="none", ecolor=INK, elinewidth=1.6, capsize=4, zorder=4
    )
    reach = max([1.0, *highs])
    for i, text in enumerate(words):
        axes.text(highs[i] + 0.02 * reach, i, text, va="center", fontsize=9.5, color=INK)
    axes.axvline(1.0, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.set_xlim(0, reach * 1.45)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_yticks(list(places), list(labels))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(xlabel, fontsize=10)
    tidy(axes)
    return figure


def draw_curves(
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    device_words: str,
    title: str | None = None,
    levels: Mapping[str, float] | None = None,
) -> CourseFigure:
    """Lines over one axis, such as a trade-off; ``levels`` are named horizontal lines."""
    figure = new_figure(3.8, device_words, title)
    axes = figure.subplots()
    for i, (name, values) in enumerate(curves.items()):
        axes.plot(
            x, values, color=SERIES[i % 8], marker=MARKERS[i % 8], linewidth=1.8, markersize=6,
            label=name,
        )  # fmt: skip
    for name, level in (levels or {}).items():
        axes.axhline(level, color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)))
        axes.annotate(
            name, (1.0, level), xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=9, color=MUTED,
        )  # fmt: skip
    axes.set_xlabel(xlabel, fontsize=10)
    axes.set_ylabel(ylabel, fontsize=10)
    axes.set_ylim(bottom=0)
    tidy(axes, "both")
    if len(curves) > 1:
        axes.legend(frameon=False, fontsize=9.5)
    return figure


def draw_lines_of_source(
    lines: Sequence[tuple[str, float]],
    *,
    xlabel: str,
    device_words: str,
    title: str | None = None,
) -> CourseFigure:
    """Horizontal bars beside lines of the learner's source, in monospace."""
    figure = new_figure(1.1 + 0.34 * max(len(lines), 1), device_words, title)
    axes = figure.subplots()
    values = [value for _, value in lines]
    axes.barh(
        range(len(lines)), values, height=0.66, color=STYLES["wait"].face,
        edgecolor=STYLES["wait"].edge, hatch="...",
    )  # fmt: skip
    axes.set_yticks(range(len(lines)), [text for text, _ in lines], fontfamily="monospace")
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    reach = max([*values, 1e-9])
    for i, value in enumerate(values):
        axes.text(value + 0.01 * reach, i, f"{value:,.0f}", va="center", fontsize=9)
    axes.set_xlim(0, reach * 1.12)
    axes.set_xlabel(xlabel, fontsize=10)
    tidy(axes)
    axes.tick_params(axis="y", labelsize=8.5)
    return figure


def draw_stress(report: StressReport, title: str | None = None) -> CourseFigure:
    """Failures so far over the iterations of each half; a straight line to the corner is "always".

    Both halves share the axes, so a fault that only delays show, or only their absence, is seen at
    once.
    """
    figure = new_figure(3.2, report.device_label, title)
    axes = figure.add_subplot()
    tidy(axes, "both")
    numbers = range(report.first, report.first + report.iterations)
    failed = set(report.failed)
    halves = {"a warp delayed": True, "nothing delayed": False}
    for index, (words, delayed) in enumerate(halves.items()):
        mine = [number for number in numbers if (report.delay(number) is not None) == delayed]
        so_far = list(itertools.accumulate(number in failed for number in mine))
        if not mine:
            continue
        label = f"{words}: {so_far[-1]:,} of {len(mine):,} failed"
        axes.step(
            range(1, len(mine) + 1), so_far, where="mid", color=SERIES[index], label=label,
            linestyle=("-", "--")[index],
        )  # fmt: skip
    axes.set_xlabel("iterations of this half")
    axes.set_ylabel("failures so far")
    axes.set_ylim(bottom=-0.5)
    axes.legend(loc="upper left", frameon=False)
    return figure
