"""What every rewriting of a kernel shares: inserted lines, own names, more parameters.

A rewriting chooses sites (``probe_sites.py``), says what to write before and after them, and leaves
the kernel's own text as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from course_lib.ptx.probe_sites import Plan
from course_lib.ptx.statements import Entry

PROBE_BEGIN = "// probe begin"
PROBE_END = "// probe end"


@dataclass(frozen=True)
class Insertion:
    """Lines to be inserted at a position of the text, between the marks that the parser knows."""

    position: int
    lines: tuple[str, ...]


def unused_prefix(text: str, word: str) -> str:
    """The first of ``word0_``, ``word1_``, … that begins no name of the text."""
    number = 0
    while f"{word}{number}_" in text:
        number += 1
    return f"{word}{number}_"


def rewrite(
    text: str, entry: Entry, insertions: Iterable[Insertion], parameters: Mapping[str, str]
) -> str:
    """The whole text with the insertions, and with ``parameters`` (name -> type) after its own."""
    places = [(entry.parameters[1], _parameter_list(text, entry, parameters))]
    for item in insertions:
        block = "\n".join((PROBE_BEGIN, *item.lines, PROBE_END))
        places.append((item.position, f"\n{block}\n"))
    pieces, position = [], 0
    for place, added in sorted(places, key=lambda item: item[0]):  # stable
        pieces += [text[position:place], added]
        position = place
    return "".join([*pieces, text[position:]])


def _parameter_list(text: str, entry: Entry, parameters: Mapping[str, str]) -> str:
    added = ", ".join(f".param .{kind} {name}" for name, kind in parameters.items())
    if not entry.has_parameter_list:
        return f"({added})\n"
    begin, end = entry.parameters
    return f",\n\t{added}\n" if ".param" in text[begin:end] else added


def first_instruction(entry: Entry) -> int:
    """Where the prologue goes: before the body's first instruction, behind its declarations."""
    for statement in entry.statements:
        if statement.kind in ("instruction", "label", "open"):
            return statement.start
    return entry.body[1]


def linear(into: str, scratch: str, index: str, size: str) -> Iterator[str]:
    """``into`` = (index.z * size.y + index.y) * size.x + index.x."""
    yield f"mov.u32 {into}, {index}.z;"
    for axis in "yx":
        yield f"mov.u32 {scratch}, {size}.{axis};"
        yield f"mul.lo.u32 {into}, {into}, {scratch};"
        yield f"mov.u32 {scratch}, {index}.{axis};"
        yield f"add.u32 {into}, {into}, {scratch};"


@dataclass(frozen=True)
class Condition:
    """Registers with which a site's condition is worked out at run time."""

    now: str  #: predicate: the result
    scratch: str  #: 32 bits
    bits: str  #: 32 bits: one for each run whose first access has been met


def condition_before(plan: Plan, on: str, own: Condition) -> tuple[str, list[str]]:
    """Predicate that holds before the site if ``on`` does, the statement's guard lets it run and it
    is the first access of its run; and the lines that compute it."""
    guard, when = plan.statement.guard, on
    lines: list[str] = []
    if plan.run_bit is not None:
        lines.append(f"and.b32 {own.scratch}, {own.bits}, {1 << plan.run_bit};")
        lines.append(f"setp.eq.and.u32 {own.now}, {own.scratch}, 0, {when};")
        when = own.now
    if guard and plan.statement.negated:
        # now = when and not guard
        lines.append(f"selp.b32 {own.scratch}, 0, 1, {guard};")
        lines.append(f"setp.ne.and.u32 {own.now}, {own.scratch}, 0, {when};")
    elif guard:
        lines.append(f"and.pred {own.now}, {guard}, {when};")
    if guard:
        when = own.now
    if plan.run_bit is not None:
        lines.append(f"@{when} or.b32 {own.bits}, {own.bits}, {1 << plan.run_bit};")
    return when, lines
