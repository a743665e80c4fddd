"""The picture of a hazard: the ring over time, its two accesses, and the arrow that is missing.

Every stage is a row with two lanes, loads above and reads below. Time runs from left to right in
the order of the program, not to scale. Thin arrows are the edges that each stage needs; the one
that the kernel lacks is thick and dashed, and the access that should have waited for it is drawn as
early as nothing keeps it from being.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from course_lib import plots
from course_lib.plots import INK, MISSING, MUTED, STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.hazards import Access, Hazard

_LANES = {"load": -0.25, "read": 0.25}
_HEIGHT = 0.27
_MOST_STAGES = 8
_READ = 0.75  # of an iteration


class Bar(NamedTuple):
    """One load or read on the picture; ``start`` and ``end`` in iterations."""

    kind: str
    tile: int
    stage: int
    start: float
    end: float


class Ring:
    """Where loads and reads of a ring of S stages lie, and where the hazard pulls one of them."""

    def __init__(self, hazard: Hazard, fills: Mapping[int | None, tuple[int, ...]]) -> None:
        self.hazard = hazard
        self.stages = max(1, min(hazard.place.stages, _MOST_STAGES))
        self.stage = min(hazard.place.stage or 0, self.stages - 1)
        self.stage_of = {t: s for s, tiles in fills.items() if s is not None for t in tiles}
        self.unit = 2.0 if self.stages == 1 else 1.0
        self.known = hazard.second.tile is not None or hazard.first.tile is not None
        self.early, self.late = self._tiles()
        first = max(0, min(self.early, self.late) - 1)
        last = max(self.early, self.late) + (1 if self.stages > 1 else 0)
        self.tiles = range(first, max(last, first + self.stages) + 1)

    def _tiles(self) -> tuple[int, int]:
        """Tiles of the two accesses; where nobody knows them, those of the first round."""
        one, two = self.hazard.first.tile, self.hazard.second.tile
        if self.hazard.edge == "ready":
            tile = one if one is not None else two
            tile = self.stage if tile is None else tile
            return tile, tile
        if one is None and two is None:
            return self.stage, self.stage + self.stages
        if one is None:
            assert two is not None
            return max(two - self.stages, 0), two
        return one, one + self.stages if two is None else two

    def stage_for(self, tile: int) -> int:
        return self.stage_of.get(tile, tile % self.stages) % self.stages

    def bar(self, kind: str, tile: int) -> Bar:
        """A load or read where it lies when both edges are there."""
        stage = self.stage_for(tile)
        if tile in (self.early, self.late):
            stage = self.stage
        read = tile * self.unit
        if kind == "read":
            return Bar(kind, tile, stage, read, read + _READ)
        begin = (tile - self.stages) * self.unit + 1.0
        return Bar(kind, tile, stage, begin, read - 0.25)

    def drawn(self, kind: str, tile: int) -> Bar:
        """The same, but the access that waits for nothing lies too early or lasts too long."""
        bar = self.bar(kind, tile)
        if self.hazard.edge == "ready" and kind == "load" and tile == self.early:
            return bar._replace(end=bar.end + 0.25 + 0.6 * _READ)
        if self.hazard.edge == "reuse" and kind == "load" and tile == self.late:
            return bar._replace(start=bar.start - 0.25 - 0.6 * _READ)
        return bar

    def bars(self) -> list[Bar]:
        """Everything in the window."""
        return [self.drawn(kind, tile) for tile in self.tiles for kind in ("load", "read")]

    def missing(self) -> tuple[Bar, Bar]:
        """The bars that the missing arrow joins, the one that must come first before the other."""
        if self.hazard.edge == "ready":
            return self.drawn("load", self.early), self.drawn("read", self.late)
        if self.hazard.first.kind in ("read", "wgmma read", "bulk store"):
            return self.drawn("read", self.early), self.drawn("load", self.late)
        return self.drawn("load", self.early), self.drawn("load", self.late)

    def label(self, tile: int) -> str:
        """The tile's number, or its distance from the first where numbers are not known."""
        if self.known:
            return str(tile)
        ahead = tile - self.early
        return "t" if ahead == 0 else f"t{ahead:+d}"


