"""Exercise 3: two paths that differ in the wait for reuse, and the evidence of what it prevents."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from course_lib.checks import judging
from course_lib.checks.answers import count_in, kernel_in
from course_lib.checks.exercise import Answers, Exercise, Part
from course_lib.checks.judging import Judgement
from course_lib.diagnostics import CompileError
from course_lib.kernel import Kernel
from course_lib.problems import Problem, RowChecksums

if TYPE_CHECKING:
    from course_lib.hazards import HazardReport

KERNEL, DEFINE = "row_checksums", "REUSE"
SHAPES = tuple(
    RowChecksums.of_tiles(*shape, seed=33) for shape in ((1, 1), (2, 1), (3, 2), (5, 1), (8, 2))
)
"""Shapes for the results: fewer tiles than stages, as many, odd numbers, and more."""
RACED = SHAPES[3]
"""Where edges are looked for: every stage is filled again at least once."""
TRACED = RowChecksums.of_tiles(8, 1, seed=33)
MOST_STAGES = 3
LEAST_ITERATIONS = 1000
GRADERS_ITERATIONS = 16

COUNTS = ("iterations", "failed_with_reuse", "failed_delayed", "failed_undelayed")
PICTURE = ("read_tile", "loaded_tile", "stage")
EDGE = {"before": "E", "after": "G"}
"""The right letters: every warp has read the tile, before the next copy into its stage begins."""


def check_runs(answers: Answers) -> Judgement:
    """The kernel compiles, runs and writes something."""
    kernel = kernel_in(answers, KERNEL)
    return judging.runs(kernel, RACED) if isinstance(kernel, Kernel) else (0.0, [kernel])


def check_results(answers: Answers) -> Judgement:
    """Results of all shapes."""
    kernel = kernel_in(answers, KERNEL)
    return judging.right(kernel, SHAPES) if isinstance(kernel, Kernel) else (0.0, [kernel])


def check_edges(answers: Answers) -> Judgement:
    """Every ordering edge of the right path."""
    kernel = kernel_in(answers, KERNEL)
    return judging.ordered(kernel, RACED) if isinstance(kernel, Kernel) else (0.0, [kernel])


def check_stages(answers: Answers) -> Judgement:
    """A ring of two or three stages, through which every tile goes once."""
    kernel = kernel_in(answers, KERNEL)
    if not isinstance(kernel, Kernel):
        return 0.0, [kernel]
    share, messages = judging.staged(kernel, TRACED, MOST_STAGES)
    if share and judging.timeline(kernel, TRACED).stages < 2:
        return 0.0, ["All tiles go through one buffer: a ring has two stages at least."]
    return share, messages


# --- the experimental version ---------------------------------------------------------------------


@functools.lru_cache(16)
def without_reuse(kernel: Kernel) -> Kernel | str:
    """The experimental version, or why there is none."""
    try:
        return kernel.variant(**{DEFINE: 0})
    except CompileError as problem:
        return f"There is no version with {DEFINE}=0. {problem}"


def check_experiment(answers: Answers) -> Judgement:
    """Without its wait for reuse the kernel lacks this edge, and is the same in all else."""
    kernel = kernel_in(answers, KERNEL)
    return experiment(kernel, RACED) if isinstance(kernel, Kernel) else (0.0, [kernel])


def experiment(kernel: Kernel, problem: Problem) -> Judgement:
    """The same question for any shape: which edges are missing with ``REUSE=0``, and what else?

    A quarter of the points where more than the reuse edge is missing, half where the two versions
    differ in more than waiting.
    """
    why_not = judging.gate(kernel, problem)
    if why_not:
        return 0.0, [why_not]
    changed = without_reuse(kernel)
    if isinstance(changed, str):
        return 0.0, [changed]
    try:
        if not judging.hazard_report(kernel, problem).ok:
            words = f"With {DEFINE}=1 an edge is missing already: see the check of the edges."
            return 0.0, [words, "Only a right version shows what taking one wait away does."]
        share, messages = _missing(judging.hazard_report(changed, problem))
        if share == 1:
            parted = judging.parting(kernel, changed, problem)
            if parted:
                share = 0.5
                messages = [
                    f"{DEFINE} must decide about the wait alone, but where warp {parted.warp} "
                    f"{parted.one} with {DEFINE}=1, it {parted.other} with {DEFINE}=0."
                ]
    except judging.CannotJudge as refused:
        return 0.0, [f"With {DEFINE}=0: {refused}"]
    return share, messages


def _missing(report: HazardReport) -> Judgement:
    """What the report on the experimental version says, with its share of the points."""
    if report.ok:
        return 0.0, [
            f"With {DEFINE}=0 nothing is missing: all reads still come before the next load into "
            f"their stage. Is the wait that you took away the one for reuse, and is {DEFINE}=0 "
            "really without it? Or does another barrier serve both edges?"
        ]
    broken = [*report.memory_errors, *filter(None, [report.deadlock]), *report.errors]
    if broken:
        words = (
            f"With {DEFINE}=0 more goes wrong than the order of reads and loads. Is only the wait "
            "itself gone, and do all warps both load and read?"
        )
        return 0.0, [words, str(broken[0])]
    edges = {hazard.edge for hazard in report.hazards}
    if edges == {"reuse"}:
        found = report.hazards[0]
        return 1.0, [
            f"With {DEFINE}=0 exactly the reuse edge is missing: {found.second.where} may bring "
            f"the next tile while {found.first.where} still reads. All else is the same."
        ]
    other = next(hazard for hazard in report.hazards if hazard.edge != "reuse")
    words = f"With {DEFINE}=0 not only the reuse edge is missing: take away that wait alone."
    return 0.25 * ("reuse" in edges), [words, str(other)]


# --- the evidence ---------------------------------------------------------------------------------


def check_counts(answers: Answers) -> Judgement:
    """Failure counts that this kernel can have: half for each version.

    The learner's device is not known, so the grader's own run says only what cannot be.
    """
    numbers = [count_in(answers, name) for name in COUNTS]
    missing = [words for words in numbers if isinstance(words, str)]
    if missing:
        return 0.0, missing
    iterations, with_reuse, delayed, undelayed = (int(number) for number in numbers)
    if iterations < LEAST_ITERATIONS:
        return 0.0, [f"{iterations} iterations are too few: {LEAST_ITERATIONS:,} at least."]
    half = (iterations + 1) // 2
    if max(delayed, undelayed) > half or with_reuse > iterations:
        words = f"Of {iterations:,} iterations, {half:,} have a delayed warp and the rest none"
        return 0.0, [f"{words}: there cannot be more failures than that."]
    kernel = kernel_in(answers, KERNEL)
    if not isinstance(kernel, Kernel):
        return 0.0, [kernel]
    if experiment(kernel, RACED)[0] < 1:
        return 0.0, ["These points need both versions first: see the check of the experiment."]
    share, messages = 1.0, []
    if with_reuse:
        share -= 0.5
        messages.append(
            f"{with_reuse:,} failures with the wait? That version has every edge: was it the one "
            "that you ran?"
        )
    expected, words = _graders_counts(kernel)
    if delayed < expected * half / 2:
        share -= 0.5
        messages.append(
            f"{delayed:,} of {half:,} iterations with a late warp failed without the wait? Such a "
            "warp reads for long after the others: nearly all of them should. Is the order "
            "`delayed`, `undelayed`?"
        )
    return share, [*messages, words] if messages else ["Counts that this kernel can have.", words]


@functools.lru_cache(16)
def _graders_counts(kernel: Kernel) -> tuple[float, str]:
    """(share of delayed iterations in which the experimental version fails, all in words)"""
    from course_lib.stressing import stress

    changed = without_reuse(kernel)
    assert isinstance(changed, Kernel)
    right, wrong = (
        stress(version, RACED, GRADERS_ITERATIONS, device="virtual")
        for version in (kernel, changed)
    )
    halves = wrong.delayed_iterations, wrong.iterations - wrong.delayed_iterations
    words = (
        f"For comparison, on the virtual GPU: with the wait {right.failures.in_all} of "
        f"{right.iterations} failed; without it {wrong.failures.delayed} of {halves[0]} with a "
        f"delayed warp, {wrong.failures.undelayed} of {halves[1]} without."
    )
    return wrong.failures.delayed / max(halves[0], 1), words


def check_picture(answers: Answers) -> Judgement:
    """An overwritten stage as this kernel's ring can have it."""
    numbers = [count_in(answers, name) for name in PICTURE]
    missing = [words for words in numbers if isinstance(words, str)]
    if missing:
        return 0.0, missing
    read, loaded, stage = (int(number) for number in numbers)
    kernel = kernel_in(answers, KERNEL)
    if not isinstance(kernel, Kernel):
        return 0.0, [kernel]
    why_not = judging.gate(kernel, RACED)
    if why_not:
        return 0.0, [why_not]
    try:
        found = judging.timeline(kernel, TRACED)
    except judging.CannotJudge as refused:
        return 0.0, [str(refused)]
    stages = found.stages
    held = {row.tile % stages: row.stage for row in found.rows("load")}
    if stages < 2:
        return 0.0, ["There is no ring yet in which a stage could be overwritten."]
    if loaded != read + stages:
        return 0.0, [
            f"Tile {loaded} over tile {read}? Your ring has {stages} stages: which tile comes to "
            "the stage of a tile next?"
        ]
    if held.get(read % stages, stage) != stage:
        return 0.0, [f"Tile {read} is not in stage {stage}: see the left of the picture."]
    return 1.0, [f"Yes: in a ring of {stages}, the next tile in the stage of {read} is {loaded}."]


