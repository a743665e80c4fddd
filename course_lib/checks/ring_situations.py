"""The three situations of exercise 4: which S is best follows from a model and residency alone."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.checks.answers import number_in
from course_lib.checks.exercise import Answers
from course_lib.checks.judging import Judgement
from course_lib.explore.situation import Situation

CLOSE = 0.03
"""Of all S whose predicted times are this close to the best, the smallest is asked for."""
MOST = 8


@dataclass(frozen=True)
class Case:
    """A situation, what one has to see in it, and in which words to say what was overlooked."""

    situation: Situation
    too_few: str
    too_many: str

    def times(self) -> dict[int, float]:
        """Predicted cycles for each S that can be launched."""
        over = self.situation.over_stages(MOST)
        return {s: time for s, time in over.items() if time is not None}

    def best(self) -> int:
        """The fewest stages whose time is close to the least."""
        times = self.times()
        return min(s for s, time in times.items() if time <= (1 + CLOSE) * min(times.values()))

    def judge(self, name: str, stages: float) -> Judgement:
        """1 for the smallest that is as fast as any, ½ for a larger one that is as fast."""
        times, best = self.times(), self.best()
        if stages not in times:
            return 0.0, [f"`{name}` is {stages:g}; the choice is from 1 to {MOST}."]
        slower = times[int(stages)] / min(times.values())
        if stages == best:
            return 1.0, [f"`{name}`: the model agrees."]
        if slower <= 1 + CLOSE or (stages > best and slower <= 1.05):
            return 0.5, [
                f"`{name}`: as fast in the model, or nearly, but more stages than needed. "
                + self.too_many
            ]
        words = self.too_few if stages < best else self.too_many
        return 0.0, [
            f"`{name}`: with S = {stages:g} the model takes {slower:.2f} times the least. {words}"
        ]


CASES = {
    "S_far_memory": Case(
        Situation(
            L=1500, C=350, tiles=64, tile_bytes=8192, threads=128, blocks=1, issue="after_reuse"
        ),
        "A load has to be covered by the computing of the tiles before it: by how many of them?",
        "How many computations fit into one L? A stage beyond that has nothing to cover.",
    ),
    "S_full_sm": Case(
        Situation(
            L=2400,
            C=240,
            tiles=32,
            tile_bytes=8192,
            threads=384,
            blocks=4,
            issue="after_reuse",
            arch="sm_86",
        ),
        "How many blocks do the threads allow? Up to which S does shared memory allow as many?",
        "How many blocks fit with so many stages? Those that do not fit have to come afterwards.",
    ),
    "S_short_K": Case(
        Situation(
            L=2000, C=250, tiles=3, tile_bytes=4096, threads=128, blocks=1, issue="after_reuse"
        ),
        "Could one more of the tiles be on its way from the start?",
        "How many tiles are there to put into the stages?",
    ),
}
"""Name of the literal → the situation. Each has another limit: latency, residency, K."""


def judge_choice(answers: Answers) -> Judgement:
    """A third of the points for each situation."""
    shares, messages = [], []
    for name, case in CASES.items():
        stages = number_in(answers, name)
        share, words = (0.0, [stages]) if isinstance(stages, str) else case.judge(name, stages)
        shares.append(share)
        messages += words
    return sum(shares) / len(shares), messages
