"""Pictures of the stages of a ring: their states, what each holds, and where one is overwritten.

A stage goes round through four states: free, loading, ready, being read. Two of its four steps are
edges that somebody has to wait for: *ready* (loading to ready) and *reuse* (being read to free).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Rectangle

from course_lib import plots
from course_lib.plots import INK, MISSING, MUTED, STYLES, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.timeline import Interval, Timeline

STATES = {
    "free": Style("#ffffff", "", MUTED, INK, "free"),
    "loading": STYLES["load"]._replace(words="loading, or landed and not waited for"),
    "ready": Style("#fff1d6", "", "#c98a1b", INK, "ready"),
    "being read": STYLES["read"]._replace(words="being read"),
}
"""How each state of a stage looks; lightness falls from free to being read, but for ready."""


# --- The state machine ----------------------------------------------------------------------------

_STEPS = (
    ("free", "loading", "the producer begins\nthe copies of a tile", False),
    ("loading", "ready", "READY EDGE\nall copies have landed,\nand everyone knows", True),
    ("ready", "being read", "consumers begin\nto read", False),
    ("being read", "free", "REUSE EDGE\nevery consumer has read all that it needs", True),
)
_PLACES = {"free": (0.0, 0.0), "loading": (1.0, 0.0), "ready": (2.0, 0.0), "being read": (3.0, 0.0)}
_BOX = (0.42, 0.3)  # width and height of a state


def draw_stage_states() -> plots.CourseFigure:
    """The life of one stage as a state machine; its two edges are the thick arrows."""
    figure = plots.new_figure(2.9, "what a stage goes through, for any number of stages")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(-0.35, 3.35)
    axes.set_ylim(-0.85, 0.55)
    for name, (x, y) in _PLACES.items():
        _state(axes, name, x, y)
    for origin, target, words, edge in _STEPS:
        _step(axes, _PLACES[origin][0], _PLACES[target][0], words, edge)
    return figure


def _state(axes: Axes, name: str, x: float, y: float) -> None:
    style = STATES[name]
    box = FancyBboxPatch(
        (x - _BOX[0] / 2, y - _BOX[1] / 2), *_BOX, boxstyle="round,pad=0.02",
        facecolor=style.face, edgecolor=style.edge, hatch=style.hatch, linewidth=1.4, zorder=2,
    )  # fmt: skip
    box.set_gid(f"state:{name}")
    axes.add_patch(box)
    label = {"boxstyle": "round,pad=0.15", "facecolor": style.face, "edgecolor": "none"}
    axes.text(
        x, y, name, ha="center", va="center", fontsize=11, color=style.text, zorder=3,
        bbox=label if style.hatch else None,
    )  # fmt: skip


def _step(axes: Axes, start: float, end: float, words: str, edge: bool) -> None:
    back = end < start
    half = _BOX[0] / 2 + 0.03
    points = (
        ((start, -_BOX[1] / 2 - 0.03), (end, -_BOX[1] / 2 - 0.03))
        if back
        else ((start + half, 0.0), (end - half, 0.0))
    )
    arrow = FancyArrowPatch(
        *points, arrowstyle="-|>", mutation_scale=20 if edge else 12,
        connectionstyle="arc3,rad=-0.14" if back else "arc3", shrinkA=0, shrinkB=0,
        color=INK if edge else MUTED, linewidth=3.0 if edge else 1.1, zorder=1,
    )  # fmt: skip
    arrow.set_gid("edge" if edge else "step")
    axes.add_patch(arrow)
    where = ((start + end) / 2, -0.58 if back else 0.22)
    axes.text(
        *where, words, ha="center", va="top" if back else "bottom", fontsize=9.5,
        fontweight="bold" if edge else "normal", color=INK,
    )  # fmt: skip


# --- What the ring holds --------------------------------------------------------------------------


class Slot(NamedTuple):
    """One stage at one moment; ``tile`` is None where the stage is free."""

    state: str
    tile: int | None


def slots(stages: int, tiles: int, consumed: int) -> list[Slot]:
    """What each stage holds while tile ``consumed`` is read, in a ring that is refilled after it.

    ``consumed`` -1 is the prologue, before the first wait. Tiles behind the one being read are on
    their way or landed: *loading* here, since nobody has waited for them.
    """
    held = {}
    for tile in range(max(consumed, 0), min(max(consumed, 0) + stages, tiles)):
        held[tile % stages] = Slot("being read" if tile == consumed else "loading", tile)
    return [held.get(stage, Slot("free", None)) for stage in range(stages)]


def draw_ring(stages: int, tiles: int) -> plots.CourseFigure:
    """The ring over a whole run, a column for each tile consumed, with the names of its phases."""
    figure = plots.new_figure(
        1.75 + 0.42 * stages, "by tile % stages, not to scale",
        f"A ring of {stages} stage{'s' * (stages != 1)}, {tiles} tile{'s' * (tiles != 1)}",
    )  # fmt: skip
    axes = figure.subplots()
    moments = range(-1, tiles)
    for moment in moments:
        for stage, slot in enumerate(slots(stages, tiles, moment)):
            _slot(axes, moment, stage, slot)
    axes.set_xlim(-1.55, tiles - 0.45)
    axes.set_ylim(stages - 0.4, -1.05)
    axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    axes.set_xticks(list(moments), ["prologue", *(f"read {tile}" for tile in range(tiles))])
    axes.tick_params(length=0)
    for begin, words in _phases(stages, tiles):
        axes.axvline(begin - 0.5, color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)), zorder=0)
        axes.text(begin - 0.42, -0.72, words, fontsize=9.5, color=INK, va="center")
    plots.tidy(axes)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    names = ("free", "loading", "being read")
    figure.legend(
        handles=[
            Patch(facecolor=s.face, edgecolor=s.edge, hatch=s.hatch, label=s.words)
            for s in (STATES[name] for name in names)
        ],
        loc="outside lower left", ncols=3, fontsize=9, frameon=False, title="numbers: tiles",
        title_fontsize=9, alignment="left",
    )  # fmt: skip
    return figure


def _phases(stages: int, tiles: int) -> list[tuple[int, str]]:
    """Where steady state (a load follows each read) and epilogue (none does) begin."""
    drain = max(tiles - stages, 0)
    phases = [(0, "steady state: each read is followed by a load")] if drain else []
    return [*phases, (drain, "epilogue: no loads")]


def _slot(axes: Axes, moment: int, stage: int, slot: Slot) -> None:
    style = STATES[slot.state]
    patch = Rectangle(
        (moment - 0.45, stage - 0.36), 0.9, 0.72, facecolor=style.face, edgecolor=style.edge,
        hatch=style.hatch, linewidth=0.9, linestyle=":" if slot.tile is None else "-",
    )  # fmt: skip
    patch.set_gid(f"slot:{moment}:{stage}:{'' if slot.tile is None else slot.tile}")
    axes.add_patch(patch)
    if slot.tile is None:
        return
    box = {"boxstyle": "round,pad=0.12", "facecolor": style.face, "edgecolor": "none"}
    axes.text(
        moment, stage, str(slot.tile), ha="center", va="center", fontsize=9.5, color=style.text,
        bbox=box if style.hatch else None,
    )  # fmt: skip


# --- Overwritten stages ---------------------------------------------------------------------------


class Overwrite(NamedTuple):
    """A stage that is being filled with ``later`` while ``warp`` still reads ``tile`` from it."""

    stage: int
    tile: int
    later: int
    warp: int
    start: float
    end: float


def overwrites(timeline: Timeline) -> list[Overwrite]:
    """Where a load into a stage begins before the last read of the tile before it ends.

    One for each tile that is overwritten, with the warp that reads it for longest after that. For
    asynchronous copies: a load through registers begins with its load from global memory, long
    before it touches the stage, so there this says too much.
    """
    begins: dict[tuple[int, int], dict[int, float]] = {}
    for load in timeline.rows("load"):
        of_stage = begins.setdefault((load.block, load.stage), {})
        of_stage[load.tile] = min(load.start, of_stage.get(load.tile, load.start))
    found: dict[tuple[int, int, int], Overwrite] = {}
    for read in timeline.rows("read"):
        for later, begin in begins.get((read.block, read.stage), {}).items():
            key = read.block, read.tile, later
            known = found.get(key)
            if later > read.tile and begin < read.end and (not known or known.end < read.end):
                start = max(begin, read.start)
                found[key] = Overwrite(read.stage, read.tile, later, read.warp, start, read.end)
    return sorted(found.values(), key=lambda one: (one.start, one.tile))


def draw_overwrites(
    timeline: Timeline, tiles: tuple[int, int], warps: Sequence[int], title: str | None = None
) -> plots.CourseFigure:
    """``timeline.plot``, with a box for every overwritten stage and words for the first."""
    figure = plots.draw_timelines(timeline, tiles=tiles, warps=warps, title=title)
    axes = figure.axes[0]
    drawn = _drawn(axes, timeline)
    if not drawn:
        return figure
    row, left = drawn[0]
    origin = row.start - left
    shown = [
        one
        for one in overwrites(timeline)
        if one.warp in warps and tiles[0] <= one.tile and one.later < tiles[1]
    ]
    lanes = {text.get_text(): place for place, text in enumerate(axes.get_yticklabels())}
    for one in shown:
        lane = lanes[f"stage {one.stage}"]
        reader = next(place for name, place in lanes.items() if name.startswith(f"warp {one.warp}"))
        box = Rectangle(
            (one.start - origin, lane - 0.45), max(one.end - one.start, 1.0), reader - lane + 0.9,
            facecolor="none", edgecolor=MISSING, linewidth=2.2, zorder=6,
        )  # fmt: skip
        box.set_gid(f"overwritten:{one.tile}:{one.later}:{one.warp}")
        axes.add_patch(box)
    if shown:
        _say(axes, shown[0], origin, lanes[f"stage {shown[0].stage}"])
    return figure


def _drawn(axes: Axes, timeline: Timeline) -> list[tuple[Interval, float]]:
    """The rows that a figure shows, each with where its bar begins on the axis."""
    bars = (patch for patch in axes.patches if (patch.get_gid() or "").startswith("row:"))
    return [
        (timeline.intervals[int(str(bar.get_gid()).split(":")[1])], bar.get_x())
        for bar in bars
        if isinstance(bar, Rectangle)
    ]


def _say(axes: Axes, one: Overwrite, origin: float, lane: int) -> None:
    top = axes.get_ylim()[1]
    axes.set_ylim(top=top - 1.3)
    axes.annotate(
        f"stage {one.stage} is overwritten: tile {one.later} is being loaded into it\n"
        f"while warp {one.warp} still reads tile {one.tile} from it",
        xy=((one.start + one.end) / 2 - origin, lane - 0.45), xytext=(0.5, 0.985),
        textcoords="axes fraction", ha="center", va="top", fontsize=9.5, color=INK, zorder=7,
        bbox={"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": MISSING},
        arrowprops={"arrowstyle": "-", "color": MISSING, "linewidth": 1.4},
    )  # fmt: skip
