"""Hidden checks, one module per exercise with ``checks(seed)``: part → check."""

from __future__ import annotations

import importlib

from course_lib.checks.exercise import Check
from grading.secret import seed_for


def checks_of(exercise: str, secret: str | None = None) -> dict[str, Check]:
    """The hidden checks of an exercise, seeded by the instructor's secret (or the one given)."""
    module = importlib.import_module(f"{__name__}.{exercise}")
    found: dict[str, Check] = module.checks(seed_for(exercise, secret))
    return found
