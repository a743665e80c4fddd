"""Delays: rewrites a kernel's PTX so that one warp can be held up where its pipeline is sensitive.

The learner's kernel stays as it is. Which warp is delayed, where, in which block and for how long
are parameters of the launch (:func:`launch_arguments`), so one cubin serves every iteration of a
stress run; with no warp chosen nothing sleeps.

=======  ===========================================================================================
class    where a delay is written
=======  ===========================================================================================
READS    before the first ``ld.shared``, ``ldmatrix`` or ``wmma.load`` of a run, and before
         ``wgmma.fence``: the warp comes late to a stage that it may still read
ARRIVES  before ``mbarrier.arrive``, ``bar.arrive``, ``bar.sync`` and their relatives: the others
         get the warp's word late
WAITS    after ``wait_group``, ``wait_all`` and a *successful* ``mbarrier.try_wait``: the warp knows
         late that its tile has landed
=======  ===========================================================================================

A delay is a loop of short sleeps until the SM's clock says that it is over: PTX promises of one
``nanosleep`` no more than a time between 0 and twice what was asked for (PTX ISA, ``nanosleep``).

Each warp also remembers which classes it has met, and adds them to a *census* where the launch
gives one: the warps that read shared memory are the consumers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from course_lib.ptx.parse import split_operands
from course_lib.ptx.probe_sites import (
    DELIMITERS,
    Plan,
    ProbeSite,
    cell_lines,
    choose,
    kind_of,
    polls,
)
from course_lib.ptx.rewriting import (
    Condition,
    Insertion,
    condition_before,
    first_instruction,
    linear,
    rewrite,
    unused_prefix,
)
from course_lib.ptx.statements import Entry, find_entry

READS, ARRIVES, WAITS = 1, 2, 4
ALL_CLASSES = READS | ARRIVES | WAITS
NO_WARP = 0xFFFFFFFF
EVERY_BLOCK = 0xFFFFFFFF
SLEEP = 100  #: nanoseconds asked for at a time: a delay is at most twice this too long
LEAST_TURN = 64
"""Cycles that one sleep counts for at least, so that a delay ends where the clock stands still: on
the virtual GPU when nothing is timed."""
LONGEST_DELAY = 1 << 24  #: cycles

#: u32 warp, u32 classes, u32 cycles, u32 block, u64 census, after the kernel's own
EXTRA_PARAMETERS = 5

#: class and phase (0 before, 1 after the instruction) of each kind of site
_CLASSES = {"read": (READS, 0), "arrive": (ARRIVES, 0), "barrier": (ARRIVES, 0), "wait": (WAITS, 1)}
_NAMES = {READS: "reads", ARRIVES: "arrives", WAITS: "waits"}


@dataclass(frozen=True)
class DelayedPtx:
    """PTX whose warps can be delayed; ``sites`` are the instructions at which they can."""

    text: str
    kernel_name: str
    sites: tuple[ProbeSite, ...]

    def classes(self) -> int:
        """The classes of delays for which the kernel has a site."""
        found = 0
        for site in self.sites:
            found |= _CLASSES[site.kind][0]
        return found


def delayable_kind(opcode: str) -> str | None:
    """Kind of a site at which a warp may be delayed, or which ends a run of reads; else None."""
    if opcode.startswith("wgmma.fence"):  # what follows reads shared memory for the tensor cores
        return "read"
    kind = kind_of(opcode)
    return kind if kind in _CLASSES or kind in DELIMITERS or kind == "exit" else None


def delay(ptx_text: str, module: Any, kernel_name: str) -> DelayedPtx:
    """Adds delays to one kernel; without a warp in its arguments it behaves as before.

    ``module`` is the parsed ``ptx_text`` (for the source lines of the sites) or None. The delayed
    kernel takes ``EXTRA_PARAMETERS`` more. Raises ``KeyError`` where there is no such kernel.
    """
    entry = find_entry(ptx_text, kernel_name)
    plans = choose(entry, cell_lines(module, kernel_name), delayable_kind)
    text = _Writer(entry, _Registers.unused_in(ptx_text), plans).rewrite(ptx_text)
    sites = tuple(plan.site for plan in plans if plan.site.kind in _CLASSES)
    return DelayedPtx(text, kernel_name, sites)


def launch_arguments(
    warp: int = NO_WARP,
    classes: int = ALL_CLASSES,
    cycles: int = 0,
    block: int = EVERY_BLOCK,
    census: Any = 0,
) -> tuple[Any, ...]:
    """The delayed kernel's extra arguments, to follow its own.

    ``cycles`` of the SM's clock is what a delay lasts at least; with 0 it is one short sleep.
    ``block`` is a linear index in the grid. ``census`` is a device address or an array of
    ``uint32[warps]``, zero before the launch: every warp's classes are or-ed into it; 0 for none.
    """
    address = np.uint64(census) if isinstance(census, int) else census
    length = min(int(cycles), LONGEST_DELAY)
    return (np.uint32(warp), np.uint32(classes), np.uint32(length), np.uint32(block), address)


@dataclass(frozen=True)
class _Registers:
    """Names of the delays' own registers, none of which the kernel uses."""

    prefix: str
    reads: str  #: predicates: this warp is delayed at sites of this class
    arrives: str
    waits: str
    on: str
    now: str
    warp: str
    met: str  #: classes that this thread has met
    bits: str
    scratch: str
    other: str
    left: str  #: cycles that the delay still has to last
    wide: str
    place: str

    @classmethod
    def unused_in(cls, text: str) -> _Registers:
        prefix = unused_prefix(text, "delay")
        names = [item.name for item in fields(cls) if item.name != "prefix"]
        return cls(prefix, **{name: f"%{prefix}{name}" for name in names})

    def parameter(self, name: str) -> str:
        return self.prefix + name

    def declarations(self) -> tuple[str, ...]:
        predicates = (self.reads, self.arrives, self.waits, self.on, self.now)
        narrow = (self.warp, self.met, self.bits, self.scratch, self.other, self.left)
        return (
            f".reg .pred {', '.join(predicates)};",
            f".reg .b32 {', '.join(narrow)};",
            f".reg .b64 {self.wide}, {self.place};",
        )


