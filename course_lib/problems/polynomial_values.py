"""Polynomial values: every block evaluates its polynomials, coefficient after coefficient."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.problems.base import Arrays, LaunchShape
from course_lib.problems.tiled import TiledProblem

COEFFICIENTS, POLYNOMIALS, POINTS = 8, 128, 4
"""Coefficients of each polynomial in a tile, polynomials of a block, points for each of them."""


class PolynomialValues(TiledProblem):
    """128 polynomials for each block, each evaluated at the 4 points 3, 5, 7, 9, modulo 2³².

    The kernel is ``(const unsigned* x, unsigned* values, int tiles)``. A polynomial has
    ``8 * tiles`` coefficients, the one of the highest power first. Tile ``t`` of block ``b`` is
    elements ``(b*tiles + t) * 1024 …`` of ``x``: 8 coefficients of 128 polynomials, as rows of 128
    words. ``values[(b*4 + q)*128 + j]`` must become polynomial ``j`` at the point ``2*q + 3``. The
    points are odd, so that a wrong coefficient changes every value, whatever its power.
    """

    name = "polynomial values"
    tile_elements = COEFFICIENTS * POLYNOMIALS
    default_threads = 128

    def outputs(self, xp: Any = np) -> Arrays:
        return {"values": xp.zeros(self.block_count * POINTS * POLYNOMIALS, dtype=np.uint32)}

    def arguments(self, kernel: LaunchShape | None, inputs: Arrays, outputs: Arrays) -> list[Any]:
        return [inputs["x"], outputs["values"], np.int32(self.tiles)]

    def reference(self, inputs: Arrays) -> Arrays:
        # By powers, not by Horner's rule: another way than the kernels'. The same words for NumPy
        # and CuPy; sums modulo 2⁶⁴ are right modulo 2³².
        x = inputs["x"].reshape(self.block_count, -1, POLYNOMIALS).astype(np.uint64)
        last = x.shape[1] - 1
        values = x[:, :POINTS] * np.uint64(0)
        for q in range(POINTS):
            for row in range(last + 1):
                power = pow(2 * q + 3, last - row, 2**32)
                values[:, q] += x[:, row] * np.uint64(power)
        return {"values": (values % np.uint64(2**32)).astype(np.uint32).reshape(-1)}

    def place_of(
        self, output: str, index: int, kernel: LaunchShape | None = None
    ) -> tuple[int | None, int | None]:
        return index // (POINTS * POLYNOMIALS), None

    def _words(self, output: str, index: int, got: int, right: int) -> str:
        block, place = divmod(index, POINTS * POLYNOMIALS)
        q, polynomial = divmod(place, POLYNOMIALS)
        text = f"polynomial {polynomial} of block {block} at the point {2 * q + 3}"
        text += f" (values[{index}]) is {got}, it should be {right}"
        return text + ("; it still holds the zero from before the launch" if got == 0 else "")

    def bytes_moved(self) -> int:
        return 4 * (self.words + self.block_count * POINTS * POLYNOMIALS)

    def tile_of(self, array_name: str, byte_offset: int, block: int) -> int | None:
        if array_name != "x":
            return None
        return byte_offset // self.tile_bytes() - block * self.tiles
