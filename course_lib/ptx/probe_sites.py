"""Which instructions of a kernel are stamped, and which stamps can share a clock reading."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.ptx.parse import split_operands
from course_lib.ptx.statements import Entry, Statement

#: Which phases are stamped for each kind (0 before, 1 after the instruction).
PHASES: Mapping[str, tuple[int, ...]] = {
    "copy": (0,),
    "commit": (1,),
    "wait": (0, 1),
    "barrier": (0, 1),
    "arrive": (0,),
    "load": (0,),
    "store": (0, 1),
    "read": (0,),
    "exit": (0,),
}
DELIMITERS = frozenset({"commit", "wait", "barrier"})
ADDRESSED = frozenset({"copy", "load", "store", "read"})
_MAX_RUN_BITS = 32  #: one bit each in one 32-bit register
#: One clock reading serves the end of a barrier and the first access behind it where at most this
#: many of these cheap instructions are between them.
_CHEAP_LIMIT = 24
_CHEAP_WORDS = """mov add sub mul mad fma shl shr shf and or xor not neg abs min max cvt cvta setp
selp bfe bfi lop3 prmt"""
_CHEAP = frozenset(_CHEAP_WORDS.split())


@dataclass(frozen=True)
class ProbeSite:
    """One stamped instruction.  ``index`` is what the records name; it starts at 1."""

    index: int
    kind: str
    cell_line: int | None  #: line of the learner's cell, None for code without one
    opcode: str
    text_line: int  #: 0-based line of the *unstamped* PTX


@dataclass
class Plan:
    """A site, the statement it belongs to, and how it is stamped."""

    site: ProbeSite
    statement: Statement
    phases: tuple[int, ...]
    order: int  #: index of the statement in the entry
    segment: int  #: counts the delimiters before it, in text order
    run_bit: int | None = None  #: bit that remembers the run's first access at run time


def kind_of(opcode: str) -> str | None:
    """What a PTX opcode does in a pipeline, or None: "cp.async.commit_group" is "commit"."""
    words = opcode.split(".")
    head = words[0]
    if head == "cp" and words[1:2] == ["async"]:
        return _kind_of_copy(opcode, words)
    if head == "mbarrier":
        if words[1] in ("try_wait", "test_wait"):
            return "wait"
        return "arrive" if words[1] in ("arrive", "arrive_drop") else None
    if head in ("bar", "barrier") and "warp" not in words:
        return "arrive" if "arrive" in words else "barrier"
    if head == "ldmatrix" or (_in_shared(words) and (head == "ld" or words[:2] == _WMMA_LOAD)):
        return "read"
    if head == "stmatrix" or (_in_shared(words) and (head == "st" or words[:2] == _WMMA_STORE)):
        return "store"
    if head == "ld" and "global" in words:
        return "load"
    return "exit" if head in ("ret", "exit") else None


_WMMA_LOAD, _WMMA_STORE = ["wmma", "load"], ["wmma", "store"]


def _in_shared(words: list[str]) -> bool:
    return any(word.startswith("shared") for word in words)


def _kind_of_copy(opcode: str, words: list[str]) -> str | None:
    if "commit_group" in words:
        return "commit"
    if "wait_group" in words or "wait_all" in words:
        return "wait"
    if "mbarrier" in words and "arrive" in words:
        return "arrive"
    if "prefetch" in words or "reduce" in words:
        return None
    # "cp.async.bulk.global.shared::cta" goes the other way: it stores a tile.
    shared, source = opcode.find(".shared"), opcode.find(".global")
    return "copy" if 0 <= shared < source else None


def cell_lines(module: Any, kernel_name: str) -> dict[int, int | None]:
    """Line of the learner's cell for each line of the PTX text."""
    if module is None:
        return {}
    lines: dict[int, int | None] = {}
    for item in module.functions[kernel_name].body:
        text_line = getattr(item, "text_line", None)
        if text_line is not None and hasattr(item, "site"):
            lines.setdefault(text_line, module.site_of(item).cell_line)
    return lines