def draw_hazard(
    hazard: Hazard, kernel_name: str, fills: Mapping[int | None, tuple[int, ...]] | None = None
) -> plots.CourseFigure:
    """The picture; ``fills`` maps stage to the tiles that the kernel brings there."""
    ring = Ring(hazard, fills or {})
    figure = plots.new_figure(
        2.45 + 0.95 * ring.stages, "virtual GPU, not to scale",
        f"{kernel_name}: {title(hazard, ring)}",
    )  # fmt: skip
    axes = figure.subplots()
    bars = ring.bars()
    for bar in bars:
        _draw_bar(axes, ring, bar)
    _draw_edges(axes, ring)
    _draw_missing(axes, ring)
    left = min(bar.start for bar in bars if bar.end > ring.tiles[0] * ring.unit - 1.4)
    _frame(axes, ring, max(left, ring.tiles[0] * ring.unit - 1.4), max(bar.end for bar in bars))
    _legend(figure)
    return figure


def title(hazard: Hazard, ring: Ring) -> str:
    """One line that names the edge, the stage and both tiles."""
    place = hazard.place.name
    early, late = ring.label(ring.early), ring.label(ring.late)
    if hazard.edge == "ready":
        return f"missing ready edge at {place}, tile {early} is read before its load is complete"
    if hazard.edge == "reuse":
        return f"missing reuse edge at {place}, tile {late} comes while tile {early} may be in use"
    return f"race at {place}"


def _draw_bar(axes: Axes, ring: Ring, bar: Bar) -> None:
    style = STYLES[bar.kind]
    centre = bar.stage + _LANES[bar.kind]
    patch = Rectangle(
        (bar.start, centre - _HEIGHT / 2), bar.end - bar.start, _HEIGHT,
        facecolor=style.face, edgecolor=style.edge, hatch=style.hatch, linewidth=0.8, zorder=2,
        clip_on=True,
    )  # fmt: skip
    patch.set_gid(f"{bar.kind}:{bar.tile}")
    axes.add_patch(patch)
    if bar in ring.missing():
        outline = Rectangle(
            (bar.start, centre - _HEIGHT / 2), bar.end - bar.start, _HEIGHT,
            facecolor="none", edgecolor=MISSING, linewidth=2.4, zorder=4, clip_on=True,
        )  # fmt: skip
        axes.add_patch(outline)
    box = {"boxstyle": "round,pad=0.15", "facecolor": style.face, "edgecolor": "none"}
    words = ring.label(bar.tile)
    axes.text(
        (max(bar.start, _left(ring)) + bar.end) / 2, centre, words, ha="center", va="center",
        fontsize=10, color=style.text, zorder=5, bbox=box if style.hatch else None, clip_on=True,
    )  # fmt: skip


def _left(ring: Ring) -> float:
    return ring.tiles[0] * ring.unit - 1.4


def _arrow(axes: Axes, begin: tuple[float, float], end: tuple[float, float], missing: bool) -> None:
    arrow = FancyArrowPatch(
        begin, end, arrowstyle="-|>", mutation_scale=20 if missing else 9, shrinkA=0, shrinkB=0,
        color=MISSING if missing else MUTED, linewidth=2.8 if missing else 0.9,
        linestyle=(0, (3, 1.6)) if missing else "solid", zorder=6 if missing else 3, clip_on=True,
    )  # fmt: skip
    arrow.set_gid("missing" if missing else "edge")
    axes.add_patch(arrow)