def check_edge(answers: Answers) -> Judgement:
    """The two events that the removed edge puts in order: half for each."""
    letters = {name: answers.get(name) for name in EDGE}
    for name, letter in letters.items():
        if letter is None:
            return 0.0, [f"`{name}` has no value yet."]
        if letter not in tuple("ABCDEFGH"):
            return 0.0, [f'`{name}` must be one letter from A to H, as in `{name} = "A"`.']
    share = sum(letters[name] == right for name, right in EDGE.items()) / len(EDGE)
    if share == 1:
        return share, ["Exactly this order is gone: nothing else keeps the two apart."]
    before, after = letters["before"], letters["after"]
    if (before, after) == ("B", "C"):
        return share, ["That is the ready edge. The experimental version still has it."]
    if (before, after) == (EDGE["after"], EDGE["before"]):
        return 0.5, ["The right two events, the wrong way round: which of them has to wait?"]
    words = {
        "C": "Having begun to read is not enough: what could still be read afterwards?",
        "D": "One warp keeps its own reads and loads in order by itself. Whom does it not know of?",
        "B": "That a tile has landed says nothing about who has read it.",
    }.get(str(before), "") * (before != EDGE["before"])
    if before == EDGE["before"]:
        words = {
            "F": "Another stage may be filled at any time: that is what stages are for.",
            "H": "A copy writes from when it begins: when it has landed it is too late.",
        }.get(str(after), "What must not begin before that?")
    return share, [words or "Which event does the wait wait for, and which comes behind it?"]


