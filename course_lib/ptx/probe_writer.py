"""Writes clock stamps into the PTX text of one kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields

from course_lib.ptx.parse import split_operands
from course_lib.ptx.probe_records import HEADER_MARK, RECORD_BYTES
from course_lib.ptx.probe_sites import ADDRESSED, DELIMITERS, Plan, polls, shared_readings
from course_lib.ptx.rewriting import (
    Condition,
    Insertion,
    condition_before,
    first_instruction,
    linear,
    rewrite,
    unused_prefix,
)
from course_lib.ptx.statements import Entry


@dataclass(frozen=True)
class Registers:
    """Names of the stamps' own registers and parameters, none of which the kernel uses."""

    prefix: str
    #: pointer to the next record (two halves) and the low half of the last record's address
    low: str
    high: str
    end: str
    pointer: str
    wide: str
    #: the record's four words
    clock: str
    site: str
    shared: str
    remote: str  #: (global address >> 4)
    #: one bit per run whose first access is stamped; the polled wait's site and its first clock
    bits: str
    waiting: str
    start: str
    scratch: str
    #: this thread stamps at all; this one stamp is written
    on: str
    now: str

    @classmethod
    def unused_in(cls, text: str) -> Registers:
        prefix = unused_prefix(text, "probe")
        names = [item.name for item in fields(cls) if item.name != "prefix"]
        return cls(prefix, **{name: f"%{prefix}{name}" for name in names})

    def parameter(self, name: str) -> str:
        return self.prefix + name

    def declarations(self) -> tuple[str, ...]:
        wide, predicates = (self.pointer, self.wide), (self.on, self.now)
        narrow = [
            getattr(self, item.name)
            for item in fields(self)
            if item.name != "prefix" and getattr(self, item.name) not in wide + predicates
        ]
        return (
            f".reg .b32 {', '.join(narrow)};",
            f".reg .b64 {', '.join(wide)};",
            f".reg .pred {', '.join(predicates)};",
        )


