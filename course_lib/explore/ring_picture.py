"""The picture of ``explore_timeline``: the ring at a moment, above its stages over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from course_lib.explore.ring_states import (
    FREE,
    LOADING,
    OVERWRITTEN,
    READING,
    READY,
    TOO_EARLY,
    Clash,
    Slot,
    Stay,
)
from course_lib.plots import INK, MISSING, MUTED, STYLES, Style
from course_lib.svg import Picture, legend

WIDTH = 980
_ALARM_STYLE = Style("#ffffff", "x", MISSING, INK, "NOT SAFE")
STATE_STYLES: dict[str, Style] = {
    FREE: Style("#ffffff", "", "#8c8c8c", MUTED, "free"),
    LOADING: STYLES["load"]._replace(words="loading"),
    READY: Style("#d9efe6", ".", "#00664b", INK, "ready"),
    READING: STYLES["read"]._replace(words="being read"),
    OVERWRITTEN: _ALARM_STYLE,
    TOO_EARLY: _ALARM_STYLE,
}


class Scene(NamedTuple):
    """What does not change while time does."""

    stays: Sequence[Stay]
    clashes: Sequence[Clash]
    stages: int
    total: float
    window: float
    clock: str
    device_words: str
    confirmed: bool = False


def draw(scene: Scene, slots: Sequence[Slot], time: float) -> Picture:
    """The ring at ``time`` and, below it, a window of the stages' lanes around it."""
    lanes_height = scene.stages * 34
    lanes_top = 268 if scene.clashes else 214
    height = lanes_top + lanes_height + 50
    now = [clash for clash in scene.clashes if clash.start <= time < clash.end]
    picture = Picture(WIDTH, height, words(scene, slots, time))
    picture.text(4, 20, f"{time:,.0f} {scene.clock}", size=20, bold=True)
    shown = {state: STATE_STYLES[state] for state in (FREE, LOADING, READY, READING)}
    if scene.clashes:
        shown[OVERWRITTEN] = _ALARM_STYLE
    legend(picture, 330, 18, shown)
    _ring(picture, slots, 36)
    _banner(picture, scene, now, time, 208)
    _lanes(picture, scene, time, lanes_top)
    picture.text(WIDTH - 4, height - 4, scene.device_words, size=11.5, color=MUTED, anchor="end")
    return picture


def words(scene: Scene, slots: Sequence[Slot], time: float) -> str:
    """The moment in a sentence, for whoever cannot see it."""
    parts = [
        f"stage {slot.stage} {slot.state}" + ("" if slot.tile is None else f" (tile {slot.tile})")
        for slot in slots
    ]
    return f"At {time:,.0f} {scene.clock}: " + ", ".join(parts)


def _ring(picture: Picture, slots: Sequence[Slot], y: float) -> None:
    """Slots side by side, with the arrow that makes a ring of them."""
    count = max(len(slots), 1)
    gap = 14
    width = min(150.0, (WIDTH - 20 - gap * (count - 1)) / count)
    height = 118
    left = (WIDTH - count * width - (count - 1) * gap) / 2
    for slot in slots:
        x = left + slot.stage * (width + gap)
        _slot(picture, slot, x, y, width, height)
        if slot.stage:
            picture.text(x - gap / 2, y + height / 2 + 5, "›", size=20, anchor="middle",
                         color=MUTED)  # fmt: skip
    if count > 1:
        right, foot = left + count * width + (count - 1) * gap, y + height + 16
        points = [
            (right - width / 2, y + height + 4), (right - width / 2, foot),
            (left + width / 2, foot), (left + width / 2, y + height + 6),
        ]  # fmt: skip
        picture.path(points, MUTED, 1.4)
        x, top = left + width / 2, y + height + 3
        picture.path([(x - 5, top + 7), (x, top), (x + 5, top + 7)], MUTED, 1.4)


def _slot(picture: Picture, slot: Slot, x: float, y: float, width: float, height: float) -> None:
    style = STATE_STYLES[slot.state]
    alarm = style is _ALARM_STYLE
    picture.rect(
        x, y, width, height, style, line=1.5,
        title=f"stage {slot.stage}: {slot.state}",
        data={"stage": slot.stage, "state": slot.state, "slot-tile": _text(slot.tile)},
    )  # fmt: skip
    if alarm:
        picture.rect(x, y, width, height, edge=MISSING, line=7)
    halo = style.face if style.hatch else ""
    middle = x + width / 2
    picture.text(middle, y + 20, f"stage {slot.stage}", size=13, anchor="middle",
                 color=style.text, halo=halo)  # fmt: skip
    if slot.tile is not None:
        tile = f"{slot.tile}" if slot.coming is None else f"{slot.coming} → {slot.tile}"
        picture.text(middle, y + 72, tile, size=38 if slot.coming is None else 27, bold=True,
                     anchor="middle", color=style.text, halo=halo)  # fmt: skip
    name = {OVERWRITTEN: "OVERWRITTEN", TOO_EARLY: "READ TOO EARLY"}.get(slot.state, slot.state)
    size = 13 if width > 118 else 11
    picture.text(middle, y + 104, name, size=size, anchor="middle", bold=alarm,
                 color=style.text, halo=halo)  # fmt: skip


