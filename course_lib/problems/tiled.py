"""What problems have in common whose blocks each walk along a number of tiles."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np

from course_lib.problems.base import (
    Arrays,
    LaunchShape,
    Problem,
    generator,
    place,
    random_words,
    require_positive,
    to_numpy,
)


class TiledProblem(Problem):
    """An array ``x`` of 32-bit words, of which every block reads ``tiles`` tiles one by one.

    A subclass has ``tile_elements`` (words per tile), the outputs and their reference; arithmetic
    is modulo 2³², so that there is one right answer in whatever order it is computed.

    Args:
        tiles: tiles of each block.
        blocks: blocks in the grid.
        seed: decides the input.
    """

    tile_elements: int

    def __init__(self, tiles: int = 32, blocks: int = 128, seed: int = 0) -> None:
        require_positive(tiles=tiles, blocks=blocks)
        self.tiles, self.block_count, self.seed = tiles, blocks, seed

    @classmethod
    def of_tiles(cls, tiles: int, blocks: int = 1, seed: int = 0) -> Self:
        """A problem with ``tiles`` tiles in each block: for one tile, odd counts and the like."""
        return cls(tiles, blocks, seed)

    @abstractmethod
    def _words(self, output: str, index: int, got: int, right: int) -> str:
        """Which element is wrong, and how."""

    @property
    def words(self) -> int:
        """Words of the input."""
        return self.tiles * self.block_count * self.tile_elements

    def parameters(self) -> dict[str, Any]:
        return {"tiles": self.tiles, "blocks": self.block_count, "seed": self.seed}

    def inputs(self, xp: Any = np, iteration: int = 0) -> Arrays:
        words = generator(self.seed, iteration).integers(0, 2**32, self.words, dtype=np.uint32)
        return {"x": place(xp, words)}

    def fresh_inputs(self, xp: Any = np, iteration: int = 0) -> Arrays:
        return {"x": random_words(xp, self.words, self.seed, iteration)}

    def grid(self, kernel: LaunchShape | None = None) -> tuple[int, ...]:
        return (self.block_count,)

    def wrong_elements(self, outputs: Arrays, reference: Arrays) -> Arrays:
        return {name: outputs[name] != reference[name] for name in reference}

    def compare(self, outputs: Arrays, reference: Arrays) -> tuple[bool, float, str]:
        for name in reference:
            got, right = to_numpy(outputs[name]), to_numpy(reference[name])
            wrong = np.flatnonzero(got != right)
            if wrong.size:
                first = int(wrong[0])
                text = self._words(name, first, int(got[first]), int(right[first]))
                error = np.abs(got.astype(np.int64) - right.astype(np.int64)).max()
                return False, float(error), f"{text}. {wrong.size} of {got.size} values are wrong"
        return True, 0.0, ""

    def small(self) -> Self:
        tiles = self.tiles if self.tiles <= 9 else 8 + self.tiles % 2
        blocks = min(self.block_count, 2)
        if (tiles, blocks) == (self.tiles, self.block_count):
            return self
        return self.of_tiles(tiles, blocks, self.seed)

    def long(self) -> Self | None:
        """One block with up to 64 of the problem's tiles."""
        tiles = min(self.tiles, 64)
        return None if tiles <= self.small().tiles else self.of_tiles(tiles, 1, self.seed)

    def awkward(self) -> list[Problem]:
        shapes = ((1, 1), (2, 1), (3, 2), (7, 1))
        return [self.of_tiles(tiles, blocks, self.seed) for tiles, blocks in shapes]

    def tile_bytes(self) -> int:
        return 4 * self.tile_elements
