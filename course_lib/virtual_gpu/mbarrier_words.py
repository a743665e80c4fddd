"""mbarriers and bulk copies in words: their names, what a phase lacks, and what was done wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence

from course_lib.virtual_gpu.abi import T_A0, T_A1, T_A2, T_A3, T_A4, T_A5, T_SITE
from course_lib.virtual_gpu.memory import AddressSpace
from course_lib.virtual_gpu.places import (
    BulkCopyFault,
    Case,
    Lines,
    MbarrierFault,
    MemoryFault,
    RunError,
    has_exited,
    is_parked,
    sentence,
    threads_words,
    wait_verb,
    waiting_words,
)
from course_lib.virtual_gpu.records import (
    B_MBARRIER_COUNT,
    BULK_BAD_COLUMN,
    BULK_BAD_SIZE,
    BULK_FULL,
    BULK_MISALIGNED,
    BULK_NEGATIVE,
    BULK_NO_MAP,
    BULK_OUTSIDE,
    M_ALIVE,
    M_EXPECTED,
    M_LAST_SITE,
    M_OFFSET,
    M_PENDING,
    M_PHASE,
    M_PROMISED,
    M_SITE,
    M_TX,
    MB_BAD_COUNT,
    MB_MISALIGNED,
    MB_NONE,
    MB_OUTSIDE,
    MB_TOO_MANY_ARRIVALS,
    MB_TX_RANGE,
    TOKEN_BITS,
)
from course_lib.virtual_gpu.session import BlockState, Worker, shared_size

_MANGLED = re.compile(r"E(\d+)(\w+)$")


def shared_name(worker: Worker, offset: int) -> str:
    """`full[1]` for a place in shared memory, by the variable that lies there."""
    for name, placed in worker.compiled.flat.symbols.items():
        if placed.space == "shared" and placed.offset <= offset < placed.offset + placed.size:
            within = (offset - placed.offset) // 8
            return plain_name(name) + (f"[{within}]" if placed.size > 8 else "")
    return f"the mbarrier at byte {offset} of shared memory"


def plain_name(symbol: str) -> str:
    """The variable's own name in what the compiler calls it, such as `_ZZ1kE4full`."""
    match = _MANGLED.search(symbol)
    return match[2][: int(match[1])] if match else symbol


def record_of(state: BlockState, offset: int) -> Sequence[int] | None:
    """The record of the mbarrier at an offset; None where there never was one."""
    for row in state.mbarriers[: int(state.record[B_MBARRIER_COUNT])]:
        if int(row[M_OFFSET]) == offset:
            return [int(n) for n in row]
    return None


# --- deadlock -----------------------------------------------------------------------------------


