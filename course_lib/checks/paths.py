"""What the warps of a kernel do, in program order, without their waits: to compare versions."""

from __future__ import annotations

from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from course_lib.problem_runs import launch_timed, shaped_for

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.problems import Problem

WORDS = {
    "copy": "begins copies",
    "load": "loads from global memory",
    "store": "stores into a stage",
    "read": "reads a stage",
}
"""The steps that make a path, in words. Everything else is waiting, or telling others."""
CAPACITY = 4096
"""Stamps per warp: far more than a handful of tiles have."""


class Step(NamedTuple):
    """A run of accesses of one kind on one line of the learner's cell."""

    kind: str
    line: int | None

    def __str__(self) -> str:
        return f"{WORDS[self.kind]} on line {self.line}"


def paths(kernel: Kernel, problem: Problem) -> dict[int, list[Step]]:
    """Warp of the first block → its steps. ``DoesNotRun`` where the kernel cannot finish."""
    from course_lib.ptx import probes

    probed = probes.stamp(kernel.ptx(), kernel.module, kernel.name)
    stamped = shaped_for(kernel, problem).rewritten(probed.text, probes.EXTRA_PARAMETERS)
    buffer = probes.allocate(np, 1, -(-problem.threads(kernel) // 32), CAPACITY)
    extra = (buffer, np.uint32(CAPACITY), np.uint32(1), np.uint32(problem.blocks(kernel)))
    launch_timed(stamped, problem, problem.inputs(), extra=extra)
    sites = {site.index: site for site in probed.sites}
    found: dict[int, list[Step]] = {}
    for event in probes.decode(buffer, probed).events:
        site = sites[int(event["site"])]
        if site.kind in WORDS and site.cell_line is not None:
            found.setdefault(int(event["warp"]), []).append(Step(site.kind, site.cell_line))
    return {warp: [step for step, _ in groupby(steps)] for warp, steps in found.items()}


class Parting(NamedTuple):
    """Where two kernels part: the warp, and what it does there in each, in words."""

    warp: int
    one: str
    other: str


def parting(one: Kernel, other: Kernel, problem: Problem) -> Parting | None:
    """The first step of a warp that two kernels do not share; None where all steps are the same."""
    here, there = paths(one, problem), paths(other, problem)
    for warp in sorted(here.keys() | there.keys()):
        for a, b in zip_longest(here.get(warp, []), there.get(warp, [])):
            if a != b:
                return Parting(warp, *(str(step) if step else "is done" for step in (a, b)))
    return None