class _Writer:
    """Writes the delays of one entry."""

    def __init__(self, entry: Entry, registers: _Registers, plans: list[Plan]) -> None:
        self.entry, self.own, self.plans = entry, registers, plans
        self.has_runs = any(plan.run_bit is not None for plan in plans)
        self.delays = 0  #: written so far: each has labels of its own

    def rewrite(self, text: str) -> str:
        insertions = [
            Insertion(self.entry.body[0], self.own.declarations()),
            Insertion(first_instruction(self.entry), tuple(self._prologue())),
            *self._insertions(),
        ]
        kinds = {
            "warp": "u32", "classes": "u32", "cycles": "u32", "block": "u32", "census": "u64",
        }  # fmt: skip
        parameters = {self.own.parameter(name): kind for name, kind in kinds.items()}
        return rewrite(text, self.entry, insertions, parameters)

    def _prologue(self) -> Iterator[str]:
        """One predicate per class: this warp of this block is delayed there."""
        own = self.own
        name = own.parameter
        yield from linear(own.met, own.other, "%ctaid", "%nctaid")
        yield f"ld.param.u32 {own.other}, [{name('block')}];"
        yield f"setp.eq.u32 {own.on}, {own.other}, {EVERY_BLOCK};"
        yield f"setp.eq.or.u32 {own.on}, {own.other}, {own.met}, {own.on};"
        yield from linear(own.warp, own.other, "%tid", "%ntid")
        yield f"shr.u32 {own.warp}, {own.warp}, 5;"
        yield f"ld.param.u32 {own.other}, [{name('warp')}];"
        yield f"setp.eq.and.u32 {own.on}, {own.other}, {own.warp}, {own.on};"
        yield f"ld.param.u32 {own.other}, [{name('classes')}];"
        for bit, word in _NAMES.items():
            yield f"and.b32 {own.scratch}, {own.other}, {bit};"
            yield f"setp.ne.and.u32 {getattr(own, word)}, {own.scratch}, 0, {own.on};"
        yield f"mov.u32 {own.met}, 0;"
        yield f"mov.u32 {own.bits}, 0;"

    def _insertions(self) -> Iterator[Insertion]:
        for plan in self.plans:
            kind, statement = plan.site.kind, plan.statement
            if kind == "exit":
                yield Insertion(statement.start, tuple(self._report(plan)))
                continue
            bit, phase = _CLASSES.get(kind, (0, 0))
            after: list[str] = []
            if bit and phase == 0:
                yield Insertion(statement.start, tuple(self._before(plan, bit)))
            elif bit:
                after += self._after(plan, bit)
            if kind in DELIMITERS and self.has_runs:
                after.append(f"mov.u32 {self.own.bits}, 0;")
            if after:
                yield Insertion(statement.end, tuple(after))

    def _sleep(self, when: str) -> Iterator[str]:
        own = self.own
        again, over = (f"${own.prefix}{word}_{self.delays}" for word in ("again", "over"))
        self.delays += 1
        yield f"@!{when} bra {over};"
        yield f"ld.param.u32 {own.left}, [{own.parameter('cycles')}];"
        yield f"mov.u32 {own.other}, %clock;"
        yield f"{again}:"
        yield f"nanosleep.u32 {SLEEP};"
        yield f"mov.u32 {own.scratch}, %clock;"
        yield f"sub.u32 {own.other}, {own.scratch}, {own.other};"
        yield f"max.u32 {own.other}, {own.other}, {LEAST_TURN};"
        yield f"sub.s32 {own.left}, {own.left}, {own.other};"
        yield f"mov.u32 {own.other}, {own.scratch};"
        yield f"setp.gt.s32 {own.on}, {own.left}, 0;"
        yield f"@{own.on} bra {again};"
        yield f"{over}:"

    def _before(self, plan: Plan, bit: int) -> Iterator[str]:
        own = self.own
        on = getattr(own, _NAMES[bit])
        guard = plan.statement.guard
        allowed = f"@{'!' if plan.statement.negated else ''}{guard} " if guard else ""
        yield f"{allowed}or.b32 {own.met}, {own.met}, {bit};"
        when, lines = condition_before(plan, on, Condition(own.now, own.scratch, own.bits))
        yield from lines
        yield from self._sleep(when)

    def _after(self, plan: Plan, bit: int) -> Iterator[str]:
        own = self.own
        on = when = getattr(own, _NAMES[bit])
        yield f"or.b32 {own.met}, {own.met}, {bit};"
        if polls(plan):  # a try that failed is tried again: only the last one has waited
            success = split_operands(plan.statement.operands)[0].split("|")[0]
            yield f"and.pred {own.now}, {on}, {success};"
            when = own.now
        yield from self._sleep(when)

    def _report(self, plan: Plan) -> Iterator[str]:
        """Adds what this thread has met to the census of its warp."""
        own = self.own
        yield f"ld.param.u64 {own.wide}, [{own.parameter('census')}];"
        yield f"setp.ne.u64 {own.now}, {own.wide}, 0;"
        yield f"mul.wide.u32 {own.place}, {own.warp}, 4;"
        yield f"add.u64 {own.wide}, {own.wide}, {own.place};"
        guard = plan.statement.guard
        if guard:  # a thread that stays comes by the next exit
            yield f"selp.b32 {own.scratch}, 1, 0, {guard};"
            wanted = 0 if plan.statement.negated else 1
            yield f"setp.eq.and.u32 {own.now}, {own.scratch}, {wanted}, {own.now};"
        yield f"@{own.now} red.global.or.b32 [{own.wide}], {own.met};"
