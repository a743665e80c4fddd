"""Circular filter: every tile is one closed ring of samples, smoothed along the ring."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.problems.base import Arrays, LaunchShape
from course_lib.problems.tiled import TiledProblem

SAMPLES = 4096
"""Samples of one signal; a tile is one signal."""
WEIGHTS = (5, 11, 3)
"""Not symmetric, so that a filter that runs backwards is seen."""


class CircularFilter(TiledProblem):
    """Filter closed signals of 4096 samples with three weights, modulo 2³².

    The kernel is ``(const unsigned* x, unsigned* y, int tiles)``. Signal ``t`` of block ``b``
    starts at element ``(b*tiles + t) * 4096`` of ``x``; the same place of ``y`` must hold, for each
    sample ``i``, the sum over ``k`` of ``WEIGHTS[k] * signal[(i + k) % 4096]``.
    """

    name = "circular filter"
    tile_elements = SAMPLES

    def outputs(self, xp: Any = np) -> Arrays:
        return {"y": xp.zeros(self.words, dtype=np.uint32)}

    def arguments(self, kernel: LaunchShape | None, inputs: Arrays, outputs: Arrays) -> list[Any]:
        return [inputs["x"], outputs["y"], np.int32(self.tiles)]

    def reference(self, inputs: Arrays) -> Arrays:
        signals = inputs["x"].reshape(-1, SAMPLES)
        y = signals * np.uint32(0)
        for shift, weight in enumerate(WEIGHTS):
            rest = SAMPLES - shift
            y[:, :rest] += signals[:, shift:] * np.uint32(weight)
            y[:, rest:] += signals[:, :shift] * np.uint32(weight)
        return {"y": y.reshape(-1)}

    def place_of(
        self, output: str, index: int, kernel: LaunchShape | None = None
    ) -> tuple[int | None, int | None]:
        return divmod(index // SAMPLES, self.tiles)

    def _words(self, output: str, index: int, got: int, right: int) -> str:
        signal, sample = divmod(index, SAMPLES)
        block, tile = divmod(signal, self.tiles)
        text = f"sample {sample} of tile {tile}, block {block} (y[{index}]) is {got}"
        text += f", it should be {right}"
        return text + ("; it still holds the zero from before the launch" if got == 0 else "")

    def bytes_moved(self) -> int:
        return 8 * self.words

    def tile_of(self, array_name: str, byte_offset: int, block: int) -> int | None:
        if array_name != "x":
            return None
        return byte_offset // self.tile_bytes() - block * self.tiles
