"""What `nbgrader generate_assignment` does to a master: nbgrader's steps, one of them our own.

A master marks what students have to write: lines between `BEGIN SOLUTION` and `END SOLUTION`, in a
comment of the cell's language. In a `%%cuda` cell they become one comment, in a Python cell every
`name = value` becomes `name = None`, and a written answer becomes an invitation to write. So what
students get compiles and runs, and a solution only fills marked places.
"""

from __future__ import annotations

import re
from typing import Any

from nbgrader import utils
from nbgrader.converters.generate_assignment import GenerateAssignment
from nbgrader.preprocessors import ClearSolutions, InstantiateTests
from nbgrader.preprocessors.base import NbGraderPreprocessor

CUDA_STUB = "// Your code here."
TEXT_STUB = "*Your answer here.*"
BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"
_ASSIGNMENT = re.compile(r"^(\s*\w+) = ")


class MasterError(ValueError):
    """A master notebook that students could not get like this; the text says where and why."""


class ClearMarked(ClearSolutions):
    """`ClearSolutions` that knows CUDA text and keeps the names of literals."""

    def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> tuple[Any, Any]:
        if utils.is_solution(cell):
            cell.source = cleared(cell.source, cell.cell_type)
        elif BEGIN in cell.source or END in cell.source:
            raise MasterError(f"cell {cell_index + 1} has a solution and is no solution cell")
        return cell, resources


def cleared(source: str, cell_type: str) -> str:
    """The text that students get for a solution cell. Raises MasterError for unpaired marks."""
    if cell_type == "markdown":
        return TEXT_STUB
    cuda = source.startswith("%%cuda")
    kept: list[str] = []
    inside = marked = False
    for line in source.split("\n"):
        if BEGIN in line or END in line:
            if (BEGIN in line) == inside:
                raise MasterError(f"marks do not pair up: {line.strip()!r}")
            inside, marked = not inside, True
            if inside and cuda:
                kept.append(line[: len(line) - len(line.lstrip())] + CUDA_STUB)
        elif not inside:
            kept.append(line)
        elif not cuda and (found := _ASSIGNMENT.match(line)):
            kept.append(f"{found[1]} = None")
    if inside or not marked:
        raise MasterError(f"a solution cell lacks {END if inside else BEGIN}: {source[:60]!r}")
    return "\n".join(kept)


def release_preprocessors() -> list[type[NbGraderPreprocessor]]:
    """nbgrader's own steps of a release, with `ClearMarked` in the place of `ClearSolutions`.

    Without `InstantiateTests`, which would start a kernel: the tests are in `course_lib.checks`.
    """
    steps = GenerateAssignment.preprocessors.default_args[0]
    kept = [step for step in steps if step is not InstantiateTests]
    return [ClearMarked if step is ClearSolutions else step for step in kept]
