"""Hidden checks of exercise 4: the other numbers of stages, other tile counts, other inputs."""

from __future__ import annotations

import random

from course_lib.checks import ring
from course_lib.checks.exercise import Answers, Check
from course_lib.checks.judging import Judgement

OTHERS = tuple(s for s in ring.SWEPT if s not in ring.RINGS)


def checks(seed: int) -> dict[str, Check]:
    """Part → the check that may lower its points; everything follows from ``seed``."""
    chosen = random.Random(seed)
    counts = {s: [chosen.randint(1, s - 1), s, chosen.randint(s + 1, 3 * s + 2)] for s in OTHERS}

    def results(answers: Answers) -> Judgement:
        found = ring.rings(answers, OTHERS)
        return (0.0, [found]) if isinstance(found, str) else ring.results(found, counts, seed)

    def edges(answers: Answers) -> Judgement:
        found = ring.rings(answers, OTHERS)
        return (0.0, [found]) if isinstance(found, str) else ring.edges(found, seed)

    def flight(answers: Answers) -> Judgement:
        found = ring.rings(answers, OTHERS[:2])
        return (0.0, [found]) if isinstance(found, str) else ring.flight(found, seed)

    return {"results": results, "edges": edges, "flight": flight}
