"""What exercises are judged by: one module per exercise, the same for notebook and grader.

A check takes *answers*: a mapping from the name of an answer to a ``Kernel``, a literal or prose.
In a notebook that is ``globals()``; a grader makes it from the text of the cells
(``answers.from_cells``), where nothing that a learner wrote is ever run as Python.
"""

from __future__ import annotations

import importlib

from course_lib.checks.exercise import Exercise

NAMES = ("one_buffer", "two_buffers", "overwrite_hazard", "ring")
"""Every exercise, in order; each is a module of this package with an ``EXERCISE``."""


def exercise(name: str) -> Exercise:
    """The exercise of that name; ``ValueError`` where there is none."""
    if name not in NAMES:
        raise ValueError(f"there is no exercise {name!r}; there are {', '.join(NAMES)}")
    found = importlib.import_module(f"{__name__}.{name}").EXERCISE
    assert isinstance(found, Exercise)
    return found