class Writer:
    """Writes the stamps of one entry."""

    def __init__(self, entry: Entry, registers: Registers, plans: list[Plan]) -> None:
        self.entry, self.plans = entry, plans
        self.own = registers
        self.bits_of = _RegisterWidths(entry)
        self.has_runs = any(plan.run_bit is not None for plan in plans)
        self.aliases = shared_readings(entry, plans)
        self._without_record = set(self.aliases.values())

    def rewrite(self, text: str) -> str:
        """The whole PTX text with the stamps of this entry in it."""
        insertions = [
            Insertion(self.entry.body[0], self.own.declarations()),
            Insertion(first_instruction(self.entry), tuple(self._prologue())),
            *self._insertions(),
        ]
        kinds = {"buffer": "u64", "capacity": "u32", "slots": "u32", "stride": "u32"}
        parameters = {self.own.parameter(name): kind for name, kind in kinds.items()}
        return rewrite(text, self.entry, insertions, parameters)

    def _prologue(self) -> Iterator[str]:
        """Chooses lane 0 of the chosen blocks, points at the warp's records, writes the header."""
        own = self.own
        a, b, c, d = own.low, own.high, own.clock, own.site  # free until the header
        name = own.parameter
        yield from linear(a, b, "%tid", "%ntid")  # a = thread of the block
        yield from linear(c, b, "%ctaid", "%nctaid")  # c = block of the grid
        yield f"ld.param.u32 {d}, [{name('stride')}];"
        yield f"div.u32 {own.shared}, {c}, {d};"  # block slot
        yield f"mul.lo.u32 {d}, {own.shared}, {d};"
        yield f"ld.param.u32 {own.end}, [{name('slots')}];"
        yield f"and.b32 {b}, {a}, 31;"
        yield f"setp.eq.u32 {own.on}, {b}, 0;"
        yield f"setp.eq.and.u32 {own.on}, {c}, {d}, {own.on};"
        yield f"setp.lt.and.u32 {own.on}, {own.shared}, {own.end}, {own.on};"
        yield f"mov.u32 {own.remote}, {c};"
        # warps of a block, then the index of this warp's records
        yield f"mov.u32 {b}, %ntid.x;"
        yield f"mov.u32 {d}, %ntid.y;"
        yield f"mul.lo.u32 {b}, {b}, {d};"
        yield f"mov.u32 {d}, %ntid.z;"
        yield f"mul.lo.u32 {b}, {b}, {d};"
        yield f"add.u32 {b}, {b}, 31;"
        yield f"shr.u32 {b}, {b}, 5;"
        yield f"shr.u32 {a}, {a}, 5;"
        yield f"mad.lo.u32 {a}, {own.shared}, {b}, {a};"
        yield f"ld.param.u32 {d}, [{name('capacity')}];"
        yield f"mul.lo.u32 {b}, {d}, {RECORD_BYTES};"
        yield f"mul.wide.u32 {own.wide}, {a}, {b};"
        yield f"ld.param.u64 {own.pointer}, [{name('buffer')}];"
        yield f"add.u64 {own.pointer}, {own.pointer}, {own.wide};"
        yield f"sub.u32 {own.end}, {b}, {RECORD_BYTES};"
        yield f"mov.b64 {{{own.low}, {own.high}}}, {own.pointer};"
        yield f"add.u32 {own.end}, {own.end}, {own.low};"
        yield f"mov.u32 {own.shared}, %smid;"
        yield f"mov.u32 {own.site}, {HEADER_MARK};"
        yield f"mov.u32 {own.waiting}, 0;"
        yield f"mov.u32 {own.start}, 0;"
        yield f"mov.u32 {own.bits}, 0;"
        yield f"@{own.on} mov.u32 {own.clock}, %clock;"
        yield self._store_addressed(own.on, own.shared, own.remote)
        yield from self._bump(own.on)

    # One stamp: clock, store, bump.

    def _store_addressed(self, when: str, shared: str, global_: str) -> str:
        own = self.own
        values = f"{{{own.clock}, {own.site}, {shared}, {global_}}}"
        return (
            f"mov.b64 {own.pointer}, {{{own.low}, {own.high}}}; "
            f"@{when} st.global.v4.u32 [{own.pointer}], {values};"
        )

    def _store(self, when: str, clock: str) -> str:
        own = self.own
        return (
            f"mov.b64 {own.pointer}, {{{own.low}, {own.high}}}; "
            f"@{when} st.global.v2.u32 [{own.pointer}], {{{clock}, {own.site}}};"
        )

    def _bump(self, when: str) -> Iterator[str]:
        own = self.own
        yield f"@{when} add.u32 {own.low}, {own.low}, {RECORD_BYTES};"
        yield f"@{when} min.u32 {own.low}, {own.low}, {own.end};"

    def _insertions(self) -> Iterator[Insertion]:
        own = self.own
        for plan in self.plans:
            statement = plan.statement
            if polls(plan):
                yield from self._polling_wait(plan)
                continue
            if 0 in plan.phases:
                lines = self._stamp(plan, 0)
                if lines:
                    yield Insertion(statement.start, tuple(lines))
            after = self._stamp(plan, 1) if 1 in plan.phases else []
            if plan.site.kind in DELIMITERS and self.has_runs:
                after.append(f"mov.u32 {own.bits}, 0;")
            if after:
                yield Insertion(statement.end, tuple(after))

    def _stamp(self, plan: Plan, phase: int) -> list[str]:
        """Lines of one stamp; none where the next stamp's clock reading serves for it."""
        own = self.own
        mark = plan.site.index << 1 | phase
        if (plan.site.index, phase) in self._without_record:
            return []
        when, lines = self._condition(plan, phase)
        lines.append(f"mov.u32 {own.clock}, %clock;")
        lines.append(f"mov.u32 {own.site}, {mark};")
        if plan.site.kind in ADDRESSED:
            lines += self._addresses(plan, when)
        else:
            lines.append(self._store(when, own.clock))
        lines += self._bump(when)
        return lines

    def _condition(self, plan: Plan, phase: int) -> tuple[str, list[str]]:
        """Predicate under which this stamp is written, and the lines that compute it."""
        own = self.own
        if phase == 0:
            return condition_before(plan, own.on, Condition(own.now, own.scratch, own.bits))
        # What was worked out before the instruction still stands.
        worked_out = plan.run_bit is not None or plan.statement.guard
        return own.now if worked_out else own.on, []

    def _addresses(self, plan: Plan, when: str) -> list[str]:
        """Stores the record with the shared and the global address of an access."""
        own = self.own
        operands = split_operands(plan.statement.operands)
        kind = plan.site.kind
        shared = operands[0] if kind in ("copy", "store") else operands[1]
        lines = [f"mov.u32 {own.shared}, 0;", f"mov.u32 {own.remote}, 0;"]
        if kind != "load":
            lines[0] = self._shared_address(shared)
        if kind in ("copy", "load"):
            lines[1] = self._global_address(operands[1])
        lines.append(self._store_addressed(when, own.shared, own.remote))
        return lines

    def _shared_address(self, operand: str) -> str:
        own = self.own
        base, offset = _split_address(operand)
        kind = self.bits_of(base)
        if kind == 64:
            return (
                f"cvt.u32.u64 {own.shared}, {base}; add.s32 {own.shared}, {own.shared}, {offset};"
            )
        if kind == 32:
            return f"add.s32 {own.shared}, {base}, {offset};"
        return (  # a variable's name, or a plain number
            f"mov.u32 {own.shared}, {base}; add.s32 {own.shared}, {own.shared}, {offset};"
        )

    def _global_address(self, operand: str) -> str:
        own = self.own
        base, offset = _split_address(operand)
        if self.bits_of(base) != 64 or "," in operand:  # a variable, or a tensor map's coordinates
            return f"mov.u32 {own.remote}, 0;"
        return (
            f"add.s64 {own.wide}, {base}, {offset}; "
            f"shr.u64 {own.wide}, {own.wide}, 4; "
            f"cvt.u32.u64 {own.remote}, {own.wide};"
        )

    def _polling_wait(self, plan: Plan) -> Iterator[Insertion]:
        """A try that fails is the beginning of the wait, the one that succeeds its end.

        ``waiting`` holds the site that is being waited at, so that the shape of the retry loop
        does not matter; both records are written when the wait is over.
        """
        own = self.own
        statement, index = plan.statement, plan.site.index
        guard = f"@{'!' if statement.negated else ''}{statement.guard}" if statement.guard else ""
        before = [f"setp.ne.and.u32 {own.now}, {own.waiting}, {index}, {own.on};"]
        if guard:
            values = "0, 1" if statement.negated else "1, 0"
            before += [
                f"selp.b32 {own.scratch}, {values}, {statement.guard};",
                f"setp.ne.and.u32 {own.now}, {own.scratch}, 0, {own.now};",
            ]
        before.append(f"@{own.now} mov.u32 {own.start}, %clock;")
        before.append(f"@{own.now} mov.u32 {own.waiting}, {index};")
        yield Insertion(statement.start, tuple(before))
        success = split_operands(statement.operands)[0]
        # A guard that was false leaves `waiting` at another site (or at none): no record.
        after = [f"setp.eq.and.u32 {own.now}, {own.waiting}, {index}, {own.on};"]
        after.append(f"and.pred {own.now}, {own.now}, {success};")
        after.append(f"mov.u32 {own.clock}, %clock;")
        for phase, clock in ((0, own.start), (1, own.clock)):
            after.append(f"mov.u32 {own.site}, {index << 1 | phase};")
            after.append(self._store(own.now, clock))
            after += self._bump(own.now)
        after.append(f"@{own.now} mov.u32 {own.waiting}, 0;")
        if self.has_runs:
            after.append(f"@{own.now} mov.u32 {own.bits}, 0;")
        yield Insertion(statement.end, tuple(after))


