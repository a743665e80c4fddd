"""What a run found, in the learner's words and lines.

Every message says what happened, on which line, why it matters for a pipeline, and what to look at
next. The records are read where the run left them; nothing here runs while a kernel does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from course_lib.virtual_gpu.abi import (
    ACCESS_ATOMIC,
    ACCESS_COPY,
    ACCESS_WRITE,
    B_CTAID_X,
    F_ASSERT,
    F_BRANCH,
    F_GLOBAL,
    F_LOCAL,
    F_SHARED,
    F_TRAP,
    T_A0,
    T_A1,
    T_A2,
    T_A3,
    T_A4,
    T_RESUME,
    T_SITE,
    WINDOW_MASK,
    WINDOW_SHIFT,
    Y_FUEL,
    Y_SYNCWARP,
)
from course_lib.virtual_gpu.printing import text_at
from course_lib.virtual_gpu.records import (
    B_LINEAR,
    BAD_MASK,
    BAR_ARRIVED,
    BAR_EXPECTED,
    BARRIER_COUNT,
    BUDGET,
    DEADLOCK,
    DIVERGENT,
    FULL_WARP,
    K_FAULT_BLOCK,
    K_FAULT_THREAD,
    K_FORCED_LANDINGS,
    K_NOTES_COUNT,
    N_MEETING,
    N_UNINITIALISED,
    NOTE_KIND,
    NOTE_OTHER_SITE,
    NOTE_OTHER_WARPS,
    NOTE_SITE,
    NOTE_WARPS,
    T_REASON,
    W_BARRIER,
    W_COLLECTIVE,
    W_EXITED,
    W_READY,
)
from course_lib.virtual_gpu.session import BlockState, Worker, address_of

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.ptx.parse import Module
    from course_lib.virtual_gpu.flow import FlatKernel
    from course_lib.virtual_gpu.memory import AddressSpace

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


# --- lines ------------------------------------------------------------------------------------


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

    def short(self, site: int) -> str:
        """`line 7` alone."""
        line = self.line(site)
        return self.where(site) if line is None else f"line {line} `{self.code(line)}`"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _index(linear: int, shape: Sequence[int]) -> Index:
    return linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])


def _plain(index: Index) -> str:
    """`5`, or `(5, 1, 0)` where more than x is used."""
    return str(index[0]) if index[1:] == (0, 0) else str(index)


# --- errors -----------------------------------------------------------------------------------


def explain(kernel: Kernel, worker: Worker, space: AddressSpace, status: int) -> RunError:
    """The error with which a core's run ended, from the records as they are."""
    lines = Lines(kernel, worker.compiled.module)
    if status == DEADLOCK:
        return _deadlock(lines, worker)
    state = _fault_block(worker)
    if status == BUDGET:
        return _budget(lines, worker, state)
    thread = int(worker.core[K_FAULT_THREAD])
    case = _Case(lines, worker, state, thread)
    if status == DIVERGENT:
        return _divergent(case)
    if status == BAD_MASK:
        return _bad_mask(case)
    return _fault(case, space)


def _fault_block(worker: Worker) -> BlockState:
    address = int(worker.core[K_FAULT_BLOCK])
    return next(state for state in worker.blocks if address_of(state.record) == address)


