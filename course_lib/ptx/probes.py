"""Clock stamps: rewrites a kernel's PTX so that it tells when each step of its pipeline happened.

The learner's kernel stays as it is.  Lane 0 of every warp of a few chosen blocks writes a 16-byte
record at each interesting instruction, and :func:`decode` turns the records into a table.

Which instructions, and whether the clock is read before (0) or after (1) them:

========  ======  ==============================================================================
kind      phases  instructions
========  ======  ==============================================================================
copy      0       first ``cp.async`` or bulk copy of a run; shared and global address
commit    1       ``commit_group``
wait      0, 1    ``wait_group``, ``wait_all``; a *successful* ``mbarrier.try_wait``/``test_wait``,
                  whose phase 0 is the first try, so that a spinning wait is one interval
barrier   0, 1    ``bar.sync`` and its relatives
arrive    0       ``mbarrier.arrive``, ``bar.arrive``
load      0       first ``ld.global`` of a run; global address
store     0, 1    first ``st.shared`` of a run; shared address.  It needs its data, so the time from
                  0 to 1 is the wait for the global load that feeds it
read      0       first ``ld.shared`` or ``ldmatrix`` of a run; shared address
exit      0       ``ret`` of the kernel
========  ======  ==============================================================================

A *run* is what the source writes as one loop or line: accesses of one kind from one source line
with no commit, wait or barrier between them.  Runs are told apart where possible when the text is
rewritten; where a run spans several basic blocks (an inner loop, a guard per copy) one bit per run
remembers at run time that its first access is stamped.

A record is {clock (low 32 bits), site << 1 | phase, shared address, (global address >> 4) & 2³²-1};
the buffer is laid out [block slot][warp][capacity].  The first record of a warp is its header:
{clock at entry, HEADER_MARK, SM, linear block}.  A warp that runs out of records keeps overwriting
its last one, which :func:`decode` drops and reports.

A stamp is the clock, a store, and bump and clamp of the pointer's low half (the buffer must not
cross a 4 GiB line, which :func:`allocate` sees to).  Where next to nothing is executed between the
end of a wait or barrier and the next stamp, one record serves both, and decoding writes out both:
a record's store holds its registers until the memory pipeline takes it, so a stamp right behind
another would measure that.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from course_lib.ptx.statements import Entry, Statement, find_entry, split_operands

RECORD_BYTES = 16
HEADER_MARK = 0xFFFFFFFF
EXTRA_PARAMETERS = (
    4  #: u64 buffer, u32 capacity, u32 slots, u32 stride, after the kernel's own
)
PROBE_BEGIN = "// probe begin"
PROBE_END = "// probe end"

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
_DELIMITERS = frozenset({"commit", "wait", "barrier"})
_ADDRESSED = frozenset({"copy", "load", "store", "read"})
_MAX_RUN_BITS = 32  #: one bit each in one 32-bit register
#: One clock reading serves the end of a barrier and the first access behind it where at most this
#: many of these cheap instructions are between them.
_CHEAP_LIMIT = 24
_CHEAP = frozenset(
    (
        "mov",
        "add",
        "sub",
        "mul",
        "mad",
        "fma",
        "shl",
        "shr",
        "shf",
        "and",
        "or",
        "xor",
        "not",
    )
    + (
        "neg",
        "abs",
        "min",
        "max",
        "cvt",
        "cvta",
        "setp",
        "selp",
        "bfe",
        "bfi",
        "lop3",
        "prmt",
    )
)


@dataclass(frozen=True)
class ProbeSite:
    """One stamped instruction.  ``index`` is what the records name; it starts at 1."""

    index: int
    kind: str
    cell_line: int | None  #: line of the learner's cell, None for code without one
    opcode: str
    text_line: int  #: 0-based line of the *unstamped* PTX


@dataclass(frozen=True)
class ProbedPtx:
    """Stamped PTX and what is needed to read its records."""

    text: str
    kernel_name: str
    sites: tuple[ProbeSite, ...]
    #: (site, phase) -> the (site, phase) just before it that has no record of its own: next to
    #: nothing is executed between the two, so one clock reading serves both
    aliases: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  #: what is not stamped, in words

    def site(self, index: int) -> ProbeSite:
        """The site with this index (they are numbered from 1)."""
        return self.sites[index - 1]


def stamp(ptx_text: str, module: Any, kernel_name: str) -> ProbedPtx:
    """Adds clock stamps to one kernel.

    ``module`` is the parsed ``ptx_text`` (for the source line of each instruction); None leaves
    every site without a line.  The stamped kernel takes four parameters more
    (:func:`launch_arguments`).  Raises ``KeyError`` where there is no such kernel.
    """
    entry = find_entry(ptx_text, kernel_name)
    lines = _cell_lines(module, kernel_name)
    plans = _plan(entry, lines)
    writer = _Writer(entry, _Registers.unused_in(ptx_text), plans)
    text = writer.rewrite(ptx_text)
    sites = tuple(plan.site for plan in plans)
    return ProbedPtx(text, kernel_name, sites, writer.aliases, _notes(entry, module))


def launch_arguments(
    buffer_address: int, capacity: int, slots: int, stride: int
) -> tuple:
    """The stamped kernel's extra arguments, to follow its own.

    Stamped are the blocks with linear index ``0, stride, 2*stride, …``, ``slots`` of them;
    ``capacity`` is in records per warp, header included.
    """
    return (
        np.uint64(buffer_address),
        np.uint32(capacity),
        np.uint32(slots),
        np.uint32(stride),
    )


# --- Which instructions -----------------------------------------------------------------------


@dataclass
class _Plan:
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
    if head == "ldmatrix" or (head == "ld" and _in_shared(words)):
        return "read"
    if head == "st" and _in_shared(words):
        return "store"
    if head == "ld" and "global" in words:
        return "load"
    return "exit" if head in ("ret", "exit") else None


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


def _cell_lines(module: Any, kernel_name: str) -> dict[int, int | None]:
    """Line of the learner's cell for each line of the PTX text."""
    if module is None:
        return {}
    lines: dict[int, int | None] = {}
    for item in module.functions[kernel_name].body:
        text_line = getattr(item, "text_line", None)
        if text_line is not None and hasattr(item, "site"):
            lines.setdefault(text_line, module.site_of(item).cell_line)
    return lines