def _split_address(operand: str) -> tuple[str, int]:
    """ "[%r1+128]" is ("%r1", 128)."""
    inside = operand.strip().strip("[]").split(",")[0].strip()
    match = re.fullmatch(r"([%$\w.]+)\s*(?:([+-])\s*(-?\w+))?", inside)
    if match is None:
        raise ValueError(f"an address this course has not met: {operand}")
    offset = int(match.group(3), 0) if match.group(3) else 0
    return match.group(1), -offset if match.group(2) == "-" else offset


class _RegisterWidths:
    """Bits of a register by its name; 0 for what is no register."""

    _DECLARED = re.compile(r"([%$\w]+)(?:<(\d+)>)?")

    def __init__(self, entry: Entry) -> None:
        self._ranges: dict[str, int] = {}
        self._single: dict[str, int] = {}
        for statement in entry.statements:
            match = re.match(r"\.reg\s+\.([a-z]+)(\d*)\w*\s+(.*)", statement.opcode, re.DOTALL)
            if statement.kind != "directive" or match is None:
                continue
            bits = int(match.group(2) or 1)
            for name, count in self._DECLARED.findall(match.group(3)):
                (self._ranges if count else self._single)[name] = bits

    def __call__(self, name: str) -> int:
        if name in self._single:
            return self._single[name]
        return self._ranges.get(name.rstrip("0123456789"), 0)