class _Case:
    """The thread at which a run ended."""

    def __init__(self, lines: Lines, worker: Worker, state: BlockState, thread: int) -> None:
        self.lines, self.worker, self.state, self.number = lines, worker, state, thread
        self.record = state.threads[thread]
        self.site = int(self.record[T_SITE])
        self.thread = _index(thread, worker.shape.block)
        self.block = _block_index(state)
        self.warp, self.lane = thread // 32, thread % 32

    @property
    def who(self) -> str:
        """The thread in words."""
        return (
            f"thread {_plain(self.thread)} of block {_plain(self.block)} "
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
        return f"{_sentence(self.lines.where(self.site))}\n{_sentence(self.who)} {happened}"


def _block_index(state: BlockState) -> Index:
    x, y, z = (int(n) for n in state.record[B_CTAID_X : B_CTAID_X + 3])
    return x, y, z


_ACCESS = {ACCESS_WRITE: "writes", ACCESS_ATOMIC: "updates atomically", ACCESS_COPY: "copies"}


def _fault(case: _Case, space: AddressSpace) -> RunError:
    code, *arguments = (int(case.record[slot]) for slot in (T_A0, T_A1, T_A2, T_A3, T_A4))
    if code in (F_SHARED, F_LOCAL, F_GLOBAL):
        return _memory_fault(case, space, code, *arguments)
    if code == F_ASSERT:
        return _assertion(case)
    if code == F_TRAP:
        what = "executed a trap: __trap(), or code that can only go wrong (a null pointer)."
        later = "Look at the condition that leads to this line, and at the pointers on it."
    elif code == F_BRANCH:
        what = "jumped through a table with an index outside it."
        later = "Look at the switch on this line: its value was never checked."
    else:  # F_BARRIER
        what = f"meets barrier {arguments[0]}, and a block has barriers 0 to 15."
        later = (
            "Look at how the number of the barrier on this line is made, a stage number perhaps."
        )
    why = "On a real GPU the whole kernel ends, and its context with it."
    return Trap(f"{case.begin(what)}\n{why}\n{later}", **case.place())  # type: ignore[arg-type]


def _assertion(case: _Case) -> RunError:
    block, thread = address_of(case.state.record), address_of(case.record)
    condition = text_at(block, thread, int(case.record[T_A1])) or "?"
    what = f"failed `assert({condition})`."
    later = "Print the values that it compares with printf, or read back how they were made."
    why = "The kernel stops at once: what it has written so far is incomplete."
    return AssertFailed(f"{case.begin(what)}\n{why}\n{later}", **case.place())  # type: ignore[arg-type]


def _memory_fault(
    case: _Case, space: AddressSpace, code: int, address: int, size: int, align: int, access: int
) -> RunError:
    verb = _ACCESS.get(access, "reads")
    address &= (1 << 64) - 1
    window = address >> WINDOW_SHIFT
    if code == F_GLOBAL and window in (1, 2):  # a generic pointer into shared or local memory
        code, address = (F_SHARED, F_LOCAL)[window - 1], address & WINDOW_MASK
    if code == F_GLOBAL:
        what, why, details = _global_words(space, verb, address, size, align)
    else:
        what, why, details = _on_chip_words(case, code, verb, address, size, align)
    details |= {"access": verb, "bytes": size}
    message = f"{case.begin(what)}\n{why}"
    return MemoryFault(message, details=details, **case.place())  # type: ignore[arg-type]


def _global_words(
    space: AddressSpace, verb: str, address: int, size: int, align: int
) -> tuple[str, str, dict[str, object]]:
    place = space.describe(address, size)
    details: dict[str, object] = {"space": "global", "place": place.words}
    if place.kind == "array" and not place.bounds:
        return _misaligned(verb, place.words, size, align, details)
    if place.kind == "array":
        details |= {"problem": "out of bounds", "array": place.name, "bounds": place.bounds}
        what = f"{verb} {size} bytes at {place.words}: {place.bounds} of {place.name}."
        why = "On a real GPU this touches whatever lies there, or ends the kernel.\n"
        return what, why + _bounds_advice(verb), details
    if place.kind == "null":
        details["problem"] = "null"
        what = f"{verb} {size} bytes at {place.words}: a null pointer, or one made from a number."
    else:
        details["problem"] = "wild"
        what = f"{verb} {size} bytes at {place.words}, which belongs to no array of this launch."
    why = (
        "On a real GPU the kernel ends with an illegal address.\n"
        "Look at where the pointer on this line comes from, and at the order of the arguments."
    )
    return what, why, details


def _bounds_advice(verb: str) -> str:
    """Where to look when an access to an array lies outside it: loads run ahead, stores do not."""
    index = "how the index on this line is made, from the block, the thread and the tile"
    if verb in (_ACCESS[ACCESS_WRITE], _ACCESS[ACCESS_ATOMIC]):
        return (
            f"Look at {index}; at whether threads or blocks beyond the last element should skip "
            "it; and at whether the grid and the array have the size that the kernel expects."
        )
    return (
        f"Look at {index}. In a kernel that loads tiles ahead of their use it is mostly the load "
        "after the last tile: look at whether each such load is guarded by its tile's number < "
        "tiles."
    )


def _on_chip_words(
    case: _Case, code: int, verb: str, address: int, size: int, align: int
) -> tuple[str, str, dict[str, object]]:
    shared = code == F_SHARED
    name = "shared" if shared else "local"
    signed = address - (1 << 32) if (1 << 31) <= address < (1 << 32) else address
    total = _shared_bytes(case) if shared else int(case.worker.compiled.local_bytes)
    place = f"byte {signed} of {name} memory"
    details: dict[str, object] = {"space": name, "offset": signed, "place": place}
    if 0 <= signed <= total - size:
        return _misaligned(verb, place, size, align, details)
    details["problem"] = "out of bounds"
    if signed < 0:
        bounds = f"{-signed} bytes before its start"
    else:
        bounds = f"{signed + size - total} bytes past its end"
    owner = "the block has" if shared else "the thread has"
    what = f"{verb} {size} bytes at {place}: {bounds} ({owner} {total} bytes)."
    if shared and total == 0:
        why = (
            "On a real GPU the kernel ends here.\nAn extern __shared__ array has only the bytes "
            "that the launch gives it: give its size in bytes with --shared."
        )
    elif shared:
        why = (
            "On a real GPU the kernel ends, or another stage of the ring is overwritten.\n"
            "Look at the index within the tile, which must stay below its size, and with more "
            "than one stage at the stage's number (t % STAGES); for dynamic shared memory, also "
            "at --shared."
        )
    else:
        why = (
            "A local array lies in each thread's own memory; on a real GPU this reads another "
            "variable.\nLook at the bounds of the loop that indexes it."
        )
    return what, why, details


def _shared_bytes(case: _Case) -> int:
    from course_lib.virtual_gpu.session import shared_size

    return shared_size(case.worker.compiled, case.worker.shape.dynamic_shared)


def _misaligned(
    verb: str, place: str, size: int, align: int, details: dict[str, object]
) -> tuple[str, str, dict[str, object]]:
    details["problem"] = "misaligned"
    what = f"{verb} {size} bytes at {place}, whose address is not a multiple of {align or size}."
    why = (
        "A wide access must lie at a multiple of its own size: 16 bytes for float4, uint4 and a "
        "16-byte copy. A real GPU ends the kernel here.\n"
        "Look at the index (a multiple of 4 elements for 16 bytes), at __align__(16) on the shared "
        "array, and at whether the array starts where its allocation does."
    )
    return what, why, details


def _divergent(case: _Case) -> RunError:
    state, index = case.state, int(case.record[T_A0]) & (BARRIER_COUNT - 1)
    waiting = int(state.warps[case.warp][W_BARRIER])
    first = case.warp * 32
    met = _paths(case.lines, state, [first + n for n in range(32) if waiting >> n & 1])
    message = (
        f"{_sentence(case.lines.where(case.site))}\nWarp {case.warp} of block {_plain(case.block)} "
        f"met barrier {index} on different paths: {met}.\n"
        "All lanes of a warp must reach the same __syncthreads(): what happens otherwise is "
        "undefined, and a real GPU may hang or let some lanes run ahead into a buffer that is "
        "still being read.\nMove the barrier out of the if or the loop whose condition "
        "differs by thread."
    )
    return DivergentBarrier(message, **case.place())  # type: ignore[arg-type]


def _paths(lines: Lines, state: BlockState, numbers: Sequence[int]) -> str:
    """Which lanes of a warp came to a barrier on which path: by place, also within one line."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number in numbers:
        record = state.threads[number]
        groups.setdefault((int(record[T_SITE]), int(record[T_RESUME])), []).append(number)
    places = {lines.short(site) for site, _ in groups}
    if len(places) > 1 or len(groups) == 1:
        return " and ".join(
            f"{_lanes(members)} at {lines.short(site)}" for (site, _), members in groups.items()
        )
    lanes = ", ".join(
        f"{_lanes(members)} on {'one' if k == 0 else 'another'}"
        for k, members in enumerate(groups.values())
    )
    return f"{lanes}, all at {places.pop()}, where {len(groups)} branches each have a barrier"


def _bad_mask(case: _Case) -> RunError:
    mask = int(case.record[T_A4]) & FULL_WARP
    message = case.begin(
        f"takes part in a warp-wide operation with the mask {mask:#010x}, which leaves out its own "
        f"lane {case.lane}."
    )
    message += (
        "\nThe result is undefined: every lane that calls it must be named in the mask.\n"
        "Use 0xffffffff where the whole warp takes part, and else the mask of exactly those lanes."
    )
    return BadMask(message, details={"mask": mask}, **case.place())  # type: ignore[arg-type]


def _budget(lines: Lines, worker: Worker, state: BlockState) -> RunError:
    """An endless loop: which lines its threads were at."""
    alive = [n for n in range(worker.shape.threads) if not _has_exited(state, n)]
    running = [n for n in alive if _is_ready(state, n)] or alive
    looping = [n for n in running if int(state.threads[n][T_REASON]) == Y_FUEL] or running
    groups = sorted(_by_site(state, looping).items(), key=lambda item: -len(item[1]))
    site, members = groups[0]
    case = _Case(lines, worker, state, members[0])
    case.site = site
    others = [n for n in alive if n not in set(looping)]
    message = (
        f"{_sentence(lines.where(site))}\nBlock {_plain(case.block)} does not come to an end: "
        f"{_threads(members)} {'goes' if _wait(members) == 'waits' else 'go'} round and round here."
    )
    endless = _endless_loop(worker, lines, site)
    around = _loops_around(worker, lines, site)
    place = case.place()
    if endless is not None:
        if endless != lines.line(site):
            message = f"Line {endless}: `{lines.code(endless)}`\n" + message.split("\n", 1)[1]
            message = message.replace("round here.", f"round, now at {lines.short(site)}.")
        message += (
            f" The loop at line {endless} has no way out: the compiler has seen that nothing in it "
            "changes what its condition tests."
        )
        place["line"], around = endless, []
    if around:
        message += (
            f" This line lies inside the loop{'s' if len(around) > 1 else ''} at "
            f"{' and '.join(around)}: if what runs here ends each time, it is that loop "
            "which never does."
        )
    if others:
        message += f" Meanwhile {_waiting_words(lines, state, others)}."
    message += (
        "\nOn a real GPU the kernel would never return and the notebook would hang.\n"
        f"Look at the {'conditions of all these loops' if around else 'condition of the loop'}: "
        "does anything in it change what it tests, and can the "
        "thread that should change it get there? A kernel that is only slow "
        "takes a larger step_budget."
    )
    return StepBudget(message, **place)  # type: ignore[arg-type]


def _loops_around(worker: Worker, lines: Lines, site: int) -> list[str]:
    """The loops of the control-flow graph that a site lies in, inside out, but for its own line."""
    kernel = worker.compiled.flat
    here = _blocks_with(kernel, site)
    loops = [(len(body), edge) for edge, body in _natural_loops(kernel) if here & body]
    found: dict[str, None] = {}
    for _, edge in sorted(loops):
        if lines.line(edge) not in (None, lines.line(site)):
            found.setdefault(lines.short(edge))
    return list(found)[:3]


_STAY_IN_PLACE = ("st", "atom", "red", "bar", "barrier", "cp", "shfl", "vote", "mbarrier")


def _endless_loop(worker: Worker, lines: Lines, site: int) -> int | None:
    """The line of the loop around a site that no jump leaves, None where every loop has an exit.

    Its condition is no longer in the code, so its line is looked for in the text: the nearest
    loop at or above the first line of its body that is not a loop inside it.
    """
    kernel = worker.compiled.flat
    here = _blocks_with(kernel, site)
    body = _reachable(kernel, here)
    if not here or any(not kernel.blocks[n].successors for n in body):
        return None
    if any(not here & _reachable(kernel, {n}) for n in body):  # it leads to an endless loop only
        return None
    inner = {
        lines.line(edge) for edge, inside in _natural_loops(kernel) if inside < body
    }  # fmt: skip
    code = [
        item
        for number in body
        for item in kernel.code[kernel.blocks[number].start : kernel.blocks[number].end]
    ]
    # The compiler moves arithmetic in and out of loops, but not what others can see.
    fixed = [item for item in code if getattr(item, "family", "") in _STAY_IN_PLACE]
    return _loop_line(lines, {getattr(item, "site", -1) for item in fixed or code}, inner)


def _blocks_with(kernel: FlatKernel, site: int) -> set[int]:
    """The basic blocks that hold an instruction of a site."""
    return {
        number for number, block in enumerate(kernel.blocks)
        if any(getattr(item, "site", -1) == site for item in kernel.code[block.start : block.end])
    }  # fmt: skip


def _reachable(kernel: FlatKernel, start: Iterable[int]) -> set[int]:
    """Blocks that control can come to from `start`, and those themselves."""
    found: set[int] = set()
    todo = list(start)
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += kernel.blocks[number].successors
    return found


def _loop_line(lines: Lines, sites: Iterable[int], inner: Iterable[int | None]) -> int | None:
    """The line of `for`, `while` or `do` at or above the first line of a loop's body."""
    # Some inlined code has lost where it was called from: its line says nothing about the kernel.
    start = lines.first_line
    chains = [lines.sites[n].cell_lines[::-1] for n in sites if lines.line(n)]  # outermost first
    chains = [chain for chain in chains if len(chain) > 1 or chain[0] >= start]
    if not chains:
        return None
    depth = 0  # of the function that the loop stands in: the calls that all its lines share
    while all(len(chain) > depth + 1 and chain[depth] == chains[0][depth] for chain in chains):
        depth += 1
    for level in range(depth, -1, -1):
        for line in range(min(chain[level] for chain in chains), 0 if level else start - 1, -1):
            text = lines.code(line).split("//")[0]
            if line not in inner and re.search(r"\b(for|while|do)\b", text):
                return line
    return None


def _natural_loops(kernel: FlatKernel) -> list[tuple[int, set[int]]]:
    """(site of the jump back, blocks) of every loop: what reaches the jump but for its target."""
    before: dict[int, list[int]] = {}
    for number, block in enumerate(kernel.blocks):
        for successor in block.successors:
            before.setdefault(successor, []).append(number)
    loops = []
    for number, block in enumerate(kernel.blocks):
        for head in (n for n in block.successors if n <= number):
            body, todo = {head}, [number]
            while todo:
                reached = todo.pop()
                if reached not in body:
                    body.add(reached)
                    todo += before.get(reached, [])
            if head == 0 or 0 not in body:  # else one can come to the jump without its target
                loops.append((int(getattr(kernel.code[block.end - 1], "site", -1)), body))
    return loops


# --- deadlock ---------------------------------------------------------------------------------


def _deadlock(lines: Lines, worker: Worker) -> RunError:
    """Nobody in any resident block can run: who waits for whom, for the first such block."""
    state = min(
        (s for s in worker.blocks if s.record[B_LINEAR] >= 0), key=lambda s: int(s.record[B_LINEAR])
    )
    alive = [n for n in range(worker.shape.threads) if not _has_exited(state, n)]
    exited = worker.shape.threads - len(alive)
    case = _Case(lines, worker, state, alive[0])
    parts = [f"Block {_plain(case.block)} is deadlocked: nobody in it can go on."]
    parts += _barrier_sentences(lines, worker, state, alive)
    parts += _collective_sentences(lines, state, alive)
    if exited:
        gone = [n for n in range(worker.shape.threads) if _has_exited(state, n)]
        parts.append(f"Already returned from the kernel: {_threads(gone)}.")
    parts.append(
        "On a real GPU this hangs until the process is killed.\n" + _deadlock_advice(state, alive)
    )
    return Deadlock("\n".join(parts), **case.place())  # type: ignore[arg-type]


def _barrier_sentences(
    lines: Lines, worker: Worker, state: BlockState, alive: Sequence[int]
) -> list[str]:
    found = []
    for index in range(BARRIER_COUNT):
        here = [
            n for n in alive
            if _waits_at_barrier(state, n) and int(state.threads[n][T_A0]) % BARRIER_COUNT == index
        ]  # fmt: skip
        if not here:
            continue
        record = state.barriers[index]
        expected = int(record[BAR_EXPECTED])
        arrived = int(record[BAR_ARRIVED])
        where = " and ".join(
            f"{_threads(members)} at {lines.short(site)}"
            for site, members in _by_site(state, here).items()
        )
        total = (
            f"all {len(alive)} threads that still run" if not expected else f"{expected} threads"
        )
        text = f"At barrier {index} wait {where}; it needs {total}"
        text += f", and {arrived} have arrived in whole warps." if expected else "."
        found.append(text)
        found += _split_warps(lines, state, here, alive)
    return found


def _split_warps(
    lines: Lines, state: BlockState, here: Sequence[int], alive: Sequence[int]
) -> list[str]:
    """Warps of which only some lanes wait at a barrier: their other lanes are the reason."""
    present = set(here)
    missing: dict[int, list[int]] = {}
    for number in alive:
        if number not in present:
            missing.setdefault(number // 32, []).append(number)
    split = [warp for warp in sorted({n // 32 for n in here}) if warp in missing]
    if not split:
        return []
    text = f"Of warp {split[0]} only some lanes are there: "
    text += f"{_waiting_words(lines, state, missing[split[0]])}. A warp arrives as a whole."
    if len(split) > 1:
        text += f" The same holds for warp{'s' if len(split) > 2 else ''} {_ranges(split[1:])}."
    return [text]


def _collective_sentences(lines: Lines, state: BlockState, alive: Sequence[int]) -> list[str]:
    """Warp-wide operations that wait for lanes which are elsewhere, one sentence for each line."""
    waiting = [n for n in alive if _waits_in_collective(state, n)]
    found = []
    for site, members in list(_by_site(state, waiting).items())[:4]:
        warps = sorted({n // 32 for n in members})
        first = [n for n in members if n // 32 == warps[0]]
        text = _collective_sentence(lines, state, site, first, alive)
        if len(warps) > 1:
            text += f" The same holds for warp{'s' if len(warps) > 2 else ''} {_ranges(warps[1:])}."
        found.append(text)
    return found


def _collective_sentence(
    lines: Lines, state: BlockState, site: int, members: Sequence[int], alive: Sequence[int]
) -> str:
    record = state.threads[members[0]]
    mask = int(record[T_A4]) & FULL_WARP
    kind = "__syncwarp" if int(record[T_REASON]) == Y_SYNCWARP else "a warp-wide operation"
    there = {n % 32 for n in members}
    absent = [
        n for n in alive
        if n // 32 == members[0] // 32 and mask >> (n % 32) & 1 and n % 32 not in there
    ]  # fmt: skip
    text = f"{_sentence(_threads(members))} {_wait(members)} in {kind} at {lines.short(site)}"
    if absent:
        elsewhere = _waiting_words(lines, state, absent)
        text += f" for lanes of its mask {mask:#010x} that are elsewhere: {elsewhere}"
    return text + "."


def _wait(numbers: Sequence[int]) -> str:
    return "waits" if len(numbers) == 1 or _is_warp(numbers) else "wait"


def _is_warp(numbers: Sequence[int]) -> bool:
    return len(numbers) == 32 and len({n // 32 for n in numbers}) == 1


def _deadlock_advice(state: BlockState, alive: Sequence[int]) -> str:
    at_barriers = {
        int(state.threads[n][T_A0]) % BARRIER_COUNT for n in alive if _waits_at_barrier(state, n)
    }
    if len(at_barriers) > 1:
        return (
            "Different warps wait at different barriers, each for the other: look at the barrier "
            "numbers and the counts of bar.sync and bar.arrive on the producer's and the "
            "consumer's side."
        )
    return (
        "Look for a barrier or a warp-wide operation inside an if or a loop that not every thread "
        "enters equally often."
    )


def _waits_at_barrier(state: BlockState, number: int) -> bool:
    return bool(int(state.warps[number // 32][W_BARRIER]) >> (number % 32) & 1)


def _waits_in_collective(state: BlockState, number: int) -> bool:
    return bool(int(state.warps[number // 32][W_COLLECTIVE]) >> (number % 32) & 1)


def _is_ready(state: BlockState, number: int) -> bool:
    return bool(int(state.warps[number // 32][W_READY]) >> (number % 32) & 1)


def _has_exited(state: BlockState, number: int) -> bool:
    return bool(int(state.warps[number // 32][W_EXITED]) >> (number % 32) & 1)


def _waiting_words(lines: Lines, state: BlockState, numbers: Sequence[int]) -> str:
    """Where these threads are, in words."""
    parts = []
    for site, members in _by_site(state, numbers).items():
        one = members[0]
        verb = _wait(members)
        if _waits_at_barrier(state, one):
            doing = f"{verb} at barrier {int(state.threads[one][T_A0]) % BARRIER_COUNT}"
        elif _waits_in_collective(state, one):
            doing = f"{verb} in a warp-wide operation"
        elif _is_ready(state, one):
            doing = "can run"
        else:
            doing = "stands" if verb == "waits" else "stand"
        parts.append(f"{_threads(members)} {doing} at {lines.short(site)}")
    return " and ".join(parts[:4])


def _by_site(state: BlockState, numbers: Iterable[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for number in numbers:
        groups.setdefault(int(state.threads[number][T_SITE]), []).append(number)
    return groups


def _ranges(numbers: Sequence[int]) -> str:
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


def _lanes(numbers: Sequence[int]) -> str:
    lanes = sorted(number % 32 for number in numbers)
    return ("lane " if len(lanes) == 1 else "lanes ") + _ranges(lanes)


def _threads(numbers: Sequence[int]) -> str:
    """Threads of a block in words: by warps where they are whole."""
    ordered = sorted(numbers)
    warps = sorted({number // 32 for number in ordered})
    if len(ordered) == 1:
        return f"thread {ordered[0]} (warp {warps[0]}, lane {ordered[0] % 32})"
    if len(warps) == 1 and len(ordered) < 32:
        return f"{_lanes(ordered)} of warp {warps[0]}"
    if len(ordered) == 32 * len(warps):
        return ("warp " if len(warps) == 1 else "warps ") + _ranges(warps)
    return f"threads {_ranges(ordered)}"


# --- notes ------------------------------------------------------------------------------------


def notes(kernel: Kernel, workers: Sequence[Worker], module: Module) -> list[Note]:
    """What the workers noted, once for each line and kind."""
    lines = Lines(kernel, module)
    rows = [
        (row, worker)
        for worker in workers
        for row in worker.notes[: min(int(worker.core[K_NOTES_COUNT]), len(worker.notes))]
    ]
    rows.sort(key=lambda pair: tuple(int(n) for n in pair[0]))
    found: list[Note] = _meetings(lines, [pair for pair in rows if pair[0][NOTE_KIND] == N_MEETING])
    rows = [pair for pair in rows if pair[0][NOTE_KIND] != N_MEETING]
    told: set[tuple[int, int | None]] = set()
    for row, worker in rows:
        kind, site = int(row[0]), int(row[1])
        key = (kind, lines.line(site) or -site)
        if key not in told:
            told.add(key)
            found.append(_note(lines, worker, row))
    forced = sum(int(worker.core[K_FORCED_LANDINGS]) for worker in workers)
    if forced:
        found.append(
            CopiesLandedEarly(
                f"{forced:,} asynchronous copies landed earlier than the landing policy says: more "
                f"were in flight than the simulation has room for. Results are right, but a "
                f"missing wait may have stayed hidden. Use wider copies (16 bytes) or "
                "fewer threads."
            )
        )
    return found


def _meetings(lines: Lines, rows: Sequence[tuple[np.ndarray, Worker]]) -> list[Note]:
    """Barriers that warps met at different lines, once for each pair of lines: they come first."""
    found: dict[tuple[object, ...], Note] = {}
    for row, worker in rows:
        one, two = int(row[NOTE_SITE]), int(row[NOTE_OTHER_SITE])
        chains = sorted((lines.sites[site].cell_lines, site) for site in (one, two))
        key = tuple(chain for chain, _ in chains)
        if key[0] != key[1] and key not in found:  # one line twice: what the compiler made of it
            found[key] = _meeting(lines, worker, row)
    return list(found.values())


def _meeting(lines: Lines, worker: Worker, row: np.ndarray) -> Note:
    ends = [
        (int(row[NOTE_SITE]), int(row[NOTE_WARPS])),
        (int(row[NOTE_OTHER_SITE]), int(row[NOTE_OTHER_WARPS])),
    ]
    sides = []
    for site, mask in ends:
        warps = [n for n in range(64) if mask >> n & 1]
        name = "warp " if len(warps) == 1 else "warps "
        sides.append((site, warps, f"{name}{_ranges(warps)} {'is' if len(warps) == 1 else 'are'}"))
    sides.sort(key=lambda side: -len(side[1]))
    (site, warps, most), (other, other_warps, few) = sides
    verb = "waits" if len(warps) == 1 else "wait"
    block = _index(int(row[2]), [int(n) for n in worker.records[0][6:9]])
    message = (
        f"In block {_plain(block)}, {most.rsplit(' ', 1)[0]} {verb} at {lines.short(site)} while "
        f"{few} at {lines.short(other)}: the same barrier, at different lines.\n"
        "__syncthreads() pairs whatever call each warp comes to next. Where a warp skips one, its "
        "next call is taken for it: from there on the warps are in different phases, and a stage "
        "can be filled again while others still read it.\n"
        "Look at whether every warp passes every __syncthreads() equally often: a barrier inside "
        "an if or a loop that only some warps enter. (Where each warp calls it once, in an if and "
        "in its else, this is harmless.)"
    )
    details: dict[str, object] = {
        "lines": (lines.line(site), lines.line(other)), "warps": (warps, other_warps)
    }  # fmt: skip
    return BarrierAtTwoLines(message, line=lines.line(site), block=block, details=details)


def _note(lines: Lines, worker: Worker, row: np.ndarray) -> Note:
    kind, site, linear, number, offset, size, copy_site, copy_thread = (int(n) for n in row)
    grid = [int(n) for n in worker.records[0][6:9]]
    block, thread = _index(linear, grid), _index(number, worker.shape.block)
    place = {
        "line": lines.line(site), "thread": thread, "block": block,
        "warp": number // 32, "lane": number % 32,
    }  # fmt: skip
    where = f"(warp {number // 32}, lane {number % 32})"
    who = f"thread {_plain(thread)} of block {_plain(block)} {where}"
    start = f"{_sentence(lines.where(site))}\n{_sentence(who)}"
    if kind != N_UNINITIALISED:
        message = (
            f"{start} divides an integer by zero.\nCUDA leaves the result undefined; here it is "
            f"all ones, as on hardware.\nGuard the division, or the threads that take part in it."
        )
        return DivisionByZero(message, **place)  # type: ignore[arg-type]
    message = (
        f"{start} reads {size} bytes of shared memory (byte {offset}) that nobody has written."
    )
    details: dict[str, object] = {"offset": offset, "copy_line": None}
    if copy_site >= 0:
        details["copy_line"] = lines.line(copy_site)
        owner = "this thread" if copy_thread == number else f"thread {copy_thread}"
        message += (
            f"\nThe copy to that place that {owner} issued on {lines.short(copy_site)} has not "
            f"been waited for: issuing a copy is not completing it. With luck the data is there in "
            f"time; here it was not.\nLook for the wait between the two lines "
            f"(__pipeline_wait_prior, cp.async.wait_group), by the thread that issued the copy, "
            f"and for the barrier after it."
        )
    else:
        message += (
            "\nThe value is garbage that differs from run to run on a real GPU.\nLook at whether "
            "every thread's part of the tile is loaded before this line, and whether a barrier "
            "stands between."
        )
    return UninitialisedRead(message, details=details, **place)  # type: ignore[arg-type]
