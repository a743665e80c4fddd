"""Running a kernel with clock stamps on either device, and making its timeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.problem_runs import VIRTUAL_LABEL, launch_timed, shaped_for
from course_lib.timeline import Interval, Timeline
from course_lib.timeline_steps import Stamp, rebuild

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.problems import Problem
    from course_lib.virtual_gpu.launch import LaunchResult
    from course_lib.virtual_gpu.machine import Machine

#: Stamps per warp of the first attempt at a trace, and where growing stops.
FIRST_CAPACITY, LAST_CAPACITY = 4096, 1 << 16


def trace(kernel: Kernel, problem: Problem, device: str = "auto", *, blocks: int = 1) -> Timeline:
    """Run a kernel once with clock stamps and give the timeline of its first block(s).

    ``blocks`` counts stamped blocks, all from one SM. Raises ``DoesNotRun`` (virtual) or
    ``GpuError`` (real) with the reason where the kernel cannot finish. A kernel that ``verify``
    finds wrong on the problem's small case is traced all the same, and a note says so.
    """
    from course_lib.devices import resolve
    from course_lib.verification import doubt

    where, _ = resolve(device, kernel)
    found = (_trace_real if where == "gpu" else trace_virtual)(kernel, problem, blocks)
    wrong = doubt(kernel, problem)
    return replace(found, notes=(wrong, *found.notes)) if wrong else found


def _trace_real(kernel: Kernel, problem: Problem, blocks: int) -> Timeline:
    from course_lib.real_gpu.guard import shared_helper

    answer = shared_helper().call(
        "trace_problem",
        kernel=kernel.to_spec(),
        problem=problem.to_spec(),
        slots=blocks,
        lock=True,
    )
    stamps = stamps_from_events(
        answer["events"], answer["sites"], answer["arrays"], answer["offsets"], problem
    )
    timeline = _timeline(kernel, problem, stamps, "gpu", answer["device"])
    notes = tuple(answer["notes"]) + _truncation_notes(answer["truncated"])
    return replace(timeline, overhead=answer["overhead"], notes=notes)


def trace_virtual(
    kernel: Kernel, problem: Problem, blocks: int = 1, machine: Machine | None = None
) -> Timeline:
    """The timeline on the virtual GPU; raises ``DoesNotRun`` where the kernel cannot finish.

    ``machine`` has other latencies than the H200's, such as a memory so far away that only what a
    kernel waits for decides which copies are under way.
    """
    from course_lib.ptx import probes
    from course_lib.virtual_gpu.machine import H200

    probed = probes.stamp(kernel.ptx(), kernel.module, kernel.name)
    stamped = shaped_for(kernel, problem).rewritten(probed.text, probes.EXTRA_PARAMETERS)
    inputs = problem.inputs()
    warps = -(-problem.threads(kernel) // 32)
    stride = H200.sms
    capacity = FIRST_CAPACITY
    while True:
        buffer = probes.allocate(np, blocks, warps, capacity)
        extra = (buffer, np.uint32(capacity), np.uint32(blocks), np.uint32(stride))
        result = launch_timed(stamped, problem, inputs, extra=extra, trace=True, machine=machine)
        decoded = probes.decode(buffer, probed)
        if not decoded.truncated or capacity >= LAST_CAPACITY:
            break
        capacity *= 4
    stamps = _virtual_stamps(decoded.events, probed.sites, _origin(buffer), result, problem, inputs)
    timeline = _timeline(kernel, problem, stamps, "virtual", VIRTUAL_LABEL)
    return replace(timeline, notes=tuple(probed.notes) + _truncation_notes(decoded.truncated))


def _origin(buffer: np.ndarray) -> int:
    """The raw clock that decoded clocks count from: that of the first header."""
    from course_lib.ptx.probes import HEADER_MARK

    headers = buffer[:, :, 0, :].reshape(-1, 4)
    present = headers[headers[:, 1] == HEADER_MARK]
    return int(present[0, 0]) if len(present) else 0


def _virtual_stamps(
    events: np.ndarray,
    sites: Sequence[Any],
    origin: int,
    result: LaunchResult,
    problem: Problem,
    inputs: dict[str, Any],
) -> list[Stamp]:
    """Stamps with the landing times that the virtual GPU alone knows."""
    # A window of the virtual address space begins at every array, so what is left of an address
    # in a stamp is the offset; the arrays that are loaded in tiles are asked in turn.
    offsets = events["global_address"].astype(np.int64)
    arrays = []
    for offset, block in zip(offsets, events["block"], strict=True):
        inside = [
            name
            for name, array in inputs.items()
            if offset < array.nbytes and problem.tile_of(name, int(offset), int(block)) is not None
        ]
        arrays.append(inside[0] if inside else "")
    landed = _landing_times(events, sites, origin, result.landings)
    return stamps_from_events(events, sites, arrays, offsets, problem, landed)


def _landing_times(
    events: np.ndarray, sites: Sequence[Any], origin: int, log: np.ndarray
) -> list[float | None]:
    """For each stamp of a run of copies, when the last copy of the run landed.

    The log has every copy of lane 0, the stamps only the first of each run: a run's copies are
    those that were issued from its stamp on and before the warp's next one.
    """
    copies = {site.index for site in sites if site.kind == "copy"}
    landed: list[float | None] = [None] * len(events)
    is_copy = np.isin(events["site"], list(copies))
    for block, warp in {(int(e["block"]), int(e["warp"])) for e in events}:
        mine = np.flatnonzero(is_copy & (events["block"] == block) & (events["warp"] == warp))
        logged = log[(log["block"] == block) & (log["warp"] == warp)]
        run = np.searchsorted(events["clock"][mine], logged["issued"] - origin, "right") - 1
        for number, index in enumerate(mine):
            times = logged["landed"][run == number]
            if len(times):
                landed[index] = float(times.max() - origin)
    return landed


def _truncation_notes(truncated: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    if not truncated:
        return ()
    return (f"{len(truncated)} warps had more to tell than there was room for",)


def _timeline(
    kernel: Any, problem: Any, stamps: Sequence[Stamp], device: str, label: str
) -> Timeline:
    rows, stages = rebuild(stamps, dense=problem.dense_tiles, tile_bytes=problem.tile_bytes())
    if device == "virtual":
        rows = charge_contention(rows)
    origin = min((row.start for row in rows), default=0.0)
    rows = [row._replace(start=row.start - origin, end=row.end - origin) for row in rows]
    return Timeline(rows, device, label, stages, kernel_name=kernel.name)


def charge_contention(
    rows: Sequence[Interval], barrier_cycles: float | None = None
) -> list[Interval]:
    """Move time that warps spend sharing issue slots from a barrier to the compute before it.

    The virtual clock adds this time where a warp next stops, which is the barrier at the end of its
    reads; stamps in between don't see it. The last warp passes a barrier in ``barrier_cycles``, so
    what even the shortest stay at a reuse edge takes beyond that was computing.
    """
    from course_lib.virtual_gpu.machine import H200

    warps = 1 + max((row.warp for row in rows), default=0)
    cost = H200.barrier_cycles(warps) if barrier_cycles is None else barrier_cycles
    edges: dict[tuple[int, int], list[Interval]] = defaultdict(list)
    for row in rows:
        if row.kind == "reuse":
            edges[row.block, row.tile].append(row)
    excess = {key: min(row.cycles for row in found) - cost for key, found in edges.items()}
    starts = {(row.block, row.warp, row.tile): row.start for row in rows if row.kind == "reuse"}
    ends = {(row.block, row.warp, row.tile): row.end for row in rows if row.kind == "read"}
    moved = []
    for row in rows:
        key = row.block, row.warp, row.tile
        late = max(0.0, excess.get((row.block, row.tile), 0.0))
        if late and key in ends and starts.get(key) == ends[key]:
            if row.kind == "read":
                row = row._replace(end=row.end + late)
            elif row.kind == "reuse":
                row = row._replace(start=row.start + late)
        moved.append(row)
    return moved


def stamps_from_events(
    events: np.ndarray,
    sites: Sequence[Any],
    arrays: Sequence[str],
    offsets: Sequence[int] | np.ndarray,
    problem: Problem,
    landed: Sequence[float | None] | None = None,
) -> list[Stamp]:
    """``Stamp`` records from decoded events (``ptx.probes.EVENT``) of either device."""
    by_index = {site.index: site for site in sites}
    stamps = []
    for number, event in enumerate(events):
        site = by_index[int(event["site"])]
        name, offset = arrays[number], int(offsets[number])
        block = int(event["block"])
        coordinate = problem.tile_of(name, offset, block) if name else None
        stamps.append(
            Stamp(
                block,
                int(event["warp"]),
                site.kind,
                int(event["phase"]),
                float(event["clock"]),
                site.cell_line,
                int(event["shared"]),
                coordinate,
                landed[number] if landed is not None else None,
            )  # fmt: skip
        )
    return stamps
