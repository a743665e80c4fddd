"""Does what a kernel does depend on the schedule, or only on its arguments?

The checker judges the execution that it saw. Where no branch, address or barrier depends on what
differs between schedules, every schedule executes the same accesses and the same synchronisation,
so the verdict holds for all of them. This module decides that by following values through the
kernel: *taints* start at polls, results of atomics, volatile and relaxed loads, clocks and the like
and are carried by registers and, space by space, through memory.

A loop that asks an mbarrier until the answer is yes is a wait, not a poll: where the answer is no,
nothing happens before it is asked again. But a phase counts whichever arrivals come first: only in
a right kernel are they the same in every schedule. So an mbarrier, or a barrier that only part of
the block meets at, is a dependence of its own kind.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from course_lib.ptx.parse import (
    Address,
    Immediate,
    Instruction,
    Module,
    Operand,
    Register,
    Special,
    Symbol,
)
from course_lib.virtual_gpu.flow import (
    FlatKernel,
    analyse,
    flatten,
    registers_in,
    uses_and_definitions,
)

DATA = "input data"
"""The one taint that is no matter of the schedule: values that were loaded from global memory."""

FLAG = "a volatile or relaxed load"

_SPECIALS = {
    "%clock": "a clock", "%globaltimer": "a clock", "%smid": "the number of the SM (%smid)",
    "%nsmid": "the number of SMs (%nsmid)", "%warpid": "%warpid", "%gridid": "%gridid",
    "%pm": "a performance counter",
}  # fmt: skip
_HARMLESS_IN_RETRY = frozenset(
    """mov add sub mul mad fma shl shr shf and or xor not neg abs min max cvt cvta setp selp set bfe
    bfi lop3 prmt bra nanosleep mbarrier ld slct""".split()
)
"""What the loop around a poll may do between two questions."""


@dataclass(frozen=True)
class Dependence:
    """What control flow, addresses and synchronisation depend on, in words, each with a line.

    ``phases`` names the barriers whose phases take the arrivals as they come.
    """

    reasons: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    updates: bool = False

    @property
    def on_schedule(self) -> bool:
        """Whether another schedule may execute something else, or order it otherwise."""
        return bool(self.reasons or self.phases)

    @property
    def on_data(self) -> bool:
        """Whether other input may execute something else."""
        return bool(self.data)


KEPT = 64
_kept: OrderedDict[tuple[str, str], Dependence] = OrderedDict()


def dependence(module: Module, name: str) -> Dependence:
    """What kernel `name` depends on; the last answers are kept. Raises ``flow.Unsupported``."""
    key = (module.text, name)
    if key not in _kept:
        kernel = flatten(module, name)
        analyse(kernel)
        _kept[key] = _Analysis(kernel).run()
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return _kept[key]


def decides_by_flags(kernel: FlatKernel) -> bool:
    """Does a branch, an address or a barrier depend on what a volatile or relaxed load gave?"""
    return any(FLAG in reason for reason in dependence(kernel.module, kernel.name).reasons)


class _Analysis:
    def __init__(self, kernel: FlatKernel) -> None:
        self.kernel = kernel
        self.taints: dict[str, set[str]] = defaultdict(set)
        self.memory: dict[str, set[str]] = defaultdict(set)
        self.pointers: dict[str, set[str]] = defaultdict(set)  # register -> parameters
        self.written: set[str] = set()  # parameters whose arrays the kernel writes
        self.waits: set[int] = set()  # positions of polls that are waits
        self.exempt: set[int] = set()  # branches that only ask again
        self.items = [
            (k, item, *uses_and_definitions(item))
            for k, item in enumerate(kernel.code)
            if isinstance(item, Instruction)
        ]

    def run(self) -> Dependence:
        self.find_pointers()
        self.find_waits()
        changed = True
        while changed:
            changed = any([self.carry(*item) for item in self.items])
        reasons: dict[str, None] = {}
        data: dict[str, None] = {}
        for k, item, uses, _ in self.items:
            for taint in self.decides(k, item, uses):
                words = f"{self.what(item)} on {taint}" + self.line(item)
                (data if taint == DATA else reasons)[words] = None
        phases = dict.fromkeys(
            f"a phase counts the arrivals that come first{self.line(item)}"
            for _, item, _, _ in self.items
            if _counts_arrivals(item)
        )
        return Dependence(tuple(reasons), tuple(data), tuple(phases), self.updates_an_array())

    def updates_an_array(self) -> bool:
        """Whether a plain load reads an array that the kernel also writes, as in ``a[i] += x``."""
        return any(
            item.family == "ld" and _space(item) in ("global", "generic")
            and not self.written.isdisjoint(self.roots(item))
            for _, item, _, _ in self.items
        )  # fmt: skip

    # --- pointers

    def find_pointers(self) -> None:
        """Which parameters a register's address comes from."""
        changed = True
        while changed:
            changed = False
            for _, item, uses, definitions in self.items:
                # What no 64-bit parameter gives, such as how many tiles there are, is no array.
                if item.family == "ld" and not (
                    "param" in item.modifiers and item.opcode.endswith("64")
                ):
                    continue
                found: set[str] = set().union(*(self.pointers[r] for r in uses))
                if item.family == "ld":
                    found |= {
                        o.base.name
                        for o in item.operands
                        if isinstance(o, Address) and isinstance(o.base, Symbol)
                    }
                for register in definitions:
                    if not found <= self.pointers[register]:
                        self.pointers[register] |= found
                        changed = True
        for _, item, _, _ in self.items:
            if item.family in ("st", "atom", "red") and _space(item) in ("global", "generic"):
                self.written |= self.roots(item)

    def roots(self, item: Instruction) -> set[str]:
        return {
            parameter
            for operand in item.operands
            if isinstance(operand, Address)
            for register in registers_in(operand)
            for parameter in self.pointers[register]
        }

    # --- polls that are waits

    def find_waits(self) -> None:
        for number, block in enumerate(self.kernel.blocks):
            for k in range(block.start, block.end):
                item = self.kernel.code[k]
                if isinstance(item, Instruction) and _polls(item):
                    self.consider(number, k, item)

    def consider(self, number: int, k: int, poll: Instruction) -> None:
        """A poll is a wait where a no leads back to it through nothing that matters."""
        answer = next(iter(registers_in(poll.operands[0])), None)
        decided = self.decide(number, k, answer) if answer else None
        if decided is None:
            return
        branching, no, yes, asking = decided
        between = self.retry(no, number)
        if between is None:
            return
        kept = set(self.kernel.live_registers(yes)) if yes is not None else set()
        for register in self.varying(asking | between) & kept:
            self.taints[register].add("how often a poll was asked")
        self.waits.add(k)
        self.exempt.add(branching)
        for b in between:
            self.exempt.add(self.kernel.blocks[b].end - 1)

    def varying(self, blocks: Iterable[int]) -> set[str]:
        """Registers that these blocks change, and may change again the next time round.

        The answer itself is not one of them: whoever leaves has been told yes.
        """
        effects = [
            (item, *uses_and_definitions(item)) for b in blocks for _, item in self.instructions(b)
        ]
        varying = {register for _, _, definitions in effects for register in definitions}
        while True:
            fixed = set(varying)
            for item, uses, definitions in effects:
                again = item.family == "ld" or any(_special_taints(item.operands))
                if again or varying & set(uses):
                    fixed -= set(definitions)
            if not fixed:
                return varying
            varying -= fixed

    def instructions(self, number: int) -> Iterable[tuple[int, Instruction]]:
        block = self.kernel.blocks[number]
        for k in range(block.start, block.end):
            item = self.kernel.code[k]
            if isinstance(item, Instruction):
                yield k, item

    def decide(self, number: int, k: int, answer: str) -> tuple[int, int, int, set[int]] | None:
        """(branch, block after no, block after yes, blocks up to it) that the answer decides.

        The blocks after the poll are walked with the answer 0 and 1; what else a branch may depend
        on is unknown, and then nothing is decided.
        """
        ends: list[tuple[int, int]] = []
        asking = {number}
        for value in (0, 1):
            known = {answer: value}
            at, position = number, k + 1
            for _ in range(16):
                asking.add(at)
                step = self.walk(at, position, known)
                if step is None:
                    return None
                branch, following = step
                if branch is not None:
                    ends.append((branch, following))
                    break
                at, position = following, self.kernel.blocks[following].start
        if len(ends) != 2 or ends[0][0] != ends[1][0] or ends[0][1] == ends[1][1]:
            return None
        return ends[0][0], ends[0][1], ends[1][1], asking

    def walk(self, number: int, start: int, known: dict[str, int]) -> tuple[int | None, int] | None:
        """To the end of a block: (the branch that was decided or None, the block that follows)."""
        block = self.kernel.blocks[number]
        for k in range(start, block.end):
            item = self.kernel.code[k]
            if not isinstance(item, Instruction):
                continue
            if item.family == "bra":
                target = self.kernel.labels[item.operands[-1].name]  # type: ignore[union-attr]
                if not item.predicate:
                    return None, target
                if item.predicate not in known:
                    return None
                taken = bool(known[item.predicate]) != item.negated
                return k, target if taken else number + 1
            if item.family not in ("mov", "selp", "setp", "and", "or", "xor", "not", "cvt"):
                if item.family not in _HARMLESS_IN_RETRY:
                    return None
                for register in uses_and_definitions(item)[1]:
                    known.pop(register, None)
                continue
            _evaluate(item, known)
        return (None, number + 1) if number + 1 < len(self.kernel.blocks) else None

    def retry(self, start: int, poll: int) -> set[int] | None:
        """The blocks from `start` back to the poll's, or None where one of them does something."""
        found: set[int] = set()
        todo = [start]
        while todo:
            number = todo.pop()
            if number == poll or number in found:
                continue
            found.add(number)
            if len(found) > 64 or not self.kernel.blocks[number].successors:
                return None
            for _, item in self.instructions(number):
                silent = item.family in _HARMLESS_IN_RETRY
                if item.family == "mbarrier":
                    silent = _polls(item)
                if not silent:
                    return None
            todo.extend(self.kernel.blocks[number].successors)
        return found

    # --- taints

    def carry(self, k: int, item: Instruction, uses: list[str], definitions: list[str]) -> bool:
        """Move taints through one instruction; whether anything was new."""
        taints: set[str] = set().union(*(self.taints[r] for r in uses)) if uses else set()
        taints |= set(_special_taints(item.operands))
        taints |= self.born(k, item)
        space = _space(item)
        if item.family == "ld" and space in ("shared", "local"):
            taints |= self.memory[space]
        elif item.family in ("ldmatrix", "wmma"):
            taints |= self.memory["shared"]
        changed = False
        if item.family == "st" and space in ("shared", "local", "generic"):
            for one in ("shared", "local") if space == "generic" else (space,):
                changed |= not taints <= self.memory[one]
                self.memory[one] |= taints
        elif item.opcode.startswith("cp.async") and "wait" not in item.opcode:
            changed |= DATA not in self.memory["shared"]
            self.memory["shared"].add(DATA)
        for register in definitions:
            if not taints <= self.taints[register]:
                self.taints[register] |= taints
                changed = True
        return changed

    def born(self, k: int, item: Instruction) -> set[str]:
        """Taints that begin here."""
        words = item.modifiers
        if _polls(item):
            return set() if k in self.waits else {"a poll (test_wait or try_wait)"}
        if item.family == "atom":
            return {"the result of an atomic"}
        if item.family == "activemask":
            return {"__activemask()"}
        if item.family == "ld" and _space(item) != "param":
            if any(word in words for word in ("volatile", "relaxed", "acquire", "mmio")):
                return {FLAG}
            if _space(item) in ("global", "generic"):
                if self.roots(item) & self.written:
                    return {DATA, "memory that the kernel also writes"}
                return {DATA}
        return set()

    def decides(self, k: int, item: Instruction, uses: list[str]) -> set[str]:
        """Taints of what decides which accesses and which synchronisation happen."""
        deciding: set[str] = set()
        if item.predicate and k not in self.exempt:
            deciding.add(item.predicate)
        if item.family == "brx":
            deciding.update(uses)
        for operand in item.operands:
            if isinstance(operand, Address):
                deciding.update(registers_in(operand))
        if item.family in ("bar", "barrier", "mbarrier", "cp", "setmaxnreg"):
            deciding.update(r for r in uses)
        if item.predicate and k in self.exempt:
            deciding.discard(item.predicate)
        return set().union(*(self.taints[r] for r in deciding)) if deciding else set()

    # --- words

    def what(self, item: Instruction) -> str:
        if item.family in ("bra", "brx") or item.predicate:
            return "a branch depends"
        if item.family in ("bar", "barrier", "mbarrier"):
            return "a barrier depends"
        return "an address depends"

    def line(self, item: Instruction) -> str:
        line = self.kernel.module.site_of(item).cell_line
        return f" (line {line})" if line else ""


