"""From a kernel and a problem to the figures of ``Situation``, and to measured points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from course_lib.explore.situation import Situation
from course_lib.pipeline_model import Issue
from course_lib.ptx_facts import static_shared

if TYPE_CHECKING:
    from collections.abc import Iterable

    from course_lib.kernel import Kernel
    from course_lib.problems import Problem
    from course_lib.sweep_report import Sweep
    from course_lib.timeline import Timeline


class Found(NamedTuple):
    """A kernel's situation, times in cycles that were measured by number of stages, and words."""

    situation: Situation
    measured: dict[int, float]
    device_words: str


def from_kernel(
    kernel: Kernel, problem: Problem, device: str = "auto", stages: Iterable[int] = range(1, 9)
) -> Found:
    """Trace the one-stage variant for L and C, read resources, and sweep over STAGES.

    A kernel without a STAGES define is traced as it is and measured once.
    """
    from course_lib.sweeping import sweep
    from course_lib.tracing import trace

    ring = _has_stages(kernel)
    one = kernel.variant(STAGES=1) if ring else kernel
    timeline = trace(one, problem, device)
    now = int(str(kernel.defines.get("STAGES", timeline.stages))) if ring else timeline.stages
    tile_bytes, more = _bytes(kernel, problem, timeline.stages)
    situation = Situation(
        L=round(timeline.load_cycles()),
        C=round(timeline.compute_cycles()),
        S=now,
        tiles=1 + max((row.tile for row in timeline.intervals), default=0),
        tile_bytes=tile_bytes,
        registers=kernel.resources.registers,
        threads=problem.threads(kernel),
        blocks=_blocks_of_one_sm(kernel, problem, device),
        sync=_rest(timeline),
        more_shared=more,
        issue=issue_of(trace(kernel.variant(STAGES=2), problem, device) if ring else timeline),
        arch=kernel.arch,
    )
    if not ring:
        return Found(situation, {}, timeline.figure_label())
    swept = sweep(kernel, problem, device=device, STAGES=list(stages))
    return Found(situation, in_cycles(swept), swept.figure_label())


def _has_stages(kernel: Kernel) -> bool:
    from course_lib.diagnostics import CompileError

    try:
        kernel.check_define("STAGES")
    except CompileError:
        return False
    return True


def _rest(timeline: Timeline) -> float:
    """What an iteration of the one-stage kernel takes beyond L and C: the reuse edge, the loop."""
    if timeline.stages != 1:
        return round(timeline.reuse_cycles())
    rest = timeline.mean_iteration() - timeline.load_cycles() - timeline.compute_cycles()
    return max(0, round(rest))


def _shared(kernel: Kernel) -> int:
    return kernel.shared_bytes + static_shared(kernel.ptx_text, kernel.name)


def _bytes(kernel: Kernel, problem: Problem, stages: int) -> tuple[int, int]:
    """Bytes per stage, and bytes beside the ring: from the variants of one and two stages."""
    if _has_stages(kernel):
        one, two = _shared(kernel.variant(STAGES=1)), _shared(kernel.variant(STAGES=2))
        return two - one, max(0, 2 * one - two)
    tile = problem.tile_bytes() or _shared(kernel) // max(stages, 1)
    return tile, max(0, _shared(kernel) - stages * tile)


def _blocks_of_one_sm(kernel: Kernel, problem: Problem, device: str) -> int:
    from course_lib.devices import device_info

    return math.ceil(problem.blocks(kernel) / device_info(device).sms)


def issue_of(timeline: Timeline) -> Issue:
    """Where the kernel issues its next load: before it waits for a tile, or once it is ready.

    With two stages, the load into the stage that tile t-1 has left goes out before the read of tile
    t begins in the one case, and not before in the other.
    """
    begin: dict[int, float] = {}
    for row in timeline.rows("wait"):
        begin[row.tile] = min(row.end, begin.get(row.tile, row.end))
    issued: dict[int, float] = {}
    for row in timeline.rows("load"):
        issued[row.tile] = min(row.start, issued.get(row.tile, row.start))
    votes = [
        issued[tile + 1] < begin[tile]
        for tile in begin
        if tile >= timeline.stages - 1 and tile + 1 in issued and timeline.stages > 1
    ]
    return "after_reuse" if sum(votes) * 2 > len(votes) else "after_wait"


def in_cycles(swept: Sweep) -> dict[int, float]:
    """Measured times by STAGES, in cycles of the device's clock; only what is right."""
    from course_lib.devices import device_info

    scale = device_info("gpu").clock_mhz if swept.device == "gpu" else 1.0
    return {
        int(row.defines["STAGES"]): row.time * scale
        for row in swept.rows
        if row.ranked and row.time is not None
    }
