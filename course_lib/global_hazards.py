"""``find_hazards(..., global_memory=True)``: races in global memory within one launch, in words.

Blocks of a launch run in any order and side by side. Only atomic operations, and fences around a
flag or a counter, order what two of them do; everything else ends with the grid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course_lib.virtual_gpu.global_races import BETWEEN_BLOCKS

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.problems.base import Problem
    from course_lib.virtual_gpu.global_races import GlobalRace
    from course_lib.virtual_gpu.places import Lines
    from course_lib.virtual_gpu.races import RawAccess

MOST_BLOCKS = 256
"""Blocks of a grid that is checked whole; a larger one is not checked."""

_VERBS = {
    "read": "reads", "write": "writes", "atomic": "updates atomically", "copy": "writes",
    "bulk copy": "writes", "bulk store": "reads",
}  # fmt: skip

_HAND_ON = (
    "To hand data on within a launch, let the thread that announces it fence with "
    "`__threadfence()` after its block's barrier and before it raises a flag or counts up "
    "atomically, and the thread that sees that fence before its block's barrier and the reads "
    "(`__threadfence_block()` does not reach another block). Otherwise end the kernel there and "
    "start another."
)


@dataclass(frozen=True)
class GlobalHazard:
    """Two accesses to global memory in one launch that nothing orders.

    ``where`` is the element, such as ``out[3]``, ``tile`` what an output's element belongs to;
    blocks are linear indices, lines those of the learner's cell (None in a header); ``missing`` is
    "blocks" or a word of ``races.MISSING``; ``count`` places have this cause.
    """

    array: str
    where: str
    first_block: int
    first_line: int | None
    second_block: int
    second_line: int | None
    missing: str
    count: int
    case: str
    tile: int | None = None
    message: str = ""

    def __str__(self) -> str:
        return self.message


def global_hazards(
    kernel: Kernel, races: Sequence[tuple[Problem, GlobalRace]]
) -> tuple[list[GlobalHazard], list[str]]:
    """(hazards, remarks) of (problem, race) pairs: one for each cause, between blocks first."""
    from course_lib.virtual_gpu.report import Lines

    lines = Lines(kernel, kernel.module)
    found: dict[tuple[object, ...], GlobalHazard] = {}
    remarks: dict[str, None] = {}
    for problem, race in races:
        if race.missing == "proxy-read":
            remarks[_remark(race, lines)] = None
            continue
        pair = sorted((lines.short(race.first.site), lines.short(race.second.site)))
        found.setdefault((race.array, race.missing, *pair), _hazard(problem, race, lines))
    hazards = sorted(found.values(), key=lambda h: h.missing != BETWEEN_BLOCKS)
    return hazards, list(remarks)


def _tile(problem: Problem, race: GlobalRace) -> int | None:
    """The tile of an output's element, where the problem knows it."""
    element = re.fullmatch(r"\w+\[(\d+)\].*", race.where)
    if element is None or race.array.partition(" ")[0] not in problem.outputs():
        return None
    return problem.place_of(race.array.partition(" ")[0], int(element[1]))[1]


def _hazard(problem: Problem, race: GlobalRace, lines: Lines) -> GlobalHazard:
    tile = _tile(problem, race)
    return GlobalHazard(
        race.array, race.where, race.first_block, lines.line(race.first.site),
        race.second_block, lines.line(race.second.site), race.missing, race.count,
        repr(problem), tile, _words(problem, race, lines, tile),
    )  # fmt: skip


def _words(problem: Problem, race: GlobalRace, lines: Lines, tile: int | None) -> str:
    of_tile = f", the result of tile {tile}" if tile is not None else ""
    places = f" ({race.count} such places)" if race.count > 1 else ""
    head = f"Race in global memory at {race.where}{of_tile}{places}, in {problem!r}."
    one = _side(race.first, race.first_block, lines)
    two = _side(race.second, race.second_block, lines)
    return "\n".join([head, f"  {one}", f"  {two}", _reason(race)])


def _side(access: RawAccess, block: int, lines: Lines) -> str:
    verb = _VERBS.get(access.kind, access.kind)
    where = lines.where(access.site)
    return f"block {block}, warp {access.warp}, thread {access.thread} {verb} it: {where}"


def _reason(race: GlobalRace) -> str:
    if race.missing == BETWEEN_BLOCKS:
        why = "Nothing orders the two blocks: they run in any order, or at the same time. "
        if race.first.kind == race.second.kind == "write":
            return why + "Give each block elements of its own, or use an atomic operation."
        if "atomic" in (race.first.kind, race.second.kind):
            return why + "An atomic operation is safe beside others of a scope that holds both."
        return why + _HAND_ON
    reasons = {
        "wait": "The copy was not waited for: it may still be going on.",
        "visibility": "Only the copy's issuer waited for it: a barrier must follow the wait.",
        "phase": "The bulk copy's mbarrier phase was not waited for.",
        "group": (
            "The bulk store's group was not waited for. `wait_group.read` says that its source "
            "has been read, not that its target has been written."
        ),
        "proxy": (
            "The two are ordered, but bulk copies go another way than ordinary accesses: "
            "`fence.proxy.async` (for global memory) must lie between them."
        ),
    }
    return reasons.get(race.missing, "Both are in one block, and no barrier lies between them.")


def _remark(race: GlobalRace, lines: Lines) -> str:
    return (
        f"{lines.short(race.first.site)} reads {race.array}, which the bulk store on "
        f"{lines.short(race.second.site)} writes later. The two are ordered, but with no "
        "fence.proxy.async in between, which the manual asks for."
    )