def _counts_arrivals(item: Instruction) -> bool:
    """Is it an arrival whose phase depends on who else has arrived before?"""
    if item.family == "mbarrier":
        return item.modifiers[0].startswith("arrive")
    if item.family not in ("bar", "barrier") or not {"sync", "arrive", "red"} & set(item.modifiers):
        return False
    if "warp" in item.modifiers or "cluster" in item.modifiers:
        return False
    number, whole = (1, 3) if "red" in item.modifiers else (0, 1)
    if len(item.operands) > whole:  # a count: not the whole block need come
        return True
    place = item.operands[number]
    return not (isinstance(place, Immediate) and place.value == 0)


def _polls(item: Instruction) -> bool:
    return item.family == "mbarrier" and item.modifiers[0] in ("test_wait", "try_wait")


def _space(item: Instruction) -> str:
    for word in item.modifiers:
        space = word.partition("::")[0]
        if space in ("shared", "local", "global", "param", "const"):
            return space
    return "generic"


def _special_taints(operands: Iterable[Operand]) -> Iterable[str]:
    for operand in operands:
        if isinstance(operand, Special):
            for start, words in _SPECIALS.items():
                if operand.name.startswith(start):
                    yield words


def _evaluate(item: Instruction, known: dict[str, int]) -> None:
    """Work out a small logical instruction where its operands are known, else forget its result."""
    if not item.operands or not isinstance(item.operands[0], Register):
        return
    target = item.operands[0].name
    values = [_value(operand, known) for operand in item.operands[1:]]
    known.pop(target, None)
    if item.predicate:
        return
    result = _result(item, values)
    if result is not None:
        known[target] = result


def _value(operand: Operand, known: dict[str, int]) -> int | None:
    if isinstance(operand, Immediate):
        return operand.value
    return known.get(operand.name) if isinstance(operand, Register) else None


def _result(item: Instruction, values: list[int | None]) -> int | None:
    family = item.family
    if family == "selp" and len(values) == 3 and values[2] is not None:
        return values[0] if values[2] else values[1]
    if any(value is None for value in values) or not values:
        return None
    first = values[0] or 0
    second = (values[1] or 0) if len(values) > 1 else 0
    pred = item.modifiers[-1:] == ("pred",)
    if family in ("mov", "cvt"):
        return first
    if family == "not":
        return 1 - first if pred else ~first
    if family == "setp" and len(values) == 2:
        equal = first == second
        return {"eq": int(equal), "ne": int(not equal)}.get(item.modifiers[0])
    return {"and": first & second, "or": first | second, "xor": first ^ second}.get(family)