def _text(tile: int | None) -> str:
    return "" if tile is None else str(tile)


def _banner(picture: Picture, scene: Scene, now: Sequence[Clash], time: float, y: float) -> None:
    """What is wrong at this moment, or where in time something is."""
    if now:
        picture.rect(4, y - 20, WIDTH - 8, 30, fill=MISSING, edge=INK)
        picture.text(14, y, "⚠ " + clash_words(now[0], scene.confirmed), size=14.5, bold=True,
                     color="#ffffff")  # fmt: skip
    elif scene.clashes:
        first = scene.clashes[0]
        times = f"{len(scene.clashes)} times" if len(scene.clashes) > 1 else "once"
        when = "at" if first.start > time else "from"
        picture.text(
            14, y, f"⚠ A stage is not safe {times} in this timeline, first {when} "
            f"{first.start:,.0f} {scene.clock}: go there with the button.", size=13.5, bold=True,
            color="#A23F00",
        )  # fmt: skip


def clash_words(clash: Clash, confirmed: bool) -> str:
    """What goes wrong, and how sure that is."""
    readers = f"{'warp' if len(clash.warps) == 1 else 'warps'} {_span(clash.warps)}"
    if clash.kind == TOO_EARLY:
        text = f"Stage {clash.stage}: tile {clash.tile} is read before its load is complete"
    else:
        text = (
            f"Stage {clash.stage}: tile {clash.coming} comes in while {readers} "
            f"still read{'s' * (len(clash.warps) == 1)} tile {clash.tile}"
        )
    return f"{text}." if confirmed else f"{text}. Same bytes? find_hazards tells."


def _span(warps: Sequence[int]) -> str:
    if len(warps) > 2 and list(warps) == list(range(warps[0], warps[-1] + 1)):
        return f"{warps[0]} to {warps[-1]}"
    return " and ".join(map(str, warps)) or "?"


def _lanes(picture: Picture, scene: Scene, time: float, y: float) -> None:
    """Each stage's states over a window of time, and a line at the present moment."""
    left, step = 64, 34
    begin = min(max(time - scene.window / 2, 0.0), max(scene.total - scene.window, 0.0))
    end = begin + min(scene.window, max(scene.total, 1.0))
    scale = (WIDTH - left - 8) / (end - begin)
    for stage in range(scene.stages):
        picture.text(4, y + stage * step + 20, f"stage {stage}", size=12)
        picture.rect(left, y + stage * step + 3, WIDTH - left - 8, step - 8, fill="#ffffff",
                     edge="#d9d9d9")  # fmt: skip

    def bar(
        stage: int, start: float, stop: float, style: Style, tile: str, inset: float = 0
    ) -> None:
        start, stop = max(start, begin), min(stop, end)
        if not start < stop < math.inf or stage >= scene.stages:
            return
        x, size, top = left + (start - begin) * scale, (stop - start) * scale, y + stage * step
        picture.rect(x, top + 3 + inset, size, step - 8 - 2 * inset, style)
        if size > 16 and tile:
            picture.text(x + size / 2, top + 21, tile, size=12, anchor="middle", color=style.text,
                         halo=style.face if style.hatch else "")  # fmt: skip

    for stay in scene.stays:
        tile = str(stay.tile)
        bar(stay.stage, stay.load, stay.landed, STATE_STYLES[LOADING], tile)
        if stay.read < math.inf:
            bar(stay.stage, stay.landed, stay.read, STATE_STYLES[READY], tile)
        bar(stay.stage, stay.read, stay.done, STATE_STYLES[READING], tile)
    for clash in scene.clashes:
        bar(clash.stage, clash.start, clash.end, _ALARM_STYLE, "")
        if begin <= clash.start < end:
            x, top = left + (clash.start - begin) * scale, y + clash.stage * step
            size = max((min(clash.end, end) - clash.start) * scale, 3)
            picture.rect(x, top, size, step - 2, edge=MISSING, line=4)
    bottom = y + scene.stages * step
    x = left + (time - begin) * scale
    picture.line(x, y - 8, x, bottom + 4, INK, 2.5)
    picture.path([(x - 6, y - 14), (x, y - 6), (x + 6, y - 14)], INK, 2.5)
    for number in range(5):
        at = begin + (end - begin) * number / 4
        place = left + (at - begin) * scale
        picture.line(place, bottom, place, bottom + 5, MUTED)
        anchor = "start" if number == 0 else "end" if number == 4 else "middle"
        picture.text(place, bottom + 18, f"{at:,.0f}", size=11, anchor=anchor, color=MUTED)
