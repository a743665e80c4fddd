"""Widgets: sliders over the model of a pipeline, and a ring that plays through its timeline."""

from __future__ import annotations

from course_lib.explore.stages import explore_stages
from course_lib.explore.timelines import explore_timeline

__all__ = ["explore_stages", "explore_timeline"]
