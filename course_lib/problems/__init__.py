"""Problems: what a kernel has to compute, with inputs by seed and an exact reference.

A problem knows no notebook and no device. It is built from a handful of numbers (its *spec*), so
that another process can make the same inputs without receiving any data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course_lib.problems.base import Problem
from course_lib.problems.circular_filter import CircularFilter
from course_lib.problems.column_moments import ColumnMoments
from course_lib.problems.gemm import Gemm
from course_lib.problems.polynomial_values import PolynomialValues
from course_lib.problems.row_checksums import RowChecksums
from course_lib.problems.tile_reduction import TileReduction

__all__ = [
    "CircularFilter",
    "ColumnMoments",
    "Gemm",
    "PolynomialValues",
    "Problem",
    "RowChecksums",
    "TileReduction",
    "from_spec",
]

_KINDS: dict[str, type[Problem]] = {
    kind.__name__: kind
    for kind in (TileReduction, Gemm, ColumnMoments, CircularFilter, RowChecksums, PolynomialValues)
}


def from_spec(spec: Mapping[str, Any]) -> Problem:
    """Rebuild a problem from ``Problem.to_spec()``; ``ValueError`` for a kind that is unknown."""
    kind = spec.get("kind")
    if kind not in _KINDS:
        raise ValueError(f"no problem is called {kind!r}; there are {', '.join(sorted(_KINDS))}")
    return _KINDS[kind](**spec["parameters"])
