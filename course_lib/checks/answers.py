"""Answers out of the text of cells, for a grader: no line of a learner is run as Python."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.checks.exercise import Answers, Exercise
from course_lib.diagnostics import CompileError
from course_lib.kernel import Kernel


@dataclass(frozen=True)
class Unusable:
    """An answer that is there and cannot be used; the text says why."""

    reason: str


def from_cells(exercise: Exercise, cells: Mapping[str, str]) -> dict[str, Any]:
    """The answers in ``cells`` (grade id → text).

    Kernels are compiled from their ``%%cuda`` cells, literals read by ``ast.literal_eval``. What
    cannot be used becomes ``Unusable``; what is not there is left out.
    """
    found: dict[str, Any] = {}
    for name, grade_id in exercise.kernels.items():
        if grade_id in cells:
            found[name] = kernel_of(cells[grade_id], name)
    for name, grade_id in exercise.literals.items():
        value = literal_of(cells.get(grade_id, ""), name)
        if value is not None:
            found[name] = value
    for grade_id in exercise.prose:
        if grade_id in cells:
            found[grade_id] = cells[grade_id]
    return found


def kernel_of(text: str, name: str) -> Kernel | Unusable:
    """The kernel of a ``%%cuda`` cell, which must be called ``name``."""
    from course_lib.cuda_magic import kernel_from_text

    try:
        kernel = kernel_from_text(text.strip("\n"))
    except (CompileError, ValueError) as problem:
        return Unusable(str(problem))
    if kernel.name != name:
        return Unusable(f"the cell's kernel is called `{kernel.name}`; it must be `{name}`")
    return kernel


def literal_of(text: str, name: str) -> Any:
    """The last literal that ``name = …`` gives in the text; None where there is none."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        return Unusable(f"the cell of `{name}` cannot be read: {problem}")
    value: Any = None
    for statement in statements:
        if not isinstance(statement, ast.Assign):
            continue
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if name in names:
            try:
                value = ast.literal_eval(statement.value)
            except (ValueError, TypeError, RecursionError, MemoryError):
                value = Unusable(f"`{name}` must be a plain number, such as `{name} = 1200`")
    return value


def kernel_in(answers: Answers, name: str) -> Kernel | str:
    """The kernel called ``name``, or why there is none."""
    answer = answers.get(name)
    if isinstance(answer, Kernel):
        return answer
    if isinstance(answer, Unusable):
        return f"`{name}` does not compile. {answer.reason}"
    return f"There is no kernel `{name}`: run its cell first, and repair what the compiler says."


def number_in(answers: Answers, name: str) -> float | str:
    """The positive number called ``name``, or what is wrong with it."""
    answer = answers.get(name)
    if answer is None:
        return f"`{name}` has no value yet."
    if isinstance(answer, Unusable):
        return answer.reason
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        return f"`{name}` must be a plain number, not {type(answer).__name__}."
    if not 0 < answer < 1e12:
        return f"`{name}` is {answer}; cycles are a positive number."
    return float(answer)


def count_in(answers: Answers, name: str) -> int | str:
    """The whole number called ``name``, 0 or more, or what is wrong with it."""
    answer = answers.get(name)
    if answer is None:
        return f"`{name}` has no value yet."
    if isinstance(answer, Unusable):
        return answer.reason
    if isinstance(answer, bool) or not isinstance(answer, int):
        return f"`{name}` must be a whole number, not {type(answer).__name__}."
    if not 0 <= answer < 10**12:
        return f"`{name}` is {answer}; a count is 0 or more."
    return answer