def waits(state: BlockState, alive: Sequence[int]) -> dict[tuple[int, int, int], list[int]]:
    """(offset, parity waited for, site) -> the threads that wait there."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for number in alive:
        if is_parked(state, number):
            thread = state.threads[number]
            operand = int(thread[T_A1])
            parity = operand & 1 if int(thread[T_A2]) else (operand >> TOKEN_BITS) & 1
            key = (int(thread[T_A0]), parity, int(thread[T_SITE]))
            found.setdefault(key, []).append(number)
    return found


def reason_of(record: Sequence[int]) -> str:
    """Why a phase does not complete."""
    if record[M_PENDING] == 0 and record[M_TX] > 0:
        return "too many bytes expected"
    if record[M_PENDING] == 0 and record[M_TX] < 0:
        return "too few bytes expected"
    if record[M_PHASE] == 0 and record[M_PENDING] == record[M_EXPECTED] and record[M_TX] == 0:
        return "nobody has ever arrived"
    return "arrivals missing"


def wait_words(
    lines: Lines,
    worker: Worker,
    state: BlockState,
    key: tuple[int, int, int],
    members: Sequence[int],
    alive: Sequence[int],
) -> str:
    """Who waits for which phase, what it lacks, and who else could bring it."""
    offset, parity, site = key
    name = shared_name(worker, offset)
    who = f"{sentence(threads_words(members))} {wait_verb(members)} at {lines.caller(site)}"
    record = record_of(state, offset)
    if record is None or not record[M_ALIVE]:
        return f"{who} for {name}, which is no mbarrier any more: it was invalidated."
    phase = record[M_PHASE]
    text = (
        f"{who} for {name}, parity {parity}: until its phase {phase} completes (phases count from "
        f"0; {phase} {'has' if phase == 1 else 'have'} completed). "
    )
    pending, expected, tx = record[M_PENDING], record[M_EXPECTED], record[M_TX]
    lacks = [f"{pending} of {expected} arrivals"] if pending else []
    lacks += [f"{tx:,} bytes"] if tx > 0 else []
    if lacks:
        text += f"That phase lacks {' and '.join(lacks)}. "
    text += _reason_words(lines, name, record)
    others = [n for n in alive if n not in set(members)]
    if pending and others:
        text += f" Of those who could still come, {waiting_words(lines, state, others)}."
    gone = [n for n in range(worker.shape.threads) if has_exited(state, n)]
    if pending and gone:
        text += f" {sentence(threads_words(gone))} will not: they have returned."
    return text


def _reason_words(lines: Lines, name: str, record: Sequence[int]) -> str:
    reason, tx = reason_of(record), record[M_TX]
    if reason == "too many bytes expected":
        return (
            f"All have arrived, and expect_tx announced {record[M_PROMISED]:,} bytes, but copies "
            f"of {record[M_PROMISED] - tx:,} bytes landed: {tx:,} bytes never come. Compare the "
            "bytes of expect_tx with the sum of the copies' sizes."
        )
    if reason == "too few bytes expected":
        return (
            f"All have arrived, but {-tx:,} bytes landed beyond the {record[M_PROMISED]:,} that "
            "expect_tx announced, so the count never comes to zero. Compare the bytes of expect_tx "
            "with the sum of the copies' sizes."
        )
    made = lines.caller(record[M_SITE])
    if reason == "nobody has ever arrived":
        return (
            f"Nobody has ever arrived at {name} (initialised at {made}). If this is the wait for "
            "an empty stage, every stage is empty at the start: begin with parity 1, which passes "
            "at once on a fresh mbarrier. If it is the wait for data, look at whether whoever "
            "fills this stage arrives at this very mbarrier."
        )
    landed = f" {-tx:,} bytes landed that nobody has announced yet." if tx < 0 else ""
    return (
        f"It was initialised for {record[M_EXPECTED]} at {made}; the last arrival was at "
        f"{lines.caller(record[M_LAST_SITE])}.{landed} Compare that count with the threads that "
        "really arrive in each phase."
    )


# --- faults -------------------------------------------------------------------------------------


def mbarrier_fault(case: Case) -> RunError:
    """An operation on an mbarrier that may not be."""
    offset, answer = int(case.record[T_A1]), int(case.record[T_A2])
    return _answered(case, offset, answer)


def _answered(case: Case, offset: int, answer: int) -> RunError:
    if answer in (MB_MISALIGNED, MB_OUTSIDE):
        return _misplaced(case, offset, answer)
    name = shared_name(case.worker, offset)
    record = record_of(case.state, offset)
    if answer == MB_NONE:
        problem, what, why = _no_mbarrier(case, name, record)
    elif answer == MB_TOO_MANY_ARRIVALS and record is not None:
        problem = "too many arrivals"
        what = (
            f"arrives at {name} more often than it takes: it was initialised for "
            f"{record[M_EXPECTED]} arrivals at {case.lines.caller(record[M_SITE])}, and phase "
            f"{record[M_PHASE]} lacks {record[M_PENDING]}."
        )
        why = (
            "An arrival too many counts for the next phase, which then completes before its data "
            "is there or while a stage is still read; PTX leaves it undefined.\nLook at who runs "
            "this line: one elected thread, or all of a warp? The count of mbarrier.init must be "
            "the number of arrivals per phase."
        )
    elif answer == MB_BAD_COUNT:
        problem, what = "count", f"gives {name} a count that is not between 1 and 1,048,575."
        why = "An mbarrier needs at least one arrival per phase.\nLook at the count on this line."
    elif answer == MB_TX_RANGE:
        problem, what = "bytes", f"brings the bytes that {name} waits for beyond 1,048,575."
        why = (
            "An mbarrier counts no more bytes than that in one phase (PTX ISA).\nLook at the bytes "
            "on this line, and whether the phase ever completes."
        )
    else:
        problem, what = "table", "needs more mbarriers at once than the virtual GPU has room for."
        why = "A block may have 4,096 of them here."
    message = f"{case.begin(what)}\n{why}"
    details: dict[str, object] = {"barrier": name, "problem": problem}
    return MbarrierFault(message, details=details, **case.place())  # type: ignore[arg-type]


def _no_mbarrier(case: Case, name: str, record: Sequence[int] | None) -> tuple[str, str, str]:
    if record is not None:
        return (
            "invalidated", f"uses {name} after mbarrier.inval.",
            "Its bytes are plain memory again.\nInitialise it again before its next use.",
        )  # fmt: skip
    return (
        "not initialised",
        f"uses {name} before anybody has initialised it.",
        "Its bytes are garbage then, and a real GPU counts arrivals in garbage: it hangs or runs "
        "ahead.\nOne thread initialises the mbarriers and then __syncthreads() makes them visible: "
        "look at whether that barrier stands between mbarrier.init and this line, for this thread.",
    )


def _misplaced(case: Case, offset: int, answer: int) -> RunError:
    where = f"byte {offset} of shared memory"
    if answer == MB_MISALIGNED:
        problem, what = "misaligned", f"uses an mbarrier at {where}, not at a multiple of 8."
    else:
        problem, what = "out of bounds", "uses an mbarrier outside the block's shared memory."
    why = (
        "An mbarrier is 8 bytes of shared memory at a multiple of 8.\nLook at how its address on "
        "this line is made: the stage's number, or a generic pointer where a shared address is "
        "meant."
    )
    details: dict[str, object] = {"problem": problem, "space": "shared", "offset": offset}
    return MemoryFault(f"{case.begin(what)}\n{why}", details=details, **case.place())  # type: ignore[arg-type]


def bulk_fault(case: Case, space: AddressSpace) -> RunError:
    """A bulk or tensor copy that may not be."""
    offset, answer, size, address = (int(case.record[n]) for n in (T_A1, T_A2, T_A3, T_A4))
    if answer > BULK_MISALIGNED:
        return _answered(case, int(case.record[T_A5]), answer)
    tensor = address == 0
    alignment = 128 if tensor else 16
    if answer == BULK_MISALIGNED:
        problem = "misaligned"
        if offset % alignment:
            place = f"byte {offset} of shared memory"
        else:
            place = space.describe(address, size).words
        what = f"issues a bulk copy at {place}, which is no multiple of {alignment} bytes."
        why = (
            "A bulk copy moves 16-byte pieces: both addresses and the size are multiples of 16, "
            "and a tensor copy's box begins at a multiple of 128 in shared memory.\nLook at "
            f"__align__({alignment}) on the shared array, and at how the address on this line is "
            "made."
        )
    elif answer == BULK_BAD_SIZE:
        problem = "size"
        what = f"issues a bulk copy of {size:,} bytes, which is no multiple of 16."
        why = (
            "A bulk copy moves 16-byte pieces.\nLook at the size on this line; copy an odd tail "
            "with ordinary loads and stores."
        )
    elif answer == BULK_OUTSIDE:
        problem = "out of bounds"
        what, why = _outside(case, space, offset, size, address)
    elif answer == BULK_NO_MAP:
        problem = "no map"
        what = "issues a tensor copy with something that is no tensor map."
        why = (
            "The parameter must be `const __grid_constant__ TensorMap`, and the launch must pass "
            "tensor_map(array, box=...) for it; without __grid_constant__ the address may be that "
            "of a copy."
        )
    elif answer == BULK_BAD_COLUMN:
        problem = "column"
        what = "issues a tensor copy whose box begins between two pieces of 16 bytes."
        why = (
            "The first coordinate (the column) times the bytes of an element must be a multiple of "
            "16: for halves a multiple of 8. A real GPU ends the kernel with an illegal "
            "instruction.\nLook at the first coordinate on this line."
        )
    elif answer == BULK_NEGATIVE:
        problem = "negative"
        what = "stores a box that begins before the array: one of its coordinates is negative."
        why = (
            "A tensor copy out of shared memory leaves out what lies past the array's end, and a "
            "load also what lies before its beginning; a store that begins before it ends the "
            "kernel with an illegal instruction on a real GPU.\nLook at the coordinates on this "
            "line."
        )
    else:
        assert answer == BULK_FULL
        problem = "table"
        what = "has more bulk copies in flight than the virtual GPU has room for (4,096)."
        why = "Nobody waits for them: look at the mbarrier or the bulk group that should."
    details: dict[str, object] = {"problem": problem, "space": "shared", "offset": offset}
    details |= {"access": "copies", "bytes": size}
    kind = MemoryFault if problem in ("misaligned", "out of bounds") else BulkCopyFault
    return kind(f"{case.begin(what)}\n{why}", details=details, **case.place())  # type: ignore[arg-type]


def _outside(
    case: Case, space: AddressSpace, offset: int, size: int, address: int
) -> tuple[str, str]:
    total = shared_size(case.worker.compiled, case.worker.shape.dynamic_shared)
    if address == 0:
        what = (
            f"issues a tensor copy whose box at byte {offset} does not fit into the block's "
            f"{total:,} bytes of shared memory."
        )
    elif not 0 <= offset <= total - size:
        what = (
            f"issues a bulk copy of {size:,} bytes at byte {offset} of shared memory, past the "
            f"block's {total:,} bytes."
        )
    else:
        place = space.describe(address, size)
        bounds = f": {place.bounds} of {place.name}" if place.bounds else ""
        what = f"issues a bulk copy of {size:,} bytes at {place.words}{bounds}."
    why = (
        "On a real GPU the kernel ends, or other data is overwritten.\nLook at the tile's number "
        "(is the copy after the last tile guarded by < tiles?), at the stage's number, and at the "
        "size on this line."
    )
    return what, why
