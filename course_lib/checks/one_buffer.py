"""Exercise 1: the single-buffer kernel, its L and C, and what a second buffer could gain."""

from __future__ import annotations

from course_lib.checks import judging
from course_lib.checks.answers import kernel_in, number_in
from course_lib.checks.exercise import Answers, Exercise, Part
from course_lib.checks.judging import Judgement
from course_lib.kernel import Kernel
from course_lib.pipeline_model import PipelineModel
from course_lib.problems import ColumnMoments

KERNEL = "one_buffer_moments"
SHAPES = tuple(
    ColumnMoments.of_tiles(*shape, seed=11) for shape in ((1, 1), (2, 2), (5, 1), (8, 2))
)
"""Shapes for the results: one tile, two, an odd number, and more."""
STAGED = ColumnMoments.of_tiles(4, 1, seed=11)
MEASURED = ColumnMoments.of_tiles(12, 1, seed=11)
"""What the grader measures its own L and C on."""
CLOSE = 0.1
"""How far a prediction may be from what the model says for the L and C that were entered."""


def check_runs(answers: Answers) -> Judgement:
    """The kernel compiles, runs and writes something."""
    kernel = kernel_in(answers, KERNEL)
    return judging.runs(kernel, SHAPES[2]) if isinstance(kernel, Kernel) else (0.0, [kernel])


def check_results(answers: Answers) -> Judgement:
    """Results of all shapes."""
    kernel = kernel_in(answers, KERNEL)
    return judging.right(kernel, SHAPES) if isinstance(kernel, Kernel) else (0.0, [kernel])


def check_buffer(answers: Answers) -> Judgement:
    """One buffer, through which every tile goes once."""
    kernel = kernel_in(answers, KERNEL)
    if not isinstance(kernel, Kernel):
        return 0.0, [kernel]
    return judging.staged(kernel, STAGED, stages=1)


def check_edges(answers: Answers) -> Judgement:
    """Both ordering edges."""
    kernel = kernel_in(answers, KERNEL)
    return judging.ordered(kernel, SHAPES[2]) if isinstance(kernel, Kernel) else (0.0, [kernel])


def check_measured(answers: Answers) -> Judgement:
    """L, C and the iteration fit each other: L + C is nearly all of an iteration with one buffer.

    Numbers come from the learner's own device, so they are not compared with the grader's.
    """
    numbers = [number_in(answers, name) for name in ("L", "C", "iteration")]
    missing = [words for words in numbers if isinstance(words, str)]
    if missing:
        return 0.0, missing
    load, compute, iteration = (float(number) for number in numbers)
    told = _grader_measured(answers)
    share = (load + compute) / iteration
    if 0.75 <= share <= 1.05:
        return 1.0, [f"L + C is {share:.0%} of the iteration that you measured.", *told]
    why = (
        "They cannot be larger than the whole: did all three come from one trace?"
        if share > 1
        else "Barriers and the loop take a little, not so much: did all three come from one trace?"
    )
    return 0.0, [f"L + C is {share:.0%} of the iteration that you entered. {why}", *told]


def _grader_measured(answers: Answers) -> list[str]:
    kernel = kernel_in(answers, KERNEL)
    if not isinstance(kernel, Kernel) or judging.gate(kernel, SHAPES[2]):
        return []
    try:
        found = judging.timeline(kernel, MEASURED)
    except judging.CannotJudge:
        return []
    return [
        f"For comparison, your kernel on the virtual GPU: L = {found.load_cycles():,.0f}, "
        f"C = {found.compute_cycles():,.0f}, iteration = {found.mean_iteration():,.0f} virtual "
        "cycles. Yours may differ: they are of your device."
    ]


def check_prediction(answers: Answers) -> Judgement:
    """The prediction follows from the L and C that were entered."""
    numbers = [number_in(answers, name) for name in ("L", "C", "predicted_iteration")]
    missing = [words for words in numbers if isinstance(words, str)]
    if missing:
        return 0.0, missing
    load, compute, predicted = (float(number) for number in numbers)
    model = PipelineModel(load, compute, stages=2, tiles=32).iteration_cycles()
    if abs(predicted / model - 1) <= CLOSE:
        return 1.0, [f"The model says {model:,.0f} cycles for your L and C. You agree."]
    words = f"With L = {load:,.0f} and C = {compute:,.0f} you predict {predicted:,.0f} cycles."
    if abs(predicted / (load + compute) - 1) <= CLOSE:
        words += " That is L + C, the time with one buffer: what happens at the same time with two?"
    elif predicted < model:
        words += " Faster than the longer of the two: could loading, or computing, be skipped?"
    else:
        words += " Draw loading and computing as two rows: when can the next iteration start?"
    return 0.0, [words]


EXERCISE = Exercise(
    name="one_buffer",
    title="Exercise 1: One buffer",
    kernels={KERNEL: "answer-kernel"},
    literals={
        "L": "answer-measured",
        "C": "answer-measured",
        "iteration": "answer-measured",
        "predicted_iteration": "answer-prediction",
    },
    prose=("explain-gap",),
    parts=(
        Part("runs", 1, check_runs),
        Part("results", 6, check_results),
        Part("buffer", 3, check_buffer),
        Part("edges", 4, check_edges),
        Part("measured", 1, check_measured),
        Part("prediction", 2, check_prediction),
        Part(
            "explain-gap",
            3,
            rubric=(
                "1 point: says what a warp waits for after the loads (the tile's arrival, or the "
                "slowest warp's part of it). 1 point: names what stands idle meanwhile, in both "
                "halves of the iteration. 1 point: says why the waiting alone does not prove that "
                "overlap would help, and which experiment would."
            ),
        ),
    ),
)
