"""Copy-and-reduce: every tile of an array is brought to shared memory and summed."""

from __future__ import annotations

from typing import Any

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


class TileReduction(Problem):
    """Sum each tile of an array of 32-bit words, modulo 2³².

    The kernel is ``(const unsigned* x, unsigned* out, int tiles)``. Tile ``t`` of block ``b``
    starts at element ``(b * tiles + t) * tile_elements``; ``out[b * tiles + t]`` is zero before
    the launch and must become the tile's sum. Addition modulo 2³² is the same in any order, so
    there is one right answer and no tolerance.

    Args:
        rows, columns: shape of the array; only their product matters to the kernel.
        tile_elements: words per tile.
        blocks: blocks in the grid; each has ``rows * columns / tile_elements / blocks`` tiles.
        threads: threads per block where the kernel doesn't say.
        seed: decides the input.

    Raises:
        ValueError: when the array doesn't divide into whole tiles for every block.
    """

    name = "tile reduction"

    def __init__(
        self,
        rows: int = 4096,
        columns: int = 4096,
        tile_elements: int = 4096,
        blocks: int = 256,
        threads: int = 256,
        seed: int = 0,
    ) -> None:
        require_positive(
            rows=rows, columns=columns, tile_elements=tile_elements, blocks=blocks, threads=threads
        )
        if rows * columns % (tile_elements * blocks):
            raise ValueError(
                f"{rows}×{columns} elements don't divide into whole tiles of {tile_elements} for "
                f"{blocks} blocks; TileReduction.of_tiles(tiles, blocks) makes any number of tiles"
            )
        self.rows, self.columns = rows, columns
        self.tile_elements, self.block_count = tile_elements, blocks
        self.default_threads, self.seed = threads, seed
        self.tiles = rows * columns // (tile_elements * blocks)

    @classmethod
    def of_tiles(
        cls,
        tiles: int,
        blocks: int = 1,
        tile_elements: int = 4096,
        threads: int = 256,
        seed: int = 0,
    ) -> TileReduction:
        """A problem with ``tiles`` tiles in each block: for one tile, odd counts and the like."""
        require_positive(tiles=tiles, blocks=blocks)
        return cls(tiles * blocks, tile_elements, tile_elements, blocks, threads, seed)

    def parameters(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "columns": self.columns,
            "tile_elements": self.tile_elements,
            "blocks": self.block_count,
            "threads": self.default_threads,
            "seed": self.seed,
        }

    def inputs(self, xp: Any = np, iteration: int = 0) -> Arrays:
        words = self.rows * self.columns
        x = generator(self.seed, iteration).integers(0, 2**32, words, dtype=np.uint32)
        return {"x": place(xp, x)}

    def fresh_inputs(self, xp: Any = np, iteration: int = 0) -> Arrays:
        return {"x": random_words(xp, self.rows * self.columns, self.seed, iteration)}

    def outputs(self, xp: Any = np) -> Arrays:
        return {"out": xp.zeros(self.block_count * self.tiles, dtype=np.uint32)}

    def arguments(self, kernel: LaunchShape | None, inputs: Arrays, outputs: Arrays) -> list[Any]:
        return [inputs["x"], outputs["out"], np.int32(self.tiles)]

    def grid(self, kernel: LaunchShape | None = None) -> tuple[int, ...]:
        return (self.block_count,)

    def reference(self, inputs: Arrays) -> Arrays:
        tiles = inputs["x"].reshape(-1, self.tile_elements)
        return {"out": tiles.sum(axis=1, dtype=np.uint32)}

    def wrong_elements(self, outputs: Arrays, reference: Arrays) -> Arrays:
        return {"out": outputs["out"] != reference["out"]}

    def place_of(
        self, output: str, index: int, kernel: LaunchShape | None = None
    ) -> tuple[int | None, int | None]:
        return divmod(index, self.tiles)

    def compare(self, outputs: Arrays, reference: Arrays) -> tuple[bool, float, str]:
        got, right = to_numpy(outputs["out"]), to_numpy(reference["out"])
        wrong = np.flatnonzero(got != right)
        if not wrong.size:
            return True, 0.0, ""
        first = int(wrong[0])
        error = np.abs(got.astype(np.int64) - right.astype(np.int64)).max()
        return False, float(error), self._words(first, wrong.size, got, right)

    def _words(self, first: int, count: int, got: np.ndarray, right: np.ndarray) -> str:
        block, tile = divmod(first, self.tiles)
        text = (
            f"tile {tile} of block {block} (out[{first}]) is {int(got[first])}, "
            f"its sum is {int(right[first])}"
        )
        if got[first] == 0:
            text += "; it still holds the zero from before the launch"
        else:
            same = np.flatnonzero(right == got[first])
            if same.size:
                other_block, other = divmod(int(same[0]), self.tiles)
                where = "" if other_block == block else f" of block {other_block}"
                text += f"; that is the sum of tile {other}{where}"
        return text + f". {count} of {got.size} tiles are wrong"

    def small(self) -> TileReduction:
        tiles = self.tiles if self.tiles <= 9 else 8 + self.tiles % 2
        if self.block_count <= 2 and tiles == self.tiles:
            return self
        return self.of_tiles(
            tiles, min(self.block_count, 2), self.tile_elements, self.default_threads, self.seed
        )

    def long(self) -> TileReduction | None:
        """One block with up to 64 of the problem's tiles."""
        tiles = min(self.tiles, 64)
        if tiles <= self.small().tiles:
            return None
        return self.of_tiles(tiles, 1, self.tile_elements, self.default_threads, self.seed)

    def awkward(self) -> list[Problem]:
        return [
            self.of_tiles(tiles, blocks, self.tile_elements, self.default_threads, self.seed)
            for tiles, blocks in ((1, 1), (2, 1), (3, 2), (7, 1))
        ]

    def bytes_moved(self) -> int:
        return 4 * (self.rows * self.columns + self.block_count * self.tiles)

    def tile_of(self, array_name: str, byte_offset: int, block: int) -> int | None:
        if array_name != "x":
            return None
        return byte_offset // (4 * self.tile_elements) - block * self.tiles

    def tile_bytes(self) -> int:
        return 4 * self.tile_elements
