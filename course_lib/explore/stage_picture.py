"""The picture of ``explore_stages``: timeline, predicted time over S, residency, figures."""

from __future__ import annotations

from collections.abc import Mapping

from course_lib.explore.situation import Situation
from course_lib.gpu_limits import KB
from course_lib.plots import GRID, INK, MUTED, SERIES, STYLES
from course_lib.svg import Picture, legend

WIDTH, HEIGHT = 980, 600
MOST_STAGES = 8
_SHOWN_TILES = 9
_BEST = SERIES[4]


def draw(
    situation: Situation, measured: Mapping[int, float] | None = None, measured_words: str = ""
) -> Picture:
    """Everything about one situation; ``measured`` are cycles by number of stages."""
    picture = Picture(WIDTH, HEIGHT, words(situation))
    _figures(picture, situation)
    _timeline(picture, situation, 0, 92, WIDTH, 190)
    _over_stages(picture, situation, dict(measured or {}), measured_words, 0, 330, 560, 262)
    _residency(picture, situation, 600, 330, WIDTH - 600, 262)
    return picture


def words(situation: Situation) -> str:
    """The picture in one sentence: what it shows without being seen."""
    if not situation.fits:
        return f"{situation.S} stages: no block fits an SM ({_limiting(situation)})"
    model, best = situation.model(), situation.best_stages(MOST_STAGES)
    return (
        f"Model with L {situation.L:,.0f}, C {situation.C:,.0f}, S {situation.S}: "
        f"{model.iteration_cycles():,.0f} cycles per tile, "
        f"{model.uncovered_latency():,.0f} of them uncovered latency; {situation.resident} blocks "
        f"of {situation.shared_bytes / KB:,.0f} KB per SM, limited by {_limiting(situation)}; "
        f"least predicted time with S {best}"
    )


def _limiting(situation: Situation) -> str:
    by = situation.by_resource()
    return " and ".join(name for name, blocks in by.items() if blocks == min(by.values()))


def _figures(picture: Picture, situation: Situation) -> None:
    model = situation.model()
    uncovered = model.uncovered_latency()
    resident = str(situation.resident) if situation.fits else "none fits"
    figures = [
        ("iteration (modelled)", f"{model.iteration_cycles():,.0f} cycles"),
        ("of that, uncovered latency", f"{uncovered:,.0f} cycles"),
        ("shared memory per block", f"{situation.shared_bytes / KB:,.0f} KB"),
        ("blocks per SM", resident),
        _in_flight(situation),
    ]
    step = WIDTH / len(figures)
    for number, (name, value) in enumerate(figures):
        x = 4 + number * step
        picture.text(x, 16, name, size=12, color=MUTED)
        picture.text(x, 42, value, size=20, bold=True)
        if number:
            picture.line(x - 12, 4, x - 12, 50, GRID)


def _in_flight(situation: Situation) -> tuple[str, str]:
    flying = f"{situation.bytes_in_flight / KB:,.0f}"
    if not situation.bandwidth:
        return "bytes in flight per SM", f"{flying} KB"
    return "in flight, of those that cover L", (
        f"{flying} of {situation.bytes_to_cover / KB:,.0f} KB"
    )


def _timeline(
    picture: Picture, situation: Situation, x: float, y: float, width: float, height: float
) -> None:
    """The first tiles of one block: a lane per stage, and one for the block."""
    picture.text(x, y - 14, "One block, its first tiles (model)", size=14, bold=True)
    legend(picture, x + 310, y - 14)
    tiles = min(situation.tiles, _SHOWN_TILES)
    timeline = situation.model(tiles).timeline()
    lanes = min(situation.S, tiles) + 1
    step = min(height / lanes, 46)
    left, span = x + 64, max(row.end for row in timeline.intervals) or 1.0
    scale = (width - 64 - 10) / span
    for lane in range(lanes):
        name = f"stage {lane}" if lane < lanes - 1 else "block"
        picture.text(x, y + lane * step + step * 0.65, name, size=12)
    for row in timeline.intervals:
        lane = row.stage if row.kind == "load" else lanes - 1
        style = STYLES[row.kind]
        if row.cycles <= 0:
            continue
        start, size = left + row.start * scale, row.cycles * scale
        picture.rect(
            start, y + lane * step + 2, size, step - 5, style,
            title=f"{row.kind} of tile {row.tile}: {row.start:,.0f} to {row.end:,.0f} cycles",
            data={"kind": row.kind, "tile": row.tile},
        )  # fmt: skip
        if row.kind in ("load", "read") and size > 16:
            picture.text(
                start + size / 2, y + lane * step + step / 2 + 4, str(row.tile), size=12,
                anchor="middle", color=style.text, halo=style.face if style.hatch else "",
            )  # fmt: skip
    bottom = y + lanes * step
    picture.line(left, bottom, left + span * scale, bottom, MUTED)
    for number in range(6):
        at = span * number / 5
        picture.line(left + at * scale, bottom, left + at * scale, bottom + 4, MUTED)
        anchor = "end" if number == 5 else "middle"
        picture.text(left + at * scale, bottom + 17, f"{at:,.0f}", size=11, anchor=anchor,
                     color=MUTED)  # fmt: skip


