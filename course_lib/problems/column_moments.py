"""Column moments: every block walks down a strip of columns, panel by panel."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.problems.base import Arrays, LaunchShape
from course_lib.problems.tiled import TiledProblem

ROWS, COLUMNS, ORDERS = 32, 128, 4
"""Rows and columns of one tile, and how many moments each column has."""


class ColumnMoments(TiledProblem):
    """The moments of order 0 to 3 of each column about its row number, modulo 2³².

    ``x`` has ``32 * tiles`` rows and ``128 * blocks`` columns, row-major. The kernel is ``(const
    unsigned* x, unsigned* moments, int tiles, int columns)``. Tile ``t`` of block ``b`` is rows
    ``32*t …`` of columns ``128*b …``; ``moments[k*columns + c]`` is zero before the launch and must
    become the sum over all rows ``r`` of ``r**k * x[r][c]``.
    """

    name = "column moments"
    tile_elements = ROWS * COLUMNS

    @property
    def columns(self) -> int:
        """Columns of the array."""
        return COLUMNS * self.block_count

    def outputs(self, xp: Any = np) -> Arrays:
        return {"moments": xp.zeros(ORDERS * self.columns, dtype=np.uint32)}

    def arguments(self, kernel: LaunchShape | None, inputs: Arrays, outputs: Arrays) -> list[Any]:
        return [inputs["x"], outputs["moments"], np.int32(self.tiles), np.int32(self.columns)]

    def reference(self, inputs: Arrays) -> Arrays:
        # The same words for NumPy and CuPy; sums modulo 2⁶⁴ are right modulo 2³².
        x = inputs["x"].reshape(-1, self.columns).astype(np.uint64)
        row = (x[:, :1] * 0 + 1).cumsum(axis=0, dtype=np.uint64) - 1
        moments = inputs["x"][: ORDERS * self.columns].copy()
        for order in range(ORDERS):
            sums = x.sum(axis=0, dtype=np.uint64)
            moments[order * self.columns : (order + 1) * self.columns] = sums % np.uint64(2**32)
            x *= row
        return {"moments": moments}

    def place_of(
        self, output: str, index: int, kernel: LaunchShape | None = None
    ) -> tuple[int | None, int | None]:
        return index % self.columns // COLUMNS, None

    def _words(self, output: str, index: int, got: int, right: int) -> str:
        order, column = divmod(index, self.columns)
        text = (
            f"moment {order} of column {column} (moments[{index}]) is {got}, it should be {right}"
        )
        return text + ("; it still holds the zero from before the launch" if got == 0 else "")

    def bytes_moved(self) -> int:
        return 4 * (self.words + ORDERS * self.columns)

    def tile_of(self, array_name: str, byte_offset: int, block: int) -> int | None:
        if array_name != "x":
            return None
        return byte_offset // (4 * self.columns) // ROWS
