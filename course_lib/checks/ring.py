"""Exercise 4: one kernel for 1 to 8 stages, and how many of them to choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from course_lib.checks import judging
from course_lib.checks.answers import Unusable, kernel_in, number_in
from course_lib.checks.exercise import Answers, Exercise, Part
from course_lib.checks.judging import Judgement
from course_lib.checks.ring_situations import judge_choice
from course_lib.diagnostics import CompileError
from course_lib.kernel import Kernel
from course_lib.problems import PolynomialValues

KERNEL = "ring_polynomials"
RINGS = (1, 2, 3, 5, 8)
"""The numbers of stages that are looked at here; the hidden checks take the others up to 8."""
IN_FLIGHT = (2, 3, 8)
"""Rings whose tiles in flight are counted."""
STAGED = 3
SWEPT = range(1, 9)
SEED = 44
CLOSE = 0.03
"""Times that lie this close together are not told apart, as in lesson 06."""

Rings = dict[int, Kernel | str]
"""Number of stages → the kernel with so many, or why there is none."""


def short_and_long(stages: int) -> list[int]:
    """Tile counts that break a ring: fewer than its stages, as many, and more than two turns."""
    return sorted({1, 2, stages - 1, stages, stages + 1, 2 * stages + 1} - {0})


def rings(answers: Answers, stages: Iterable[int] = RINGS) -> Rings | str:
    """The learner's kernel with each number of stages; words where there is no kernel at all."""
    kernel = kernel_in(answers, KERNEL)
    if isinstance(kernel, str):
        return kernel
    return {s: _variant(kernel, s) for s in stages}


def _variant(kernel: Kernel, stages: int) -> Kernel | str:
    try:
        return kernel.variant(STAGES=stages)
    except CompileError as problem:
        return f"With S = {stages} it does not compile. {problem}"


def check_runs(answers: Answers) -> Judgement:
    """The kernel, as it is, compiles, runs and writes something."""
    kernel = kernel_in(answers, KERNEL)
    if not isinstance(kernel, Kernel):
        return 0.0, [kernel]
    return judging.runs(kernel, PolynomialValues.of_tiles(5, 1, SEED))


def check_results(answers: Answers) -> Judgement:
    """Results with every S, for K below, at and above it."""
    found = rings(answers)
    if isinstance(found, str):
        return 0.0, [found]
    return results(found, {s: short_and_long(s) for s in found}, SEED)


def results(found: Rings, counts: Mapping[int, Sequence[int]], seed: int) -> Judgement:
    """The share of right ones among all pairs of S and a number of tiles."""
    good, every, right, messages = 0, 0, [], []
    for stages, kernel in found.items():
        shapes = [PolynomialValues.of_tiles(k, 1 + (k == 2), seed) for k in counts[stages]]
        every += len(shapes)
        if isinstance(kernel, str):
            messages.append(kernel)
            continue
        share, words = judging.right(kernel, shapes)
        good += round(share * len(shapes))
        if share == 1:
            right.append(stages)
        else:
            messages += [f"S = {stages}: {text}" for text in words]
    if good == every:
        return 1.0, [
            f"Right with S = {_listed(right)}, each for tiles fewer than stages, as many, and more."
        ]
    told = [f"Right with S = {_listed(right)}."] if right else []
    return good / every, [*told, *messages[:3]]


def check_edges(answers: Answers) -> Judgement:
    """Every ordering edge, with every S."""
    found = rings(answers)
    return (0.0, [found]) if isinstance(found, str) else edges(found, SEED)


def edges(found: Rings, seed: int) -> Judgement:
    """The mean over S of what ``judging.ordered`` gives, with two tiles more than stages."""
    shares, ordered, messages = [], [], []
    for stages, kernel in found.items():
        if isinstance(kernel, str):
            shares.append(0.0)
            messages.append(kernel)
            continue
        share, words = judging.ordered(kernel, PolynomialValues.of_tiles(stages + 2, 1, seed))
        shares.append(share)
        if share == 1:
            ordered.append(stages)
        else:
            messages += [f"S = {stages}: {text}" for text in words]
    mean = sum(shares) / len(shares)
    if mean == 1:
        return 1.0, [f"No hazard with S = {_listed(ordered)}: every warp order, every landing."]
    told = [f"No hazard with S = {_listed(ordered)}."] if ordered else []
    return mean, [*told, *messages[:2]]


def check_stages(answers: Answers) -> Judgement:
    """Shared memory grows with S and holds S tiles; every tile goes through it once."""
    found = rings(answers)
    if isinstance(found, str):
        return 0.0, [found]
    kernel = found[STAGED]
    if isinstance(kernel, str):
        return 0.0, [kernel]
    share, messages = judging.staged(kernel, PolynomialValues.of_tiles(9, 1, SEED), stages=STAGED)
    tile = PolynomialValues.of_tiles(1).tile_bytes()
    for stages, ring in found.items():
        used = judging.shared_bytes(ring) if isinstance(ring, Kernel) else 0
        if share == 1 and used >= (stages + 1) * tile:
            return 2 / 3, [
                f"With S = {stages} it takes {used:,} bytes of shared memory, room for "
                f"{used // tile} tiles. A ring that always takes the room of the largest leaves no "
                "choice between stages and blocks: let the array depend on STAGES."
            ]
    return share, messages