def _plan(entry: Entry, lines: Mapping[int, int | None]) -> list[_Plan]:
    """The sites in text order; of a run within one basic block only the first access."""
    plans: list[_Plan] = []
    stamped: set[tuple[str, int | None, str, bool]] = set()
    segment = 0
    for order, statement in enumerate(entry.statements):
        if statement.kind == "label" or _branches(statement):
            stamped.clear()
        kind = kind_of(statement.opcode) if statement.kind == "instruction" else None
        if kind is None:
            continue
        line = lines.get(statement.line)
        if kind in _DELIMITERS:
            stamped.clear()
            segment += 1
        elif kind in _ADDRESSED:
            run = (kind, line, statement.guard, statement.negated)
            if run in stamped:
                continue
            stamped.add(run)
        site = ProbeSite(len(plans) + 1, kind, line, statement.opcode, statement.line)
        plans.append(_Plan(site, statement, PHASES[kind], order, segment))
    _assign_run_bits(entry, plans)
    return plans


def _branches(statement: Statement) -> bool:
    return statement.kind == "instruction" and statement.opcode.split(".")[0] in (
        "bra",
        "brx",
    )


def _assign_run_bits(entry: Entry, plans: list[_Plan]) -> None:
    """Gives a run-time bit to the runs that more than one execution of a site may belong to."""
    loops = _loops_without_delimiter(entry, plans)
    groups: dict[tuple[str, int | None], list[_Plan]] = {}
    for plan in plans:
        if plan.site.kind in _ADDRESSED:
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


def _loops_without_delimiter(entry: Entry, plans: list[_Plan]) -> list[tuple[int, int]]:
    """Statement ranges that a backward branch repeats with no commit, wait or barrier inside."""
    labels = {s.opcode: i for i, s in enumerate(entry.statements) if s.kind == "label"}
    delimiters = [plan.order for plan in plans if plan.site.kind in _DELIMITERS]
    loops = []
    for last, statement in enumerate(entry.statements):
        if not _branches(statement):
            continue
        first = labels.get(statement.operands.strip(), last)
        if first < last and not any(first <= order <= last for order in delimiters):
            loops.append((first, last))
    return loops


