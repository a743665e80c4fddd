"""Findings, and who and where in words: what every report of the virtual GPU is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from course_lib.virtual_gpu.abi import (
    B_CTAID_X,
    T_A0,
    T_SITE,
)
from course_lib.virtual_gpu.records import (
    BARRIER_COUNT,
    W_BARRIER,
    W_COLLECTIVE,
    W_EXITED,
    W_MATRIX,
    W_PARKED,
    W_READY,
    W_WGMMA,
)
from course_lib.virtual_gpu.session import BlockState, Worker

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.ptx.parse import Module

Index = tuple[int, int, int]


@dataclass(frozen=True)
class Finding:
    """One thing worth telling. `line` is the line of the learner's cell, None where it has none."""

    message: str
    line: int | None = None
    thread: Index | None = None
    block: Index | None = None
    warp: int | None = None
    lane: int | None = None
    details: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


class RunError(Finding):
    """What ended a run."""


class Note(Finding):
    """What did not end it."""


class MemoryFault(RunError):
    """An access out of bounds, misaligned or null. details: place, space, access, bytes."""


class Deadlock(RunError):
    """Nobody can go on."""


class MbarrierDeadlock(Deadlock):
    """Threads wait for a phase of an mbarrier that never completes. details: barrier, phase,
    missing_arrivals, missing_bytes, reason."""


class MbarrierFault(RunError):
    """An mbarrier was used as it may not be. details: barrier, problem."""


class BulkCopyFault(RunError):
    """A bulk or tensor copy was asked for that cannot be. details: problem, offset, bytes."""


class DivergentBarrier(Deadlock):
    """Lanes of one warp met the same barrier on different paths."""


class StepBudget(RunError):
    """The kernel did not come to an end within its budget."""


class Trap(RunError):
    """`__trap()`, or a branch to nowhere."""


class AssertFailed(Trap):
    """`assert` in the kernel."""


class BadMask(RunError):
    """A lane took part in a warp-wide operation whose mask leaves it out."""


class UninitialisedRead(Note):
    """Shared memory was read before anything was written there."""


class BarrierAtTwoLines(Note):
    """Warps of one block met the same barrier at different lines. details: lines, warps."""


class DivisionByZero(Note):
    """An integer was divided by zero."""


class CopiesLandedEarly(Note):
    """More copies in flight than the simulation has room for."""


class Lines:
    """Sites in words."""

    def __init__(self, kernel: Kernel, module: Module) -> None:
        self.text = kernel.source.splitlines()
        self.sites = module.sites
        named = re.compile(rf"\b{re.escape(kernel.name)}\s*\(")
        #: Where the kernel begins, 1 where its name is not in the text.
        self.first_line = next((n for n, t in enumerate(self.text, 1) if named.search(t)), 1)
        self.files = module.files

    def line(self, site: int) -> int | None:
        """The innermost line of the cell at a site."""
        return self.sites[site].cell_line if 0 <= site < len(self.sites) else None

    def code(self, line: int) -> str:
        """The text of a line of the cell."""
        return self.text[line - 1].strip() if 0 < line <= len(self.text) else ""

    def where(self, site: int) -> str:
        """`line 7: code`, with the lines that it was called from."""
        line = self.line(site)
        if line is None:
            chain = self.sites[site].chain if 0 <= site < len(self.sites) else ()
            if not chain:
                return "an unknown line"
            return f"{self.files.get(chain[0][0], 'a header').rsplit('/', 1)[-1]}:{chain[0][1]}"
        callers = [n for n in self.sites[site].cell_lines[1:] if n != line]
        called = f", called from line {callers[0]}" if callers else ""
        return f"line {line}: `{self.code(line)}`{called}"

    def caller(self, site: int) -> str:
        """`line 7` of the outermost call: a wait in a helper is told where the kernel waits."""
        line = self.caller_line(site)
        return self.where(site) if line is None else f"line {line} `{self.code(line)}`"

    def caller_line(self, site: int) -> int | None:
        """The outermost line of the cell at a site."""
        chain = self.sites[site].cell_lines if 0 <= site < len(self.sites) else ()
        return chain[-1] if chain else None

    def short(self, site: int) -> str:
        """`line 7` alone."""
        line = self.line(site)
        return self.where(site) if line is None else f"line {line} `{self.code(line)}`"


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def index_of(linear: int, shape: Sequence[int]) -> Index:
    return linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])


def plain(index: Index) -> str:
    """`5`, or `(5, 1, 0)` where more than x is used."""
    return str(index[0]) if index[1:] == (0, 0) else str(index)