def _over_stages(
    picture: Picture,
    situation: Situation,
    measured: dict[int, float],
    measured_words: str,
    x: float,
    y: float,
    width: float,
    height: float,
) -> None:
    """Bars of the predicted time, the best one marked, measured points over them."""
    picture.text(x, y - 10, "Predicted time of an SM over S", size=14, bold=True)
    most = max([MOST_STAGES, situation.S, *measured])
    times = situation.over_stages(most)
    best = situation.best_stages(most)
    known = [time for time in times.values() if time is not None]
    reach = 1.22 * max([1.0, *known, *measured.values()])
    bottom, top, left = y + height - 40, y + 26, x + 64
    scale = (bottom - top) / reach
    step = (width - 64) / most
    for part in (0.0, 0.5, 1.0):
        value = part * max([1.0, *known, *measured.values()])
        picture.line(left, bottom - value * scale, x + width, bottom - value * scale, GRID)
        picture.text(left - 6, bottom - value * scale + 4, f"{value:,.0f}", size=11,
                     anchor="end", color=MUTED)  # fmt: skip
    for stages, time in times.items():
        centre = left + (stages - 0.5) * step
        chosen = stages == situation.S
        picture.text(centre, bottom + 16, f"S={stages}" if chosen else str(stages), size=12,
                     anchor="middle", bold=chosen)  # fmt: skip
        if time is None:
            picture.text(centre, bottom - 8, "✕", size=16, anchor="middle")
            picture.text(centre, bottom - 26, "no room", size=11, anchor="middle", color=MUTED)
            continue
        picture.rect(
            centre - step * 0.32, bottom - time * scale, step * 0.64, time * scale,
            fill="#56B4E9" if chosen else "#d3d3d3", edge=INK, line=2 if chosen else 0.7,
            title=f"S={stages}: {time:,.0f} cycles predicted", data={"stages": stages},
        )  # fmt: skip
        if stages == best:
            top_of_it = max(time, measured.get(stages, 0.0) + 8 / scale)
            picture.text(centre, bottom - top_of_it * scale - 8, "★ best", size=13, anchor="middle",
                         bold=True, color=_BEST, halo="white")  # fmt: skip
    for stages, time in sorted(measured.items()):
        picture.dot(left + (stages - 0.5) * step, bottom - time * scale, 5, SERIES[1],
                    title=f"S={stages}: {time:,.0f} cycles measured")  # fmt: skip
    axis = "stages S; bars: model, cycles"
    picture.text(x + width, bottom + 34, axis, size=12, anchor="end", color=MUTED)
    if measured:
        picture.dot(left + 6, y + 8, 5, SERIES[1])
        picture.text(left + 18, y + 12, f"points: {measured_words}", size=12)


def _residency(
    picture: Picture, situation: Situation, x: float, y: float, width: float, height: float
) -> None:
    """Blocks per SM that each resource would allow; the one that allows fewest is marked."""
    picture.text(x, y - 10, f"Blocks per SM ({situation.arch})", size=14, bold=True)
    by = situation.by_resource()
    least, most = min(by.values()), max(max(by.values()), 1)
    left, step = x + 140, 40
    scale = (width - 140 - 50) / most
    for number, (name, blocks) in enumerate(by.items()):
        top, limits = y + 14 + number * step, blocks == least
        picture.text(left - 8, top + 17, name, size=12, anchor="end", bold=limits)
        picture.rect(
            left, top, max(blocks * scale, 2), 24, fill=_BEST if limits else "#d3d3d3", edge=INK,
            line=2 if limits else 0.7, data={"resource": name, "blocks": blocks},
        )  # fmt: skip
        picture.text(left + blocks * scale + 8, top + 17, f"{blocks}" + " ◀" * limits, size=13,
                     bold=limits)  # fmt: skip
    note = f"◀ the limit: {_limiting(situation)}" if situation.fits else "a block does not fit"
    picture.text(x, y + 14 + len(by) * step + 16, note, size=12.5, bold=not situation.fits)
    used = f"{situation.shared_bytes / KB:,.0f} of {situation.shared_limit / KB:,.0f} KB shared"
    picture.text(x, y + 14 + len(by) * step + 36, f"a block has {used}", size=12, color=MUTED)