RUBRIC = (
    "1 point, whose reads: before a stage is filled again, all consumers of the tile in it must be "
    "done reading it, not only the warp that loads. 1 point, which edge: from consuming to "
    "overwriting (read before reuse); it is another one than the ready edge, which leads from the "
    "producer to the consumers and lets them see new data. 1 point, what provides it: in this "
    "kernel, the wait that REUSE removes; where not all warps meet anyway, something that belongs "
    "to the stage (an mbarrier or its count of arrivals or bytes, acquire and release) that keeps "
    "the producer away while any consumer has the stage. 1 point, how much it takes: the reads "
    "complete, and known to whoever loads, at the scope of all who take part; that reads or the "
    "next copy have been issued orders nothing."
)

EXERCISE = Exercise(
    name="overwrite_hazard",
    title="Exercise 3: An overwrite hazard",
    kernels={KERNEL: "answer-kernel"},
    literals={
        **dict.fromkeys(COUNTS, "answer-counts"),
        **dict.fromkeys(PICTURE, "answer-picture"),
        **dict.fromkeys(EDGE, "answer-edge"),
    },
    prose=("explain-edge",),
    parts=(
        Part("runs", 1, check_runs),
        Part("results", 3, check_results),
        Part("edges", 2, check_edges),
        Part("stages", 2, check_stages),
        Part("experiment", 4, check_experiment),
        Part("counts", 2, check_counts),
        Part("picture", 1, check_picture),
        Part("edge", 1, check_edge),
        Part("explain-edge", 4, rubric=RUBRIC),
    ),
)