def check_flight(answers: Answers) -> Judgement:
    """S - 1 tiles are really on their way while one is consumed."""
    found = rings(answers, IN_FLIGHT)
    return (0.0, [found]) if isinstance(found, str) else flight(found, SEED)


def flight(found: Rings, seed: int) -> Judgement:
    """The share of those S with S - 1 tiles in flight, where K has three turns of the ring."""
    good, messages = [], []
    for stages, kernel in found.items():
        if isinstance(kernel, str):
            messages.append(kernel)
            continue
        problem = PolynomialValues.of_tiles(3 * stages, 1, seed)
        why_not = judging.gate(kernel, problem)
        try:
            ahead = 0 if why_not else judging.in_flight(kernel, problem, stages)
        except judging.CannotJudge as refused:
            why_not = str(refused)
        if why_not:
            messages.append(f"S = {stages}: {why_not}")
        elif ahead == stages - 1:
            good.append(stages)
        else:
            messages.append(_flight_words(stages, ahead))
    if not messages:
        return 1.0, [f"S - 1 tiles in flight with S = {_listed(good)}, while one is consumed."]
    told = [f"S - 1 tiles in flight with S = {_listed(good)}."] if good else []
    return len(good) / len(found), [*told, *messages[:2]]


def _flight_words(stages: int, ahead: int) -> str:
    words = (
        f"S = {stages}: {ahead} tile{'s' * (ahead != 1)} in flight while one is consumed, where a "
        f"ring of {stages} has room for {stages - 1}. "
    )
    if ahead >= stages:
        return words + "What decides how many stages there are, if not STAGES?"
    return words + (
        "Either a load begins later than it could, or your wait waits for tiles that nobody needs "
        "yet: count the groups that were committed after the one you need. Look at "
        f"trace({KERNEL}.variant(STAGES={stages}), problem).plot()."
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def check_sweep(answers: Answers) -> Judgement:
    """The S that was chosen is one that the learner's own sweep cannot tell from the fastest."""
    times = times_in(answers, "times")
    best = number_in(answers, "best_S")
    missing = [words for words in (times, best) if isinstance(words, str)]
    if missing:
        return 0.0, missing
    assert isinstance(times, dict) and isinstance(best, float)
    least = min(times.values())
    fastest = [s for s, time in times.items() if time <= (1 + CLOSE) * least]
    if best not in fastest:
        return 0.0, [
            f"By the times that you entered, S = {best:g} takes "
            f"{times.get(int(best), 0) / least:.2f} times as long as the fastest."
            if best in times
            else f"best_S is {best:g}; the sweep has S = 1 to 8."
        ]
    words = f"Within {CLOSE:.0%} of the fastest by your times: S = {_listed(fastest)}."
    if best > fastest[0]:
        words += f" You chose {best:g}; what does S = {fastest[0]} leave room for?"
    return 1.0, [words]


def times_in(answers: Answers, name: str) -> dict[int, float] | str:
    """The dictionary of a time for each S, or what is wrong with it."""
    answer = answers.get(name)
    if answer is None:
        return f"`{name}` has no value yet."
    if isinstance(answer, Unusable):
        return answer.reason
    if not isinstance(answer, dict) or sorted(map(str, answer)) != [str(s) for s in SWEPT]:
        return f"`{name}` must be a dictionary with a time for each S from 1 to 8."
    numbers = [value for value in answer.values() if isinstance(value, (int, float))]
    if len(numbers) < len(answer) or not all(0 < value < 1e12 for value in numbers):
        return f"`{name}` must have a positive number for each S."
    if len(set(numbers)) < 3:
        return f"`{name}` has the same time for nearly every S: no sweep finds that."
    return {int(s): float(answer[s]) for s in sorted(answer)}


EXERCISE = Exercise(
    name="ring",
    title="Exercise 4: A ring for any number of stages",
    kernels={KERNEL: "answer-kernel"},
    literals={
        "S_far_memory": "answer-prediction",
        "S_full_sm": "answer-prediction",
        "S_short_K": "answer-prediction",
        "times": "answer-sweep",
        "best_S": "answer-sweep",
    },
    prose=("explain-residency",),
    parts=(
        Part("runs", 1, check_runs),
        Part("results", 4, check_results),
        Part("edges", 3, check_edges),
        Part("stages", 2, check_stages),
        Part("flight", 3, check_flight),
        Part("prediction", 3, judge_choice),
        Part("sweep", 1, check_sweep),
        Part(
            "explain-residency",
            3,
            rubric=(
                "1 point: gives shared memory per block and resident blocks for at least two S, "
                "and names the resource that sets the limit for each. 1 point: says for both "
                "problems what hides the latency (further stages, or other blocks), with the "
                "measured time and waiting of at least two rings. 1 point: chooses one S, with "
                "what would change the choice (other K, other GPU, larger tiles)."
            ),
        ),
    ),
)
