"""What an exercise consists of: its answers, and parts that each give points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

Answers = Mapping[str, Any]
"""Name of an answer → its Kernel, literal or prose. What is missing has not been answered."""


@dataclass(frozen=True)
class Score:
    """Points for one part, and what to tell the learner about them."""

    points: float
    possible: float
    messages: tuple[str, ...] = ()

    def show(self) -> float:
        """Print the words and give the points: the last line of a graded cell."""
        print(self)
        return float(self.points)

    def lower(self, other: Score) -> Score:
        """The one of two scores of the same part that has fewer points (this one where equal)."""
        return other if other.points < self.points else self

    def __str__(self) -> str:
        lines = [f"{_number(self.points)} of {_number(self.possible)} points"]
        return "\n".join([*lines, *(f"- {words}" for words in self.messages)])


def _number(points: float) -> str:
    return f"{points:.2f}".rstrip("0").rstrip(".")


Check = Callable[[Answers], tuple[float, list[str]]]
"""From answers to a share of the points, 0 to 1, and messages."""


@dataclass(frozen=True)
class Part:
    """A graded cell. ``check`` is None where a person reads the answer by ``rubric``.

    ``name`` is the cell's grade id; the hidden checks of a part give a second score for it, and the
    lower one counts.
    """

    name: str
    points: float
    check: Check | None = None
    rubric: str = ""

    def score(self, answers: Answers, check: Check | None = None) -> Score:
        """Points by this part's check, or by another one that stands for it."""
        judge = check or self.check
        if judge is None:
            raise ValueError(f"{self.name} is marked by a person")
        share, messages = judge(answers)
        points = round(self.points * min(max(share, 0.0), 1.0), 2)
        return Score(points, self.points, tuple(messages))


@dataclass(frozen=True)
class Exercise:
    """One exercise. Cells of kernels and literals are named ``answer-…`` after their first name.

    Args:
        name: of the notebook, its folder, and the module of the checks.
        kernels: name of each kernel → grade id of its ``%%cuda`` cell.
        literals: name of each literal → grade id of the cell that assigns it.
        prose: grade ids of cells with written answers.
        parts: what gives points, in the order of the notebook.
        bonus: extra credit, never part of ``points``: no graded cell, and nothing is lost without.
    """

    name: str
    title: str
    kernels: Mapping[str, str]
    literals: Mapping[str, str]
    prose: tuple[str, ...]
    parts: tuple[Part, ...]
    bonus: Part | None = None

    def part(self, name: str) -> Part:
        """The part of that name; ``ValueError`` where there is none."""
        for part in self.parts:
            if part.name == name:
                return part
        raise ValueError(f"{self.name} has no part {name!r}; it has {[p.name for p in self.parts]}")

    def grade(self, name: str, answers: Answers) -> float:
        """Print what a part has to say and give its points: for a graded cell."""
        return self.part(name).score(answers).show()

    def try_bonus(self, answers: Answers) -> float:
        """Print what the bonus has to say and give its points; ``ValueError`` without a bonus."""
        if self.bonus is None:
            raise ValueError(f"{self.name} has no bonus")
        return self.bonus.score(answers).show()

    def scores(
        self, answers: Answers, hidden: Mapping[str, Check] | None = None
    ) -> dict[str, Score]:
        """The score of every part that no person marks; hidden checks can only lower it."""
        found = {}
        for part in self.parts:
            if part.check is None:
                continue
            score = part.score(answers)
            if hidden and part.name in hidden and score.points:
                lower = part.score(answers, hidden[part.name])
                score = score.lower(replace(lower, possible=part.points))
            found[part.name] = score
        return found

    @property
    def points(self) -> float:
        """All points, those given by hand included."""
        return sum(part.points for part in self.parts)
