"""Row checksums: every tile is one row of an array, and every position has a weight of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.problems.base import Arrays, LaunchShape
from course_lib.problems.tiled import TiledProblem

COLUMNS = 4096
"""Words of a row; a tile is one row."""


class RowChecksums(TiledProblem):
    """A position-weighted checksum of each row of an array with 4096 columns, modulo 2³².

    The array has ``tiles * blocks`` rows. The kernel is ``(const unsigned* x, unsigned* checksums,
    int tiles)``. Tile ``t`` of block ``b`` is row ``r = b*tiles + t``; ``checksums[r]`` is zero
    before the launch and must become the sum over all columns ``c`` of ``(2*c + 1) * x[r][c]``.
    Every weight is odd, so that a row with one other word always has another checksum.
    """

    name = "row checksums"
    tile_elements = COLUMNS

    def outputs(self, xp: Any = np) -> Arrays:
        return {"checksums": xp.zeros(self.tiles * self.block_count, dtype=np.uint32)}

    def arguments(self, kernel: LaunchShape | None, inputs: Arrays, outputs: Arrays) -> list[Any]:
        return [inputs["x"], outputs["checksums"], np.int32(self.tiles)]

    def reference(self, inputs: Arrays) -> Arrays:
        # The same words for NumPy and CuPy, whose unsigned arithmetic wraps.
        rows = inputs["x"].reshape(-1, COLUMNS)
        weights = (rows[:1] * np.uint32(0) + np.uint32(2)).cumsum(axis=1, dtype=np.uint32)
        weighted = rows * (weights - np.uint32(1))
        return {"checksums": weighted.sum(axis=1, dtype=np.uint32)}

    def place_of(
        self, output: str, index: int, kernel: LaunchShape | None = None
    ) -> tuple[int | None, int | None]:
        return divmod(index, self.tiles)

    def _words(self, output: str, index: int, got: int, right: int) -> str:
        block, tile = divmod(index, self.tiles)
        text = (
            f"tile {tile} of block {block}, which is row {index}, has the checksum {got}, it "
            f"should be {right}"
        )
        return text + ("; it still holds the zero from before the launch" if got == 0 else "")

    def bytes_moved(self) -> int:
        return 4 * (self.words + self.tiles * self.block_count)

    def tile_of(self, array_name: str, byte_offset: int, block: int) -> int | None:
        if array_name != "x":
            return None
        return byte_offset // self.tile_bytes() - block * self.tiles