def choose(
    entry: Entry,
    lines: Mapping[int, int | None],
    kind_of: Callable[[str], str | None] = kind_of,
) -> list[Plan]:
    """The sites in text order; of a run within one basic block only the first access.

    ``kind_of`` tells a site's kind from its opcode; None is no site.
    """
    plans: list[Plan] = []
    stamped: set[tuple[str, int | None, str, bool]] = set()
    segment = 0
    for order, statement in enumerate(entry.statements):
        if statement.kind == "label" or _branches(statement):
            stamped.clear()
        kind = kind_of(statement.opcode) if statement.kind == "instruction" else None
        if kind is None:
            continue
        line = lines.get(statement.line)
        if kind in DELIMITERS:
            stamped.clear()
            segment += 1
        elif kind in ADDRESSED:
            run = (kind, line, statement.guard, statement.negated)
            if run in stamped:
                continue
            stamped.add(run)
        site = ProbeSite(len(plans) + 1, kind, line, statement.opcode, statement.line)
        plans.append(Plan(site, statement, PHASES[kind], order, segment))
    _assign_run_bits(entry, plans)
    return plans


def _branches(statement: Statement) -> bool:
    return statement.kind == "instruction" and statement.opcode.split(".")[0] in (
        "bra",
        "brx",
    )


def _assign_run_bits(entry: Entry, plans: list[Plan]) -> None:
    """Gives a run-time bit to the runs that more than one execution of a site may belong to."""
    loops = _loops_without_delimiter(entry, plans)
    groups: dict[tuple[str, int | None], list[Plan]] = {}
    for plan in plans:
        if plan.site.kind in ADDRESSED:
            groups.setdefault((plan.site.kind, plan.site.cell_line), []).append(plan)
    bit = 0
    for group in groups.values():
        segments = [plan.segment for plan in group]
        repeated = len(set(segments)) < len(segments) or any(
            first <= plan.order <= last for plan in group for first, last in loops
        )
        if repeated and bit < _MAX_RUN_BITS:
            for plan in group:
                plan.run_bit = bit
            bit += 1


def _loops_without_delimiter(entry: Entry, plans: list[Plan]) -> list[tuple[int, int]]:
    """Statement ranges that a backward branch repeats with no commit, wait or barrier inside."""
    labels = {s.opcode: i for i, s in enumerate(entry.statements) if s.kind == "label"}
    delimiters = [plan.order for plan in plans if plan.site.kind in DELIMITERS]
    loops = []
    for last, statement in enumerate(entry.statements):
        if not _branches(statement):
            continue
        first = labels.get(statement.operands.strip(), last)
        if first < last and not any(first <= order <= last for order in delimiters):
            loops.append((first, last))
    return loops


def shared_readings(entry: Entry, plans: list[Plan]) -> dict[tuple[int, int], tuple[int, int]]:
    """For (site, 0): the (site, 1) right before it that needs no clock reading of its own."""
    shared = {}
    for first, second in itertools.pairwise(plans):
        alone = any(p.statement.guard or polls(p) for p in (first, second))
        if alone or first.site.kind not in DELIMITERS or 0 not in second.phases:
            continue
        between = entry.statements[first.order + 1 : second.order]
        instructions = [s for s in between if s.kind == "instruction"]
        limit = _CHEAP_LIMIT if second.site.kind in ADDRESSED else 0
        if (
            len(instructions) <= limit
            and all(s.opcode.split(".")[0] in _CHEAP for s in instructions)
            and not any(s.kind == "label" for s in between)
        ):
            shared[second.site.index, 0] = (first.site.index, 1)
    return shared


def polls(plan: Plan) -> bool:
    return plan.statement.opcode.startswith("mbarrier.t")


def notes(entry: Entry, module: Any) -> tuple[str, ...]:
    """What the stamps do not cover."""
    notes = []
    called = [
        split_operands(s.operands) for s in entry.statements if s.opcode.split(".")[0] == "call"
    ]
    functions = set(getattr(module, "functions", {}) or ())
    names = {name for operands in called for name in operands if name in functions}
    if names:
        listed = ", ".join(sorted(names))
        notes.append(f"device functions that were not inlined are not stamped inside: {listed}")
    return tuple(notes)