def _shared_readings(
    entry: Entry, plans: list[_Plan]
) -> dict[tuple[int, int], tuple[int, int]]:
    """For (site, 0): the (site, 1) right before it that needs no clock reading of its own."""
    shared = {}
    for first, second in itertools.pairwise(plans):
        alone = any(p.statement.guard or _polls(p) for p in (first, second))
        if alone or first.site.kind not in _DELIMITERS or 0 not in second.phases:
            continue
        between = entry.statements[first.order + 1 : second.order]
        instructions = [s for s in between if s.kind == "instruction"]
        limit = _CHEAP_LIMIT if second.site.kind in _ADDRESSED else 0
        if (
            len(instructions) <= limit
            and all(s.opcode.split(".")[0] in _CHEAP for s in instructions)
            and not any(s.kind == "label" for s in between)
        ):
            shared[second.site.index, 0] = (first.site.index, 1)
    return shared


def _polls(plan: _Plan) -> bool:
    return plan.statement.opcode.startswith("mbarrier.t")


def _notes(entry: Entry, module: Any) -> tuple[str, ...]:
    """What the stamps do not cover."""
    notes = []
    called = [
        split_operands(s.operands)
        for s in entry.statements
        if s.opcode.split(".")[0] == "call"
    ]
    functions = set(getattr(module, "functions", {}) or ())
    names = {name for operands in called for name in operands if name in functions}
    if names:
        listed = ", ".join(sorted(names))
        notes.append(
            f"device functions that were not inlined are not stamped inside: {listed}"
        )
    return tuple(notes)


# --- How they are stamped ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Registers:
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
    def unused_in(cls, text: str) -> _Registers:
        number = 0
        while f"probe{number}_" in text:
            number += 1
        prefix = f"probe{number}_"
        names = [item.name for item in fields(cls) if item.name != "prefix"]
        return cls(prefix, **{name: f"%{prefix}{name}" for name in names})

    def parameter(self, name: str) -> str:
        return self.prefix + name

    def declarations(self) -> tuple[str, ...]:
        wide, predicates = (self.pointer, self.wide), (self.on, self.now)
        narrow = [
            getattr(self, item.name)
            for item in fields(self)
            if item.name != "prefix"
            and getattr(self, item.name) not in wide + predicates
        ]
        return (
            f".reg .b32 {', '.join(narrow)};",
            f".reg .b64 {', '.join(wide)};",
            f".reg .pred {', '.join(predicates)};",
        )


@dataclass(frozen=True)
class _Insertion:
    position: int
    lines: tuple[str, ...]


