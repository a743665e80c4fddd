"""Hidden checks of exercise 3: the same questions on shapes and inputs that no notebook shows."""

from __future__ import annotations

import random

from course_lib.checks import judging
from course_lib.checks.answers import kernel_in
from course_lib.checks.exercise import Answers, Check
from course_lib.checks.judging import Judgement
from course_lib.checks.overwrite_hazard import KERNEL, experiment
from course_lib.kernel import Kernel
from course_lib.problems import RowChecksums


def checks(seed: int) -> dict[str, Check]:
    """Part → the check that may lower its points; everything follows from ``seed``."""
    chosen = random.Random(seed)
    shapes = [(1, 3), (chosen.choice((6, 7)), chosen.choice((2, 3))), (chosen.randint(9, 14), 1)]
    problems = [RowChecksums.of_tiles(*shape, seed=seed + i) for i, shape in enumerate(shapes)]

    def results(answers: Answers) -> Judgement:
        kernel = kernel_in(answers, KERNEL)
        return judging.right(kernel, problems) if isinstance(kernel, Kernel) else (0.0, [kernel])

    def edges(answers: Answers) -> Judgement:
        kernel = kernel_in(answers, KERNEL)
        if not isinstance(kernel, Kernel):
            return 0.0, [kernel]
        return judging.ordered(kernel, problems[1])

    def without_the_wait(answers: Answers) -> Judgement:
        kernel = kernel_in(answers, KERNEL)
        return experiment(kernel, problems[2]) if isinstance(kernel, Kernel) else (0.0, [kernel])

    return {"results": results, "edges": edges, "experiment": without_the_wait}
