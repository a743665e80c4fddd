"""Deadlocks in words: who waits for which barrier and phase, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from course_lib.virtual_gpu import mbarrier_words
from course_lib.virtual_gpu.abi import (
    T_A0,
    T_A4,
    Y_SYNCWARP,
)
from course_lib.virtual_gpu.places import (
    Case,
    Deadlock,
    Lines,
    MbarrierDeadlock,
    RunError,
    by_site,
    has_exited,
    is_parked,
    matrix_group,
    plain,
    ranges,
    sentence,
    threads_words,
    wait_verb,
    waiting_words,
    waits_at_barrier,
    waits_at_matrix,
    waits_in_collective,
)
from course_lib.virtual_gpu.records import (
    B_LINEAR,
    BAR_ARRIVED,
    BAR_EXPECTED,
    BARRIER_COUNT,
    FULL_WARP,
    M_PENDING,
    M_PHASE,
    M_TX,
    T_REASON,
)
from course_lib.virtual_gpu.session import BlockState, Worker

if TYPE_CHECKING:
    pass


def deadlock(lines: Lines, worker: Worker) -> RunError:
    """Nobody in any resident block can run: who waits for whom, for the first such block."""
    state = min(
        (s for s in worker.blocks if s.record[B_LINEAR] >= 0), key=lambda s: int(s.record[B_LINEAR])
    )
    alive = [n for n in range(worker.shape.threads) if not has_exited(state, n)]
    exited = worker.shape.threads - len(alive)
    case = Case(lines, worker, state, alive[0])
    parts = [f"Block {plain(case.block)} is deadlocked: nobody in it can go on."]
    parts += _barrier_sentences(lines, worker, state, alive)
    parts += _collective_sentences(lines, state, alive)
    parts += _matrix_sentences(lines, state, alive)
    waiting = mbarrier_words.waits(state, alive)
    for key, members in list(waiting.items())[:6]:
        parts.append(mbarrier_words.wait_words(lines, worker, state, key, members, alive))
    if exited:
        gone = [n for n in range(worker.shape.threads) if has_exited(state, n)]
        parts.append(f"Already returned from the kernel: {threads_words(gone)}.")
    parts.append(
        "On a real GPU this hangs until the process is killed.\n" + _deadlock_advice(state, alive)
    )
    if waiting:
        return _phase_deadlock(lines, worker, state, waiting, "\n".join(parts))
    return Deadlock("\n".join(parts), **case.place())  # type: ignore[arg-type]


def _phase_deadlock(
    lines: Lines,
    worker: Worker,
    state: BlockState,
    waiting: dict[tuple[int, int, int], list[int]],
    message: str,
) -> RunError:
    """Some wait for a phase that never completes: the one that is told first is the root."""

    def rank(key: tuple[int, int, int]) -> int:
        record = mbarrier_words.record_of(state, key[0])
        order = ("too many bytes expected", "too few bytes expected")
        return 0 if record is not None and mbarrier_words.reason_of(record) in order else 1

    key = min(waiting, key=rank)
    case = Case(lines, worker, state, waiting[key][0])
    record = mbarrier_words.record_of(state, key[0])
    details: dict[str, object] = {
        "barrier": mbarrier_words.shared_name(worker, key[0]), "parity": key[1],
    }  # fmt: skip
    if record is not None:
        details |= {
            "phase": record[M_PHASE], "missing_arrivals": record[M_PENDING],
            "missing_bytes": record[M_TX], "reason": mbarrier_words.reason_of(record),
        }  # fmt: skip
    place = case.place() | {"line": lines.caller_line(key[2])}
    return MbarrierDeadlock(message, details=details, **place)  # type: ignore[arg-type]


def _barrier_sentences(
    lines: Lines, worker: Worker, state: BlockState, alive: Sequence[int]
) -> list[str]:
    found = []
    for index in range(BARRIER_COUNT):
        here = [
            n for n in alive
            if waits_at_barrier(state, n) and int(state.threads[n][T_A0]) % BARRIER_COUNT == index
        ]  # fmt: skip
        if not here:
            continue
        record = state.barriers[index]
        expected = int(record[BAR_EXPECTED])
        arrived = int(record[BAR_ARRIVED])
        where = " and ".join(
            f"{threads_words(members)} at {lines.short(site)}"
            for site, members in by_site(state, here).items()
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
    text += f"{waiting_words(lines, state, missing[split[0]])}. A warp arrives as a whole."
    if len(split) > 1:
        text += f" The same holds for warp{'s' if len(split) > 2 else ''} {ranges(split[1:])}."
    return [text]


def _collective_sentences(lines: Lines, state: BlockState, alive: Sequence[int]) -> list[str]:
    """Warp-wide operations that wait for lanes which are elsewhere, one sentence for each line."""
    waiting = [n for n in alive if waits_in_collective(state, n)]
    found = []
    for site, members in list(by_site(state, waiting).items())[:4]:
        warps = sorted({n // 32 for n in members})
        first = [n for n in members if n // 32 == warps[0]]
        text = _collective_sentence(lines, state, site, first, alive)
        if len(warps) > 1:
            text += f" The same holds for warp{'s' if len(warps) > 2 else ''} {ranges(warps[1:])}."
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
    text = (
        f"{sentence(threads_words(members))} {wait_verb(members)} in {kind} at {lines.short(site)}"
    )
    if absent:
        elsewhere = waiting_words(lines, state, absent)
        text += f" for lanes of its mask {mask:#010x} that are elsewhere: {elsewhere}"
    return text + "."


def _matrix_sentences(lines: Lines, state: BlockState, alive: Sequence[int]) -> list[str]:
    """Matrix instructions that wait for lanes or warps which are elsewhere."""
    waiting = [n for n in alive if waits_at_matrix(state, n)]
    found = []
    for site, members in list(by_site(state, waiting).items())[:4]:
        group = matrix_group(state, members[0])
        size = 128 if group == "warpgroup" else 32
        there = set(members)
        groups = {n // size for n in members}
        absent = [n for n in alive if n // size in groups and n not in there]
        text = (
            f"{sentence(threads_words(members))} {wait_verb(members)} at {lines.short(site)}, a "
            f"matrix instruction, which all {size} threads of a {group} execute together"
        )
        if absent:
            text += f": {waiting_words(lines, state, absent)}"
        found.append(text + ".")
    return found


def _deadlock_advice(state: BlockState, alive: Sequence[int]) -> str:
    at_barriers = {
        int(state.threads[n][T_A0]) % BARRIER_COUNT for n in alive if waits_at_barrier(state, n)
    }
    if len(at_barriers) > 1:
        return (
            "Different warps wait at different barriers, each for the other: look at the barrier "
            "numbers and the counts of bar.sync and bar.arrive on the producer's and the "
            "consumer's side."
        )
    if any(is_parked(state, n) for n in alive):
        return (
            "A phase completes when all its arrivals have come and all its bytes have landed: look "
            "at the side that should fill or release this stage."
        )
    return (
        "Look for a barrier or a warp-wide operation inside an if or a loop that not every thread "
        "enters equally often."
    )