class Case:
    """The thread at which a run ended."""

    def __init__(self, lines: Lines, worker: Worker, state: BlockState, thread: int) -> None:
        self.lines, self.worker, self.state, self.number = lines, worker, state, thread
        self.record = state.threads[thread]
        self.site = int(self.record[T_SITE])
        self.thread = index_of(thread, worker.shape.block)
        self.block = block_index(state)
        self.warp, self.lane = thread // 32, thread % 32

    @property
    def who(self) -> str:
        """The thread in words."""
        return (
            f"thread {plain(self.thread)} of block {plain(self.block)} "
            f"(warp {self.warp}, lane {self.lane})"
        )

    def place(self) -> dict[str, object]:
        """Fields of a Finding that say where."""
        return {
            "line": self.lines.line(self.site), "thread": self.thread, "block": self.block,
            "warp": self.warp, "lane": self.lane,
        }  # fmt: skip

    def begin(self, happened: str) -> str:
        """The first sentences of a message."""
        return f"{sentence(self.lines.where(self.site))}\n{sentence(self.who)} {happened}"


def block_index(state: BlockState) -> Index:
    x, y, z = (int(n) for n in state.record[B_CTAID_X : B_CTAID_X + 3])
    return x, y, z


def wait_verb(numbers: Sequence[int]) -> str:
    return "waits" if len(numbers) == 1 or is_warp(numbers) else "wait"


def is_warp(numbers: Sequence[int]) -> bool:
    return len(numbers) == 32 and len({n // 32 for n in numbers}) == 1


def waits_at_barrier(state: BlockState, number: int) -> bool:
    return bool(int(state.warps[number // 32][W_BARRIER]) >> (number % 32) & 1)


def waits_in_collective(state: BlockState, number: int) -> bool:
    return bool(int(state.warps[number // 32][W_COLLECTIVE]) >> (number % 32) & 1)


def waits_at_matrix(state: BlockState, number: int) -> bool:
    """Does a thread wait at a matrix instruction for the rest of its warp or warpgroup?"""
    record = state.warps[number // 32]
    return bool((int(record[W_MATRIX]) | int(record[W_WGMMA])) >> (number % 32) & 1)


def is_parked(state: BlockState, number: int) -> bool:
    """Does a thread wait for a phase of an mbarrier?"""
    return bool(int(state.warps[number // 32][W_PARKED]) >> (number % 32) & 1)


def is_ready(state: BlockState, number: int) -> bool:
    return bool(int(state.warps[number // 32][W_READY]) >> (number % 32) & 1)


def has_exited(state: BlockState, number: int) -> bool:
    return bool(int(state.warps[number // 32][W_EXITED]) >> (number % 32) & 1)


def matrix_group(state: BlockState, number: int) -> str:
    """Who executes the matrix instruction together that a thread waits at."""
    of_warpgroup = int(state.warps[number // 32][W_WGMMA]) >> (number % 32) & 1
    return "warpgroup" if of_warpgroup else "warp"


def waiting_words(lines: Lines, state: BlockState, numbers: Sequence[int]) -> str:
    """Where these threads are, in words."""
    parts = []
    for site, members in by_site(state, numbers).items():
        one = members[0]
        verb = wait_verb(members)
        if waits_at_barrier(state, one):
            doing = f"{verb} at barrier {int(state.threads[one][T_A0]) % BARRIER_COUNT}"
        elif waits_in_collective(state, one):
            doing = f"{verb} in a warp-wide operation"
        elif waits_at_matrix(state, one):
            doing = f"{verb} for the rest of the {matrix_group(state, one)}"
        elif is_parked(state, one):
            doing = f"{verb} for an mbarrier"
        elif is_ready(state, one):
            doing = "can run"
        else:
            doing = "stands" if verb == "waits" else "stand"
        where = lines.caller(site) if is_parked(state, one) else lines.short(site)
        parts.append(f"{threads_words(members)} {doing} at {where}")
    return " and ".join(parts[:4])


def by_site(state: BlockState, numbers: Iterable[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for number in numbers:
        groups.setdefault(int(state.threads[number][T_SITE]), []).append(number)
    return groups


def ranges(numbers: Sequence[int]) -> str:
    """`0-3, 7`."""
    parts: list[str] = []
    start = previous = numbers[0]
    for number in [*numbers[1:], -2]:
        if number != previous + 1:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
            start = number
        previous = number
    if len(parts) > 6:
        parts = [*parts[:5], f"... ({len(numbers)} in all)"]
    return ", ".join(parts)


def lanes_words(numbers: Sequence[int]) -> str:
    lanes = sorted(number % 32 for number in numbers)
    return ("lane " if len(lanes) == 1 else "lanes ") + ranges(lanes)


def threads_words(numbers: Sequence[int]) -> str:
    """Threads of a block in words: by warps where they are whole."""
    ordered = sorted(numbers)
    warps = sorted({number // 32 for number in ordered})
    if len(ordered) == 1:
        return f"thread {ordered[0]} (warp {warps[0]}, lane {ordered[0] % 32})"
    if len(warps) == 1 and len(ordered) < 32:
        return f"{lanes_words(ordered)} of warp {warps[0]}"
    if len(ordered) == 32 * len(warps):
        return ("warp " if len(warps) == 1 else "warps ") + ranges(warps)
    return f"threads {ranges(ordered)}"
