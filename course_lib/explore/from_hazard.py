"""A hazard as a timeline: the accesses in the order that nothing forbids, not to scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib.timeline import Interval, Timeline

if TYPE_CHECKING:
    from course_lib.hazards import HazardReport

UNIT = 1000.0
"""Units of time per iteration of the picture; they mean nothing but an order."""


def timeline_of(report: HazardReport) -> Timeline:
    """The first hazard's ring, drawn as ``HazardReport.plot`` draws it, in a timeline's rows.

    Raises:
        ValueError: where the report has no hazard.
    """
    from course_lib.hazard_plots import Ring

    if not report.hazards:
        raise ValueError("this report has no hazard to show: explore a trace of the kernel instead")
    hazard = report.hazards[0]
    ring = Ring(hazard, report.fills)
    bars = ring.bars()
    origin = min(bar.start for bar in bars)
    lines = {"load": hazard.second.line, "read": hazard.first.line}
    reader = hazard.first if hazard.first.kind == "read" else hazard.second
    rows = [
        Interval(
            0, reader.warp if bar.kind == "read" else 0, bar.kind, bar.tile, bar.stage,
            (bar.start - origin) * UNIT, (bar.end - origin) * UNIT, lines[bar.kind],
        )
        for bar in bars
    ]  # fmt: skip
    label = f"{report.kernel_name}: order of the program, not to scale"
    return Timeline(rows, "hazard", label, ring.stages, kernel_name=report.kernel_name)