class _Writer:
    """Writes the stamps of one entry."""

    def __init__(self, entry: Entry, registers: _Registers, plans: list[_Plan]) -> None:
        self.entry, self.plans = entry, plans
        self.own = registers
        self.bits_of = _RegisterWidths(entry)
        self.has_runs = any(plan.run_bit is not None for plan in plans)
        self.aliases = _shared_readings(entry, plans)
        self._without_record = set(self.aliases.values())

    def rewrite(self, text: str) -> str:
        """The whole PTX text with the stamps of this entry in it."""
        insertions = [
            _Insertion(self.entry.body[0], self.own.declarations()),
            _Insertion(self._first_instruction(), tuple(self._prologue())),
            *self._insertions(),
        ]
        places = [(self.entry.parameters[1], self._parameter_list(text))]
        for item in insertions:
            block = "\n".join((PROBE_BEGIN, *item.lines, PROBE_END))
            places.append((item.position, f"\n{block}\n"))
        pieces, position = [], 0
        for place, added in sorted(places, key=lambda item: item[0]):  # stable
            pieces += [text[position:place], added]
            position = place
        return "".join([*pieces, text[position:]])

    def _parameter_list(self, text: str) -> str:
        kinds = {"buffer": "u64", "capacity": "u32", "slots": "u32", "stride": "u32"}
        added = ", ".join(
            f".param .{kind} {self.own.parameter(n)}" for n, kind in kinds.items()
        )
        if not self.entry.has_parameter_list:
            return f"({added})\n"
        begin, end = self.entry.parameters
        return f",\n\t{added}\n" if ".param" in text[begin:end] else added

    def _first_instruction(self) -> int:
        for statement in self.entry.statements:
            if statement.kind in ("instruction", "label", "open"):
                return statement.start
        return self.entry.body[1]

    def _prologue(self) -> Iterator[str]:
        """Chooses lane 0 of the chosen blocks, points at the warp's records, writes the header."""
        own = self.own
        a, b, c, d = own.low, own.high, own.clock, own.site  # free until the header
        name = own.parameter
        yield from self._linear(a, b, "%tid", "%ntid")  # a = thread of the block
        yield from self._linear(c, b, "%ctaid", "%nctaid")  # c = block of the grid
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

    def _linear(self, into: str, scratch: str, index: str, size: str) -> Iterator[str]:
        """``into`` = (index.z * size.y + index.y) * size.x + index.x."""
        yield f"mov.u32 {into}, {index}.z;"
        for axis in "yx":
            yield f"mov.u32 {scratch}, {size}.{axis};"
            yield f"mul.lo.u32 {into}, {into}, {scratch};"
            yield f"mov.u32 {scratch}, {index}.{axis};"
            yield f"add.u32 {into}, {into}, {scratch};"

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

    def _insertions(self) -> Iterator[_Insertion]:
        own = self.own
        for plan in self.plans:
            statement = plan.statement
            if _polls(plan):
                yield from self._polling_wait(plan)
                continue
            if 0 in plan.phases:
                lines = self._stamp(plan, 0)
                if lines:
                    yield _Insertion(statement.start, tuple(lines))
            after = self._stamp(plan, 1) if 1 in plan.phases else []
            if plan.site.kind in _DELIMITERS and self.has_runs:
                after.append(f"mov.u32 {own.bits}, 0;")
            if after:
                yield _Insertion(statement.end, tuple(after))

    def _stamp(self, plan: _Plan, phase: int) -> list[str]:
        """Lines of one stamp; none where the next stamp's clock reading serves for it."""
        own = self.own
        mark = plan.site.index << 1 | phase
        if (plan.site.index, phase) in self._without_record:
            return []
        when, lines = self._condition(plan, phase)
        lines.append(f"mov.u32 {own.clock}, %clock;")
        lines.append(f"mov.u32 {own.site}, {mark};")
        if plan.site.kind in _ADDRESSED:
            lines += self._addresses(plan, when)
        else:
            lines.append(self._store(when, own.clock))
        lines += self._bump(when)
        return lines

    def _condition(self, plan: _Plan, phase: int) -> tuple[str, list[str]]:
        """Predicate under which this stamp is written, and the lines that compute it."""
        own = self.own
        guard, when = plan.statement.guard, own.on
        lines: list[str] = []
        if plan.run_bit is not None:
            bit = 1 << plan.run_bit
            if phase == 0:
                lines.append(f"and.b32 {own.scratch}, {own.bits}, {bit};")
                lines.append(f"setp.eq.and.u32 {own.now}, {own.scratch}, 0, {own.on};")
            when = own.now
        if guard and phase == 0:
            if plan.statement.negated:
                # now = when and not guard
                lines.append(f"selp.b32 {own.scratch}, 0, 1, {guard};")
                lines.append(f"setp.ne.and.u32 {own.now}, {own.scratch}, 0, {when};")
            else:
                lines.append(f"and.pred {own.now}, {guard}, {when};")
        if guard:
            when = own.now
        if plan.run_bit is not None and phase == 0:
            lines.append(f"@{when} or.b32 {own.bits}, {own.bits}, {1 << plan.run_bit};")
        return when, lines

    def _addresses(self, plan: _Plan, when: str) -> list[str]:
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
            return f"cvt.u32.u64 {own.shared}, {base}; add.s32 {own.shared}, {own.shared}, {offset};"
        if kind == 32:
            return f"add.s32 {own.shared}, {base}, {offset};"
        return (  # a variable's name, or a plain number
            f"mov.u32 {own.shared}, {base}; add.s32 {own.shared}, {own.shared}, {offset};"
        )

    def _global_address(self, operand: str) -> str:
        own = self.own
        base, offset = _split_address(operand)
        if (
            self.bits_of(base) != 64 or "," in operand
        ):  # a variable, or a tensor map's coordinates
            return f"mov.u32 {own.remote}, 0;"
        return (
            f"add.s64 {own.wide}, {base}, {offset}; "
            f"shr.u64 {own.wide}, {own.wide}, 4; "
            f"cvt.u32.u64 {own.remote}, {own.wide};"
        )

    def _polling_wait(self, plan: _Plan) -> Iterator[_Insertion]:
        """A try that fails is the beginning of the wait, the one that succeeds its end.

        ``waiting`` holds the site that is being waited at, so that the shape of the retry loop
        does not matter; both records are written when the wait is over.
        """
        own = self.own
        statement, index = plan.statement, plan.site.index
        guard = (
            f"@{'!' if statement.negated else ''}{statement.guard}"
            if statement.guard
            else ""
        )
        before = [f"setp.ne.and.u32 {own.now}, {own.waiting}, {index}, {own.on};"]
        if guard:
            before += [
                f"selp.b32 {own.scratch}, {'0, 1' if statement.negated else '1, 0'}, "
                f"{statement.guard};",
                f"setp.ne.and.u32 {own.now}, {own.scratch}, 0, {own.now};",
            ]
        before.append(f"@{own.now} mov.u32 {own.start}, %clock;")
        before.append(f"@{own.now} mov.u32 {own.waiting}, {index};")
        yield _Insertion(statement.start, tuple(before))
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
        yield _Insertion(statement.end, tuple(after))


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
            match = re.match(
                r"\.reg\s+\.([a-z]+)(\d*)\w*\s+(.*)", statement.opcode, re.DOTALL
            )
            if statement.kind != "directive" or match is None:
                continue
            bits = int(match.group(2) or 1)
            for name, count in self._DECLARED.findall(match.group(3)):
                (self._ranges if count else self._single)[name] = bits

    def __call__(self, name: str) -> int:
        if name in self._single:
            return self._single[name]
        return self._ranges.get(name.rstrip("0123456789"), 0)


