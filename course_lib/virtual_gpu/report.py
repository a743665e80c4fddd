"""What a run found, in the learner's words and lines.

Every message says what happened, on which line, why it matters for a pipeline, and what to look at
next. The records are read where the run left them; nothing here runs while a kernel does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from course_lib.virtual_gpu.abi import (
    ACCESS_ATOMIC,
    ACCESS_COPY,
    ACCESS_WRITE,
    F_ASSERT,
    F_BRANCH,
    F_BULK,
    F_GLOBAL,
    F_LOCAL,
    F_MBARRIER,
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
)
from course_lib.virtual_gpu.deadlocks import deadlock
from course_lib.virtual_gpu.matrix_words import matrix_fault
from course_lib.virtual_gpu.mbarrier_words import bulk_fault, mbarrier_fault
from course_lib.virtual_gpu.places import (
    AssertFailed,
    BadMask,
    BarrierAtTwoLines,
    BulkCopyFault,
    Case,
    CopiesLandedEarly,
    Deadlock,
    DivergentBarrier,
    DivisionByZero,
    Finding,
    Lines,
    MbarrierDeadlock,
    MbarrierFault,
    MemoryFault,
    Note,
    RunError,
    StepBudget,
    Trap,
    UninitialisedRead,
    by_site,
    has_exited,
    index_of,
    is_ready,
    lanes_words,
    plain,
    ranges,
    sentence,
    threads_words,
    wait_verb,
    waiting_words,
)
from course_lib.virtual_gpu.printing import text_at
from course_lib.virtual_gpu.records import (
    BAD_MASK,
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
)
from course_lib.virtual_gpu.session import BlockState, Worker, address_of

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.ptx.parse import Module
    from course_lib.virtual_gpu.flow import FlatKernel
from course_lib.virtual_gpu.memory import AddressSpace

# --- errors -----------------------------------------------------------------------------------


def explain(kernel: Kernel, worker: Worker, space: AddressSpace, status: int) -> RunError:
    """The error with which a core's run ended, from the records as they are."""
    lines = Lines(kernel, worker.compiled.module)
    if status == DEADLOCK:
        return deadlock(lines, worker)
    state = _fault_block(worker)
    if status == BUDGET:
        return _budget(lines, worker, state)
    thread = int(worker.core[K_FAULT_THREAD])
    case = Case(lines, worker, state, thread)
    if status == DIVERGENT:
        return _divergent(case)
    if status == BAD_MASK:
        return _bad_mask(case)
    return _fault(case, space)


def _fault_block(worker: Worker) -> BlockState:
    address = int(worker.core[K_FAULT_BLOCK])
    return next(state for state in worker.blocks if address_of(state.record) == address)


_ACCESS = {ACCESS_WRITE: "writes", ACCESS_ATOMIC: "updates atomically", ACCESS_COPY: "copies"}


def _fault(case: Case, space: AddressSpace) -> RunError:
    code, *arguments = (int(case.record[slot]) for slot in (T_A0, T_A1, T_A2, T_A3, T_A4))
    if code in (F_SHARED, F_LOCAL, F_GLOBAL):
        return _memory_fault(case, space, code, *arguments)
    if code == F_MBARRIER:
        return mbarrier_fault(case)
    if code == F_BULK:
        return bulk_fault(case, space)
    if code == F_ASSERT:
        return _assertion(case)
    matrix = matrix_fault(code, *arguments[:2])
    if matrix is not None:
        what, later = matrix
    elif code == F_TRAP:
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


def _assertion(case: Case) -> RunError:
    block, thread = address_of(case.state.record), address_of(case.record)
    condition = text_at(block, thread, int(case.record[T_A1])) or "?"
    what = f"failed `assert({condition})`."
    later = "Print the values that it compares with printf, or read back how they were made."
    why = "The kernel stops at once: what it has written so far is incomplete."
    return AssertFailed(f"{case.begin(what)}\n{why}\n{later}", **case.place())  # type: ignore[arg-type]


def _memory_fault(
    case: Case, space: AddressSpace, code: int, address: int, size: int, align: int, access: int
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
    case: Case, code: int, verb: str, address: int, size: int, align: int
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


def _shared_bytes(case: Case) -> int:
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


def _divergent(case: Case) -> RunError:
    state, index = case.state, int(case.record[T_A0]) & (BARRIER_COUNT - 1)
    waiting = int(state.warps[case.warp][W_BARRIER])
    first = case.warp * 32
    met = _paths(case.lines, state, [first + n for n in range(32) if waiting >> n & 1])
    message = (
        f"{sentence(case.lines.where(case.site))}\nWarp {case.warp} of block {plain(case.block)} "
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
            f"{lanes_words(members)} at {lines.short(site)}"
            for (site, _), members in groups.items()
        )
    lanes = ", ".join(
        f"{lanes_words(members)} on {'one' if k == 0 else 'another'}"
        for k, members in enumerate(groups.values())
    )
    return f"{lanes}, all at {places.pop()}, where {len(groups)} branches each have a barrier"


def _bad_mask(case: Case) -> RunError:
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
    alive = [n for n in range(worker.shape.threads) if not has_exited(state, n)]
    running = [n for n in alive if is_ready(state, n)] or alive
    looping = [n for n in running if int(state.threads[n][T_REASON]) == Y_FUEL] or running
    groups = sorted(by_site(state, looping).items(), key=lambda item: -len(item[1]))
    site, members = groups[0]
    case = Case(lines, worker, state, members[0])
    case.site = site
    others = [n for n in alive if n not in set(looping)]
    message = (
        f"{sentence(lines.where(site))}\nBlock {plain(case.block)} does not come to an end: "
        f"{threads_words(members)} {'goes' if wait_verb(members) == 'waits' else 'go'} round and "
        "round here."
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
        message += f" Meanwhile {waiting_words(lines, state, others)}."
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
        sides.append((site, warps, f"{name}{ranges(warps)} {'is' if len(warps) == 1 else 'are'}"))
    sides.sort(key=lambda side: -len(side[1]))
    (site, warps, most), (other, other_warps, few) = sides
    verb = "waits" if len(warps) == 1 else "wait"
    block = index_of(int(row[2]), [int(n) for n in worker.records[0][6:9]])
    message = (
        f"In block {plain(block)}, {most.rsplit(' ', 1)[0]} {verb} at {lines.short(site)} while "
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
    block, thread = index_of(linear, grid), index_of(number, worker.shape.block)
    place = {
        "line": lines.line(site), "thread": thread, "block": block,
        "warp": number // 32, "lane": number % 32,
    }  # fmt: skip
    where = f"(warp {number // 32}, lane {number % 32})"
    who = f"thread {plain(thread)} of block {plain(block)} {where}"
    start = f"{sentence(lines.where(site))}\n{sentence(who)}"
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


__all__ = [
    "AssertFailed",
    "BadMask",
    "BarrierAtTwoLines",
    "BulkCopyFault",
    "CopiesLandedEarly",
    "Deadlock",
    "DivergentBarrier",
    "DivisionByZero",
    "Finding",
    "MbarrierDeadlock",
    "MbarrierFault",
    "MemoryFault",
    "Note",
    "RunError",
    "StepBudget",
    "Trap",
    "UninitialisedRead",
    "explain",
    "notes",
]
