"""The words of a hazard: what happened, on which lines, which edge is missing and what supplies it.

Advice comes in the style that the kernel already uses: pipeline primitives, `cuda::pipeline`,
mbarriers, named barriers, or plain loads and barriers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from course_lib.ptx.parse import Immediate, Instruction

if TYPE_CHECKING:
    from course_lib.hazards import Access, Hazard
    from course_lib.kernel import Kernel
    from course_lib.virtual_gpu.flow import FlatKernel

WHY = {
    "ready": (
        "A stage may be read only when its tile is complete and every thread that brought a part "
        "of it has said so. Otherwise the read gets what lay there before, or half a tile, on some "
        "runs and not on others."
    ),
    "reuse": (
        "A stage may be filled again only when every warp has finished reading it. Otherwise a "
        "slow warp finds the next tile where its own should be."
    ),
    "other": "Which of the two comes first is left to luck, so the result is too.",
}
_VERBS = {
    "read": "reads", "write": "writes", "atomic": "updates", "copy": "copies into",
    "bulk copy": "copies into", "bulk store": "stores from", "wgmma read": "multiplies from",
    "initialisation": "initialises",
}  # fmt: skip


@dataclass(frozen=True)
class Sync:
    """A point of synchronisation in the kernel; ``number`` is a group count or a barrier."""

    kind: str
    line: int | None
    number: int | None = None


@dataclass(frozen=True)
class Style:
    """How a kernel synchronises: what advice is written in."""

    syncs: tuple[Sync, ...]
    name: str
    wait: str
    barrier: str

    def of(self, kind: str) -> list[Sync]:
        return [sync for sync in self.syncs if sync.kind == kind]

    def before(self, line: int | None, kinds: Sequence[str]) -> list[Sync]:
        """Points of these kinds on lines above, nearest first."""
        found = [s for s in self.syncs if s.kind in kinds and s.line and line and s.line < line]
        return sorted(found, key=lambda s: -(s.line or 0))


def style_of(kernel: Kernel, flat: FlatKernel) -> Style:
    """The style of a kernel, from its instructions and the names in its source."""
    syncs = tuple(dict.fromkeys(_syncs(flat)))
    kinds = {sync.kind for sync in syncs}
    source = re.sub(r"//[^\n]*|/\*.*?\*/", "", kernel.source, flags=re.S)
    barrier = "__syncthreads()"
    if "cooperative_groups" in source and "__syncthreads" not in source:
        barrier = "block.sync()"
    if re.search(r"\b(producer_acquire|consumer_wait)\b", source):
        return Style(syncs, "cuda::pipeline", "consumer_wait()", barrier)
    if "mbarrier wait" in kinds:
        wait = "bar.wait(...)" if "cuda::barrier" in source else "a try_wait on its full barrier"
        return Style(syncs, "mbarrier", wait, barrier)
    if re.search(r"\bcp\.async\.", source):
        return Style(syncs, "ptx", "cp.async.wait_group N", barrier)
    if "copy" in kinds:
        return Style(syncs, "primitives", "__pipeline_wait_prior(N)", barrier)
    return Style(syncs, "plain", "", barrier)


def _syncs(flat: FlatKernel) -> list[Sync]:
    found = []
    for item in flat.code:
        if isinstance(item, Instruction):
            kind = _kind(item)
            if kind:
                numbers = [o.value for o in item.operands if isinstance(o, Immediate)]
                # Where a helper function waits or arrives, the line that calls it counts.
                line = next(reversed(flat.module.site_of(item).cell_lines), None)
                number = numbers[0] if numbers else None
                if item.opcode.endswith("wait_all"):
                    number = 0
                found.append(Sync(kind, line, number))
    return found


def _kind(item: Instruction) -> str | None:
    opcode = item.opcode
    if opcode.startswith("cp.async.bulk"):
        if "wait_group" in opcode:
            return "bulk wait"
        return None if "commit" in opcode or "prefetch" in opcode else "bulk copy"
    if opcode.startswith("cp.async"):
        if "wait" in opcode:
            return "wait"
        return "commit" if "commit" in opcode else None if "mbarrier" in opcode else "copy"
    if opcode.startswith("bar.warp"):
        return "syncwarp"
    if item.family in ("bar", "barrier") and "cluster" not in opcode:
        named = item.operands and not (
            isinstance(item.operands[0], Immediate) and item.operands[0].value == 0
        )
        return "named barrier" if named else "barrier"
    if item.family == "mbarrier":
        if item.modifiers[0] in ("try_wait", "test_wait"):
            return "mbarrier wait"
        return "mbarrier arrive" if item.modifiers[0].startswith("arrive") else None
    if opcode.startswith("fence.proxy.async"):
        return "proxy fence"
    if opcode.startswith("wgmma.wait_group"):
        return "wgmma wait"
    return None


# --- the message --------------------------------------------------------------------------------


def message(hazard: Hazard, style: Style) -> str:
    """The whole text of one hazard."""
    cause, cure = cause_and_cure(hazard, style)
    parts = [
        headline(hazard),
        *_quotes(hazard),
        f"Seen first at {hazard.place.element}." if hazard.place.element else "",
        _also(hazard),
        cause,
        WHY[hazard.edge],
        cure,
    ]
    return "\n".join(part for part in parts if part)


def headline(hazard: Hazard) -> str:
    """The first sentence: the edge, the place, both accesses."""
    first, second, place = hazard.first, hazard.second, hazard.place.name
    if _on_accumulators(hazard):
        return _accumulator_headline(hazard)
    if hazard.edge == "ready":
        return (
            f"Missing ready edge at {place}: {_who(second)} {_VERBS[second.kind]} {place}"
            f"{_tile(second)} on {_line(second)}, and nothing orders that after {_source(first)} "
            f"on {_line(first)} by {_who(first)}."
        )
    if hazard.edge == "reuse" and first.kind in ("read", "wgmma read", "bulk store"):
        return (
            f"Missing reuse edge at {place}: {_who(second)} brings {_named(second)} into {place} "
            f"on {_line(second)}, and nothing orders that after {_who(first)} "
            f"{_VERBS[first.kind]} {place}{_tile(first)} on {_line(first)}."
        )
    if hazard.edge == "reuse":
        return (
            f"Missing reuse edge at {place}: {_who(second)} brings {_named(second)} into {place} "
            f"on {_line(second)} while {_source(first)} on {_line(first)} may still be on its way."
        )
    if _uses_uninitialised(hazard):
        return (
            f"Barrier used before its initialisation is visible: {_who(second)} works on {place} "
            f"on {_line(second)}, and nothing orders that after {_who(first)} initialises it on "
            f"{_line(first)}."
        )
    return (
        f"Race at {place}: {_who(first)} {_VERBS[first.kind]} it on {_line(first)}, "
        f"{_who(second)} {_VERBS[second.kind]} it on {_line(second)}, and nothing orders the two."
    )


def _on_accumulators(hazard: Hazard) -> bool:
    """Is it about registers of wgmma, and not about shared memory?"""
    return "accumulator" in (hazard.first.kind, hazard.second.kind)


def _uses_uninitialised(hazard: Hazard) -> bool:
    """Is it an mbarrier that somebody uses while mbarrier.init may still be to come?"""
    return hazard.first.kind == "initialisation" and hazard.second.kind != "initialisation"


def _accumulator_headline(hazard: Hazard) -> str:
    first, second = hazard.first, hazard.second
    if hazard.missing == "fence":
        return (
            f"Missing wgmma.fence: {_who(second)} starts the wgmma on {_line(second)} with "
            "registers that it has touched since its last fence."
        )
    return (
        f"Accumulators used too early: {_who(second)} uses on {_line(second)} what the wgmma on "
        f"{_line(first)} may not have written yet."
    )


def _who(access: Access) -> str:
    role = f" ({access.role})" if access.role else ""
    return f"warp {access.warp}{role}"


def _tile(access: Access) -> str:
    return "" if access.tile is None else f" (tile {access.tile})"


def _named(access: Access) -> str:
    return "the next tile" if access.tile is None else f"tile {access.tile}"


def _source(access: Access) -> str:
    what = {"copy": "the copy", "bulk copy": "the bulk copy"}.get(access.kind, "the write")
    return what if access.tile is None else f"{what} of tile {access.tile}"


def _line(access: Access) -> str:
    return access.where


def _quotes(hazard: Hazard) -> list[str]:
    seen: dict[int, str] = {}
    for access in (hazard.first, hazard.second):
        if access.line is not None:
            seen[access.line] = access.code + access.called_from
    return [f"    line {line}: {code}" for line, code in seen.items()]


def _also(hazard: Hazard) -> str:
    """The other lines where the same edge is missing."""
    pairs = [f"{one.first.where} and {one.second.where}" for one in hazard.also]
    if not pairs:
        return ""
    return "The same edge is missing between " + ", and between ".join(dict.fromkeys(pairs)) + "."


# --- causes -------------------------------------------------------------------------------------


def cause_and_cure(hazard: Hazard, style: Style) -> tuple[str, str]:
    """(what is missing, what would supply it), each a sentence or two."""
    # Above and below are judged by the kernel's own lines, wherever its helper functions stand.
    hazard = replace(hazard, first=hazard.first.outside(), second=hazard.second.outside())
    if _on_accumulators(hazard):
        return _accumulators(hazard)
    if _uses_uninitialised(hazard):
        return (
            "An mbarrier is ordinary memory until mbarrier.init has run, and other threads see "
            "that only through a barrier that does not need it.",
            f"Initialise in one thread, then {style.barrier}, and only then use the barrier.",
        )
    if hazard.missing == "proxy":
        return _proxy(hazard)
    if hazard.edge == "ready":
        return _ready(hazard, style)
    if hazard.edge == "reuse":
        return _reuse(hazard, style)
    return (
        "Neither a barrier nor anything else that CUDA orders by lies between them.",
        f"Put {style.barrier} between lines {hazard.first.where} and {hazard.second.where}, or "
        "let each thread use its own element, or use an atomic.".replace("lines line", "line"),
    )


def _accumulators(hazard: Hazard) -> tuple[str, str]:
    if hazard.missing == "fence":
        return (
            "The tensor cores work on their own time: without the fence they may take a register "
            "before the value that the thread has put there.",
            f"Put wgmma.fence before {hazard.second.where}, after the last ordinary use of the "
            "accumulators.",
        )
    return (
        "wgmma writes its accumulators after the instruction is issued; only wgmma.wait_group says "
        "when they hold the result.",
        f"Commit the group, and put wgmma.wait_group 0 before {hazard.second.where}.",
    )


def _proxy(hazard: Hazard) -> tuple[str, str]:
    return (
        "The two are ordered, but one goes through the async proxy (bulk copies, wgmma) and the "
        "other does not: an order between ordinary accesses does not reach across.",
        "Put fence.proxy.async (cuda::ptx::fence_proxy_async) in the writing thread, after its "
        f"access on {hazard.first.where} and before the barrier or arrive that hands over.",
    )


def _ready(hazard: Hazard, style: Style) -> tuple[str, str]:
    copy, read = hazard.first, hazard.second
    if hazard.missing == "phase" or copy.kind == "bulk copy":
        return _ready_phase(hazard, style)
    if copy.kind != "copy":
        return _ready_barrier(hazard, style, "The tile is written by all warps")
    waits = style.before(read.line, ("wait",)) or style.of("wait")
    if hazard.missing == "wait" and not style.of("wait"):
        return (
            "The copy is issued and never waited for: cp.async returns at once, and the tile "
            "lands when it likes.",
            _never_waited(hazard, style),
        )
    if hazard.missing == "wait":
        return _wrong_wait(hazard, style, waits)
    later = [s for s in waits[:1] if s.line]
    barriers = style.before(read.line, ("barrier", "named barrier"))
    if later and barriers and (barriers[0].line or 0) < (later[0].line or 0):
        return (
            f"The barrier on line {barriers[0].line} comes before the wait on line "
            f"{later[0].line}: a wait covers the waiting thread's own copies only, and the barrier "
            "that would tell the other warps of it has already been passed.",
            f"Wait first, then meet: move line {barriers[0].line} below line {later[0].line}.",
        )
    return _ready_barrier(
        hazard, style, "A wait covers the waiting thread's own copies only, and each warp copies "
        "a part of the tile",
    )  # fmt: skip


def _never_waited(hazard: Hazard, style: Style) -> str:
    where = f"before {hazard.second.where}"
    if style.name == "cuda::pipeline":
        return f"Call consumer_wait() {where}; it waits for the oldest stage and joins its threads."
    return f"Put {_wait_call(style, hazard)} {where}, followed by {style.barrier}." + _pending(
        hazard
    )


def _wait_call(style: Style, hazard: Hazard) -> str:
    most = max(hazard.place.stages - 1, 0)
    return style.wait.replace("N", str(most)) if most <= 1 else style.wait


def _pending(hazard: Hazard) -> str:
    stages = hazard.place.stages
    if stages <= 1:
        return " With one buffer no group may stay in flight, so N is 0."
    return (
        f" The number is how many younger groups may stay in flight: in a ring of {stages} stages "
        f"at most {stages - 1}, and one fewer where the next load is issued after the wait."
    )


def _wrong_wait(hazard: Hazard, style: Style, waits: Sequence[Sync]) -> tuple[str, str]:
    read = hazard.second
    if style.name == "cuda::pipeline":
        return (
            "The copy is not complete where it is read: consumer_wait() has not been called for "
            "its stage.",
            f"Call consumer_wait() before {read.where}, once for each producer_commit().",
        )
    above = [s for s in style.before(read.line, ("wait",)) if s.number is not None]
    if not above:
        line = waits[0].line if waits else None
        after = f" (it stands on line {line})" if line else ""
        return (
            f"The wait comes too late: no wait stands before {read.where}{after}.",
            f"Put {_wait_call(style, hazard)} before {read.where}, followed by {style.barrier}."
            + _pending(hazard),
        )
    wait = above[0]
    call = f"`{style.wait.replace('N', str(wait.number))}`"
    allowed = f"{wait.number} younger group{'s' * (wait.number != 1)}"
    return (
        f"The wait on line {wait.line} ({call}) lets {allowed} stay in flight, and the copy of "
        f"{_named(hazard.first)} is still one of them: it waits for the wrong number of groups.",
        f"Lower the number on line {wait.line}, or commit one group for each tile, empty ones at "
        "the end included, so that the count keeps its meaning." + _pending(hazard),
    )


def _ready_barrier(hazard: Hazard, style: Style, reason: str) -> tuple[str, str]:
    read = hazard.second
    barriers = style.before(read.line, ("barrier", "named barrier"))
    waits = style.before(read.line, ("wait",))
    after_wait = [
        s for s in barriers if not waits or not waits[0].line or (s.line or 0) >= waits[0].line
    ]
    syncwarps = style.before(read.line, ("syncwarp",))
    if syncwarps and not after_wait:
        return (
            f"{reason}, and the __syncwarp() on line {syncwarps[0].line} orders only the lanes of "
            "one warp.",
            f"Use {style.barrier} there: all warps must have finished before any reads.",
        )
    if after_wait and hazard.first.line is not None and _between(hazard, after_wait[0]):
        return (
            f"{reason}, and not every warp passes the barrier on line {after_wait[0].line} "
            "between the two accesses.",
            "Take the barrier out of the branch, or count all warps in it, so that everybody who "
            "brings a part of the tile arrives before anybody reads.",
        )
    return (
        f"{reason}, but no barrier lies between that and the other warps' reads.",
        f"Put {style.barrier} after the wait and before {read.where}."
        if hazard.first.kind == "copy"
        else f"Put {style.barrier} between {hazard.first.where} and {read.where}.",
    )


def _between(hazard: Hazard, sync: Sync) -> bool:
    first, second = hazard.first.line or 0, hazard.second.line or 0
    return first < (sync.line or 0) < second


def _ready_phase(hazard: Hazard, style: Style) -> tuple[str, str]:
    read = hazard.second
    waits = style.before(read.line, ("mbarrier wait",))
    if style.name == "cuda::pipeline":
        return (
            "The reading warp has not waited for this stage.",
            f"Call consumer_wait() before {read.where}.",
        )
    if not waits and not style.of("mbarrier wait"):
        return (
            "The bulk copy reports to its mbarrier when it is complete, and nobody waits for that "
            "phase.",
            f"Wait for the mbarrier's phase with try_wait before {read.where}.",
        )
    line = (waits or style.of("mbarrier wait"))[0].line
    return (
        f"The wait on line {line} returns for another phase than the one that this copy completes: "
        "wrong parity, or the barrier of another stage.",
        "The first round of a full barrier completes phase 0, and the parity flips each time the "
        f"ring wraps around: wait on line {line} for the parity (t / STAGES) % 2 of the barrier of "
        "stage t % STAGES.",
    )


def _reuse(hazard: Hazard, style: Style) -> tuple[str, str]:
    read, copy = hazard.first, hazard.second
    if read.kind in ("copy", "bulk copy", "write"):
        return (
            "The copy that is on its way has not been waited for when the next one to the same "
            "place is issued.",
            f"Wait for it and let everybody read it before {copy.where}: both edges of the stage "
            "are missing here.",
        )
    if read.kind == "wgmma read":
        return (
            "wgmma reads shared memory after the instruction is issued, and its group has not been "
            "waited for.",
            f"Put wgmma.wait_group before the stage is handed back, that is before {copy.where}.",
        )
    if read.kind == "bulk store":
        return (
            "A bulk store reads shared memory after it is issued, and its group has not been "
            "waited for.",
            f"Put cp.async.bulk.wait_group.read before {copy.where}.",
        )
    if style.name == "cuda::pipeline":
        return (
            "The stage is not released after its last read, or the producer does not ask for it.",
            f"Call consumer_release() after {read.where} and producer_acquire() before "
            f"{copy.where}.",
        )
    if style.name == "mbarrier":
        return _reuse_phase(hazard, style)
    return _reuse_barrier(hazard, style)


def _reuse_phase(hazard: Hazard, style: Style) -> tuple[str, str]:
    read, copy = hazard.first, hazard.second
    arrives = [s for s in style.of("mbarrier arrive") if s.line]
    after = [s for s in arrives if read.line and s.line and s.line > read.line]
    if arrives and not after:
        early = arrives[-1]
        cause = f"No warp arrives after the read (the last arrive is on line {early.line})."
    else:
        cause = (
            "The producer does not wait for the phase of the empty barrier that this read's arrive "
            "completes: no such wait, wrong parity, or too few arrivals in its count."
        )
    syncwarp = (
        " Where one lane arrives for its warp, __syncwarp() must come before it, or the other "
        "lanes' reads are not covered."
    )
    return (
        cause,
        f"Arrive on the stage's empty barrier after {read.where}, and wait for it with try_wait "
        f"before {copy.where}." + syncwarp,
    )


def _reuse_barrier(hazard: Hazard, style: Style) -> tuple[str, str]:
    read, copy = hazard.first, hazard.second
    after = [
        s
        for s in style.syncs
        if read.line and s.line and s.line >= read.line and s.kind in ("syncwarp", "barrier")
    ]
    call = style.barrier
    if after and all(s.kind == "syncwarp" for s in after) and read.warp != copy.warp:
        return (
            f"The __syncwarp() on line {after[0].line} guards the stage only within one warp; "
            f"warp {copy.warp} overwrites what warp {read.warp} reads.",
            f"Use {call} in its place: every warp must have finished reading before any fills the "
            "stage again.",
        )
    named = style.of("named barrier")
    how = "bar.sync with the number of all threads concerned" if named else call
    if read.warp == copy.warp:
        cause = (
            "Neither the other warps nor the other lanes of this one are known to have finished "
            "reading."
        )
    else:
        cause = "Warps do not run in step: one can be a whole iteration ahead of another."
    return (
        cause + " No barrier lies between the read and the load that fills the stage again.",
        f"Put {how} after {read.where} and before the load of the next tile ({copy.where}).",
    )