# --- Reading the records ----------------------------------------------------------------------

EVENT = np.dtype(
    [
        ("slot", "i4"),
        ("block", "i8"),
        ("sm", "i4"),
        ("warp", "i4"),
        ("order", "i4"),  # program order within the warp
        ("site", "i4"),
        ("phase", "i1"),
        ("clock", "i8"),  # cycles since the first stamped warp's entry, unwrapped
        ("shared", "u4"),
        ("global_address", "u8"),  # modulo 2**36, in steps of 16: see locate()
    ]
)


@dataclass(frozen=True)
class Decoded:
    """Events of all stamped warps, and the warps whose records ran out."""

    events: np.ndarray
    entries: np.ndarray  #: one EVENT per warp, site 0: when it began
    truncated: tuple[tuple[int, int], ...] = ()  #: (block, warp)


def allocate(xp: Any, slots: int, warps: int, capacity: int) -> Any:
    """A zeroed ``uint32[slots, warps, capacity, 4]`` that crosses no 4 GiB line.

    ``xp`` is NumPy or CuPy.  Larger than 2 GiB is refused with ``ValueError``.
    """
    words = slots * warps * capacity * 4
    nbytes = words * 4
    if nbytes > 1 << 31:
        raise ValueError(
            f"{nbytes >> 20} MiB of stamps; ask for fewer blocks or records"
        )
    store = xp.zeros(2 * words + 64, dtype=xp.uint32)
    begin = address_of(store)
    skip = -begin % 64
    line = (begin >> 32) + 1 << 32
    if begin + skip < line < begin + skip + nbytes:
        skip = line - begin
    return store[skip // 4 : skip // 4 + words].reshape(slots, warps, capacity, 4)


def address_of(array: Any) -> int:
    """Where an array's first element is, for NumPy and CuPy arrays."""
    return int(array.data.ptr if hasattr(array.data, "ptr") else array.ctypes.data)


def decode(records: np.ndarray, probed: ProbedPtx) -> Decoded:
    """Turns the filled buffer, shape ``[slots, warps, capacity, 4]``, into events.

    Clocks count from the first header found.  They compare within one SM only: each SM has its own
    clock.  Warps that never ran have no header and give nothing.
    """
    records = np.asarray(records, dtype=np.uint32)
    headers = records[:, :, 0, :]
    present = np.argwhere(headers[:, :, 1] == HEADER_MARK)
    origin = int(headers[tuple(present[0])][0]) if len(present) else 0
    parts, entries, truncated = [], [], []
    for slot, warp in present:
        header = headers[slot, warp]
        begin = _signed32(int(header[0]) - origin)
        written = records[slot, warp, 1:]
        count = int((written[:, 1] != 0).sum())
        if count == len(written):
            truncated.append((int(header[3]), int(warp)))
            count -= 1
        events = _events_of_warp(written[:count], begin, int(header[0]), probed)
        common = {"slot": slot, "warp": warp, "sm": header[2], "block": header[3]}
        entry = np.zeros(1, EVENT)
        entry["clock"] = begin
        for part in (events, entry):
            for name, value in common.items():
                part[name] = value
        parts.append(events)
        entries.append(entry)
    empty = np.zeros(0, EVENT)
    return Decoded(
        np.concatenate(parts) if parts else empty,
        np.concatenate(entries) if entries else empty,
        tuple(truncated),
    )


def _signed32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _events_of_warp(
    written: np.ndarray, begin: int, raw: int, probed: ProbedPtx
) -> np.ndarray:
    """Events of one warp, with the aliases written out and the 32-bit clock unwrapped."""
    clocks = written[:, 0].astype(np.int64)
    steps = np.diff(clocks, prepend=raw) % (1 << 32)
    if len(
        steps
    ):  # a polling wait's first record repeats an earlier reading: never "before" it
        steps[steps >= 1 << 31] -= 1 << 32
    unwrapped = begin + np.cumsum(steps)
    marks = written[:, 1].astype(np.int64)
    copies = np.ones(len(marks), dtype=np.int64)
    alias_of = {
        site << 1 | phase: s << 1 | p
        for (site, phase), (s, p) in probed.aliases.items()
    }
    for mark in alias_of:
        copies[marks == mark] = 2
    source = np.repeat(np.arange(len(marks)), copies)
    events = np.zeros(len(source), EVENT)
    expanded = marks[source]
    first = (
        np.r_[source[1:] == source[:-1], False] if len(source) else np.zeros(0, bool)
    )
    for mark, other in alias_of.items():
        expanded[first & (marks[source] == mark)] = other
    events["site"], events["phase"] = expanded >> 1, expanded & 1
    events["clock"] = unwrapped[source]
    own = ~first  # the access's addresses are not those of the barrier before it
    events["shared"] = np.where(own, written[source, 2], 0)
    events["global_address"] = np.where(own, written[source, 3], 0).astype(
        np.uint64
    ) << np.uint64(4)
    events["order"] = np.arange(len(events))
    return events


def locate(
    addresses: Iterable[int] | np.ndarray, arrays: Mapping[str, tuple[int, int]]
) -> tuple[list[str], np.ndarray]:
    """Which array each recorded global address lies in, and at which byte.

    ``arrays`` maps names to (address, bytes).  Returns the names ("" for none) and the byte
    offsets (-1 for none), rounded down to 16 as the records are.
    """
    low = np.asarray(addresses, dtype=np.uint64)
    names = [""] * len(low)
    offsets = np.full(len(low), -1, dtype=np.int64)
    mask = np.uint64((1 << 36) - 1)
    for name, (address, nbytes) in arrays.items():
        distance = (low - np.uint64(address & ~15)) & mask
        inside = (low != 0) & (distance < nbytes) & (offsets < 0)
        offsets[inside] = np.maximum(
            distance[inside].astype(np.int64) - (address & 15), 0
        )
        for index in np.flatnonzero(inside):
            names[index] = name
    return names, offsets
