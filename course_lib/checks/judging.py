"""Questions about kernels that the checks of several exercises ask, all on the virtual GPU.

Each gives a share of the points, 0 to 1, and messages in plain words. Answers are the same on every
machine and in every run. ``gate`` is for points that only a kernel with right results can earn.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from course_lib.problem_runs import DoesNotRun, first_error, launch_virtual
from course_lib.verification import Verdict, verify

if TYPE_CHECKING:
    from course_lib.checks.paths import Parting
    from course_lib.hazards import HazardReport
    from course_lib.kernel import Kernel
    from course_lib.problems import Problem
    from course_lib.timeline import Timeline
    from course_lib.virtual_gpu.machine import Machine

Judgement = tuple[float, list[str]]

_MOST_HAZARDS = 2
_KEPT = 64
FAR = 20_000
"""Cycles to a memory beside which computing takes no time: see ``in_flight``."""


class CannotJudge(RuntimeError):
    """The virtual GPU cannot run the kernel; the text says why."""


def _guarded(call: Any, *arguments: Any, **options: Any) -> Any:
    """``call`` with every reason for which a kernel cannot be run as ``CannotJudge``."""
    from course_lib.hazards import CannotCheck
    from course_lib.ptx.parse import PtxSyntaxError
    from course_lib.virtual_gpu.flow import Unsupported
    from course_lib.virtual_gpu.launch import ArgumentError, LaunchError

    try:
        return call(*arguments, **options)
    except (Unsupported, PtxSyntaxError, ArgumentError, LaunchError, CannotCheck) as problem:
        raise CannotJudge(f"The virtual GPU cannot run it: {problem}") from problem


@functools.lru_cache(_KEPT)
def _first_run(kernel: Kernel, problem: Problem) -> tuple[str, bool, bool]:
    """(the error that ended one launch or "", whether anything was written, whether it is right)"""
    inputs = problem.inputs()
    result, outputs = _guarded(launch_virtual, kernel, problem, inputs, landing="early")
    if not result.ok:
        return first_error(result), False, False
    before = problem.outputs()
    written = any((outputs[name] != before[name]).any() for name in before)
    return "", bool(written), problem.compare(outputs, problem.reference(inputs))[0]


def runs(kernel: Kernel, problem: Problem) -> Judgement:
    """Does it run to its end, with every access in bounds, and write results?"""
    try:
        error, written, _ = _first_run(kernel, problem)
    except CannotJudge as refused:
        return 0.0, [str(refused)]
    if error:
        return 0.0, [f"It compiles, but does not run to its end. {error}"]
    if not written:
        return 0.0, ["It compiles and runs, but writes no results yet."]
    return 1.0, ["It compiles, runs to its end and writes results."]


def gate(kernel: Kernel, problem: Problem) -> str:
    """ "" where the results are right at least once; else why there are no points for the rest.

    Once is enough, on ``problem`` or on the least of its awkward shapes: a kernel for another
    problem is never right, and one that lacks an edge has its own points to lose.
    """
    try:
        tries = [_first_run(kernel, shape) for shape in (problem, problem.awkward()[0])]
    except CannotJudge as refused:
        return str(refused)
    if not any(right for _, _, right in tries):
        return "These points need right results first: see the check of the results."
    return ""


@functools.lru_cache(_KEPT)
def _verdict(kernel: Kernel, problem: Problem) -> Verdict:
    found = _guarded(verify, kernel, problem, device="virtual")
    assert isinstance(found, Verdict)
    return found


def right(kernel: Kernel, shapes: Sequence[Problem]) -> Judgement:
    """Are the results right for each shape, whatever the order of warps and landing of copies?

    The share is that of the shapes. What goes wrong first is told in full.
    """
    good = 0
    messages: list[str] = []
    for shape in shapes:
        try:
            verdict = _verdict(kernel, shape)
        except CannotJudge as refused:
            return 0.0, [str(refused)]
        if verdict.ok:
            good += 1
        elif len(messages) < _MOST_HAZARDS:
            messages.append(f"Wrong with {_shape(shape)}. {verdict.why}")
    if good == len(shapes):
        policies = len(verdict.runs)
        return 1.0, [f"Right for {good} shapes, each under {policies} orders and landings."]
    if good:
        messages.insert(0, f"Right for {good} of {len(shapes)} shapes.")
    return good / len(shapes), messages


def _shape(problem: Problem) -> str:
    tiles, blocks = getattr(problem, "tiles", None), problem.blocks()
    if tiles is None:
        return repr(problem)
    return f"{tiles} tile{'s' * (tiles != 1)} in each of {blocks} block{'s' * (blocks != 1)}"


def ordered(kernel: Kernel, problem: Problem) -> Judgement:
    """Does every ordering edge that the kernel needs exist, by the exact checker?

    One missing edge of several still leaves half of the points. Threads that race for a word of
    global memory, such as a result that several of them update, leave none.
    """
    why_not = gate(kernel, problem)
    try:
        report = hazard_report(kernel, problem)
    except CannotJudge as refused:
        return 0.0, [str(refused)]
    if report.ok:
        return (0.0, [why_not]) if why_not else (1.0, [f"No hazard. {report.scope}"])
    found = [*report.memory_errors, *filter(None, [report.deadlock]), *report.errors]
    found += [*report.hazards, *report.global_hazards]
    edges = {hazard.edge for hazard in report.hazards}
    one = not why_not and len(found) == len(report.hazards) and len(edges) == 1
    words = [str(item) for item in found[:_MOST_HAZARDS]]
    call = "find_hazards(kernel, problem) shows the picture."
    if report.global_hazards:
        call = "find_hazards(kernel, problem) says the same in your notebook."
    return 0.5 * one, [*words, call]


@functools.lru_cache(_KEPT)
def hazard_report(kernel: Kernel, problem: Problem) -> HazardReport:
    """What the exact checker says; ``CannotJudge`` where it can say nothing."""
    from course_lib.hazards import find_hazards

    return _guarded(find_hazards, kernel, problem)  # type: ignore[no-any-return]


@functools.lru_cache(_KEPT)
def parting(one: Kernel, other: Kernel, problem: Problem) -> Parting | None:
    """Where two versions part in what they do beside waiting; None where they nowhere do."""
    from course_lib.checks import paths

    try:
        return _guarded(paths.parting, one, other, problem)  # type: ignore[no-any-return]
    except DoesNotRun as words:
        raise CannotJudge(str(words)) from words


@functools.lru_cache(_KEPT)
def timeline(kernel: Kernel, problem: Problem) -> Timeline:
    """The timeline on the virtual clock; ``CannotJudge`` where there is none."""
    from course_lib.tracing import trace_virtual

    try:
        found = _guarded(trace_virtual, kernel, problem)
    except DoesNotRun as words:
        raise CannotJudge(str(words)) from words
    return found  # type: ignore[no-any-return]


@functools.lru_cache(_KEPT)
def global_bytes(kernel: Kernel, problem: Problem) -> float:
    """Bytes between global memory and the chip, counted in one launch on the virtual GPU."""
    from course_lib.profiling import count

    try:
        return float(_guarded(count, kernel, problem).global_bytes)
    except DoesNotRun as words:
        raise CannotJudge(str(words)) from words


def staged(kernel: Kernel, problem: Problem, stages: int) -> Judgement:
    """Does every tile pass through one of ``stages`` buffers in shared memory, and only once?

    Two thirds of the points are for reading tiles from shared memory, one for moving each word of
    global memory once (a tenth more is allowed).
    """
    why_not = gate(kernel, problem)
    if why_not:
        return 0.0, [why_not]
    try:
        found = timeline(kernel, problem)
        moved = global_bytes(kernel, problem)
    except CannotJudge as refused:
        return 0.0, [str(refused)]
    tiles = {row.tile for row in found.rows("read")}
    expected = getattr(problem, "tiles", len(tiles))
    if len(tiles) < expected / 2:  # a timeline cannot always tell the first and the last
        return 0.0, [
            f"Only {len(tiles)} of {expected} tiles are seen to be read from shared memory: load "
            "each into a buffer, wait for the whole block, and compute from the buffer."
        ]
    share, messages = 1.0, []
    used = shared_bytes(kernel)
    tile_bytes = problem.tile_bytes()
    if tile_bytes and used >= (stages + 1) * tile_bytes:
        share -= 1 / 3
        messages.append(
            f"It takes {used:,} bytes of shared memory, room for {used // tile_bytes} tiles; the "
            f"exercise asks for {stages}."
        )
    if moved > 1.1 * problem.bytes_moved():
        share -= 1 / 3
        messages.append(
            f"It moves {moved / problem.bytes_moved():.1f} times the bytes that the problem needs: "
            "load every word once, and no word that nobody uses."
        )
    return share, messages or ["Every tile goes through shared memory, and is loaded once."]


def faster(kernel: Kernel, reference: Kernel, problem: Problem) -> Judgement:
    """Is it clearly faster than ``reference``, side by side on a real GPU?

    For a bonus: where there is no GPU, or the comparison is inconclusive, nothing is lost. A kernel
    that is wrong or lacks an ordering edge gets none, however fast it is.
    """
    from course_lib.devices import resolve
    from course_lib.real_gpu.guard import GpuError
    from course_lib.timing import compare

    where, why = resolve("auto", kernel)
    if where != "gpu":
        return 0.0, [f"No bonus, and nothing lost: speed counts on a real GPU only, and {why}."]
    small = problem.small()
    if right(kernel, [small])[0] < 1 or ordered(kernel, small)[0] < 1:
        return 0.0, ["The bonus is for a kernel that is right and lacks no ordering edge."]
    try:
        found = compare({"reference": reference, "yours": kernel}, problem, device="gpu")
    except GpuError as problem_of_gpu:
        return 0.0, [f"No bonus, and nothing lost: it could not be measured. {problem_of_gpu}"]
    ratio = found.ratio("yours", "reference")
    words = f"Your time is {ratio} of the reference's ({found.figure_label()})."
    if not ratio.conclusive:
        return 0.0, [f"{words} No bonus, and nothing lost."]
    return (1.0, [words]) if ratio.value < 1 else (0.0, [f"{words} The reference is faster."])


def shared_bytes(kernel: Kernel) -> int:
    """Shared memory of one block, static and dynamic."""
    from course_lib.ptx_facts import static_shared

    return static_shared(kernel.ptx_text, kernel.name) + kernel.shared_bytes


def overlap(found: Timeline) -> float:
    """How much of loading and computing happens at the same time: 0, none, to 1, all that can.

    For each tile of the first block, the longest time for which a later tile's load is on its way
    while it is consumed, over the shorter of the two. Median over tiles without the first and last.
    """
    import numpy as np

    loads = _spans(found, "load")
    reads = _spans(found, "read")
    shares = []
    for tile, (begin, end) in sorted(reads.items())[1:-1]:
        later = [span for other, span in loads.items() if other > tile]
        covered = [
            max(0.0, min(end, to) - max(begin, start)) / max(1.0, min(end - begin, to - start))
            for start, to in later
        ]
        shares.append(max(covered, default=0.0))
    return float(np.median(shares)) if shares else 0.0


@functools.lru_cache(_KEPT)
def in_flight(kernel: Kernel, problem: Problem, stages: int) -> int:
    """Tiles on their way when the block begins to read one: the median over the steady state.

    On a virtual GPU whose memory is so far away that loads land in the order in which they are
    asked for and long after: so it is no matter of speed, only of what was begun and what was
    waited for. A tile counts from its first copy, which may come in the first half of the read,
    to its landing.
    """
    import numpy as np

    from course_lib.tracing import trace_virtual

    try:
        found = _guarded(trace_virtual, kernel, problem, machine=_far_memory())
    except DoesNotRun as words:
        raise CannotJudge(str(words)) from words
    loads, reads = _spans(found, "load"), _spans(found, "read")
    last = max(loads, default=0)
    counts = [
        sum(u > t and issued < (begin + end) / 2 and begin < landed
            for u, (issued, landed) in loads.items())
        for t, (begin, end) in reads.items()
        if stages <= t <= last - stages
    ]  # fmt: skip
    return int(np.median(counts)) if counts else 0


def _far_memory() -> Machine:
    from dataclasses import replace

    from course_lib.virtual_gpu.machine import H200

    return replace(H200, name="far memory", global_latency=FAR, copy_latency=FAR, l2_latency=FAR)


def _spans(found: Timeline, kind: str) -> dict[int, tuple[float, float]]:
    """Tile → from the first start to the last end of its intervals of one kind."""
    spans: dict[int, tuple[float, float]] = {}
    for row in found.rows(kind):
        begin, end = spans.get(row.tile, (row.start, row.end))
        spans[row.tile] = min(begin, row.start), max(end, row.end)
    return spans