def _ends(first: Bar, second: Bar) -> tuple[tuple[float, float], tuple[float, float]]:
    """From the end of one bar to the start of the other, on the sides that face each other."""
    down = _LANES[second.kind] - _LANES[first.kind] + second.stage - first.stage
    side = _HEIGHT / 2 if down > 0 else -_HEIGHT / 2
    if down == 0:
        return (first.end, first.stage + _LANES[first.kind]), (
            second.start,
            second.stage + _LANES[second.kind],
        )
    return (first.end, first.stage + _LANES[first.kind] + side), (
        second.start,
        second.stage + _LANES[second.kind] - side,
    )


def _draw_edges(axes: Axes, ring: Ring) -> None:
    """The ready and reuse edges that every other tile has."""
    lacking = {(bar.kind, bar.tile) for bar in ring.missing()}
    for tile in ring.tiles:
        read = ring.bar("read", tile)
        if {("load", tile), ("read", tile)} != lacking:
            _arrow(axes, *_ends(ring.drawn("load", tile), read), missing=False)
        following = tile + ring.stages
        if following in ring.tiles and {("read", tile), ("load", following)} != lacking:
            _arrow(axes, *_ends(read, ring.drawn("load", following)), missing=False)


def _draw_missing(axes: Axes, ring: Ring) -> None:
    first, second = ring.missing()
    begin, end = _ends(first, second)
    _arrow(axes, begin, end, missing=True)
    hazard = ring.hazard
    edge = f"missing {hazard.edge} edge" if hazard.edge != "other" else "nothing orders these"
    axes.annotate(
        f"{edge}\n1. {_words(hazard.first, ring.label(first.tile))}\n"
        f"2. {_words(hazard.second, ring.label(second.tile))}",
        xy=((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2),
        xytext=((begin[0] + end[0]) / 2, -0.72), textcoords="data", ha="center", va="bottom",
        fontsize=9.5, color=INK, zorder=7, annotation_clip=False,
        bbox={"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": MISSING},
        arrowprops={"arrowstyle": "-", "color": MISSING, "linewidth": 0.8},
    )  # fmt: skip


def _words(access: Access, tile: str) -> str:
    what = {"read": "read", "copy": "load", "bulk copy": "load", "write": "store"}.get(
        access.kind, access.kind
    )
    return f"{what} of tile {tile}: warp {access.warp}, {access.where}"


def _frame(axes: Axes, ring: Ring, left: float, right: float) -> None:
    place = ring.hazard.place
    names = [
        place.name if stage == ring.stage else _stage_name(ring, stage)
        for stage in range(ring.stages)
    ]
    axes.set_yticks(range(ring.stages), names, fontfamily="monospace")
    for stage in range(1, ring.stages):
        axes.axhline(stage - 0.5, color=plots.GRID, linewidth=0.8, zorder=0)
    axes.set_xlim(left - 0.1, right + 0.1)
    axes.set_ylim(ring.stages - 0.5, -1.75)
    plots.tidy(axes)
    axes.grid(False)
    axes.set_xticks([])
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time: loads above, reads below →", fontsize=10, color=INK, loc="left")


def _stage_name(ring: Ring, stage: int) -> str:
    name = ring.hazard.place.name
    if name.startswith("stage ") and " of " in name:
        return f"stage {stage} of {ring.hazard.place.array}"
    return f"{ring.hazard.place.array}[{stage}]"


def _legend(figure: plots.CourseFigure) -> None:
    handles = [
        *(
            Patch(facecolor=s.face, edgecolor=s.edge, hatch=s.hatch, label=s.words)
            for s in (STYLES["load"], STYLES["read"])
        ),
        Line2D([], [], color=MUTED, linewidth=0.9, label="ready and reuse edges"),
        Line2D([], [], color=MISSING, linewidth=2.8, linestyle=(0, (3, 1.6)), label="missing edge"),
    ]
    figure.legend(
        handles=handles, loc="outside lower left", ncols=4, fontsize=9, frameon=False,
        handlelength=2.2, title="numbers in bars: tiles", title_fontsize=9, alignment="left",
    )  # fmt: skip
