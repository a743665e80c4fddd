"""What an offset in shared memory is called, and which tile a copy brings there.

Names come from the kernel's `__shared__` declarations, stages from their dimensions and from where
the kernel's own copies put the tiles, tile numbers from the source addresses of copies.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from course_lib.expressions import ExpressionError, evaluate
from course_lib.virtual_gpu.abi import WINDOW_SHIFT

if TYPE_CHECKING:
    import numpy as np

    from course_lib.kernel import Kernel
    from course_lib.problems import Problem
    from course_lib.virtual_gpu.flow import FlatKernel

_DECLARED = re.compile(r"__shared__\s([^;{]*);")
_ATTRIBUTE = re.compile(r"(?:__align__|alignas|aligned)\s*\((?:[^()]|\([^()]*\))*\)|=[^,;]*")
_DECLARATOR = re.compile(r"([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)$")
_MOST_STAGES = 16
"""An array's first dimension is taken for its stages up to this many, where no copy tells."""


@dataclass(frozen=True)
class Place:
    """A place in shared memory: ``stage[1]`` is stage 1 of the ``stages`` of array ``stage``.

    ``element`` names the first byte that was looked at by its indices, such as ``stage[1][3][7]``;
    "" where the declaration does not tell its dimensions.
    """

    name: str
    array: str
    stage: int | None = None
    stages: int = 1
    element: str = ""


@dataclass(frozen=True)
class SharedArray:
    """A shared variable: where it lies (bytes), and its dimensions where the source tells them."""

    name: str
    offset: int
    size: int
    dimensions: tuple[int, ...] = ()

    def element(self, offset: int) -> str:
        """`a[1][3][7]` for the element of an array of two dimensions or more around a byte."""
        count = math.prod(self.dimensions)
        if len(self.dimensions) < 2 or not count or self.size % count or self.size < count:
            return ""
        number = (offset - self.offset) // (self.size // count)
        indices: list[int] = []
        for size in reversed(self.dimensions):
            indices.append(number % size)
            number //= size
        return self.name + "".join(f"[{index}]" for index in reversed(indices))


def shared_arrays(kernel: Kernel, flat: FlatKernel, dynamic_bytes: int = 0) -> list[SharedArray]:
    """The kernel's shared variables in the order of their offsets."""
    declared = _declarations(kernel)
    dynamic = flat.module.dynamic_shared
    found = []
    for symbol, placed in flat.symbols.items():
        if placed.space != "shared":
            continue
        name = _source_name(symbol, declared)
        size = dynamic_bytes if dynamic and symbol == dynamic.name else placed.size
        found.append(SharedArray(name, placed.offset, size, declared.get(name, ())))
    return sorted(found, key=lambda array: array.offset)


def _declarations(kernel: Kernel) -> dict[str, tuple[int, ...]]:
    source = re.sub(r"//[^\n]*|/\*.*?\*/", "", kernel.source, flags=re.S)
    found = {}
    for statement in _DECLARED.finditer(source):
        for text in re.split(r",(?![^<]*>)", _ATTRIBUTE.sub(" ", statement[1])):
            declarator = _DECLARATOR.search(text.strip())
            if declarator:
                found[declarator[1]] = _sizes(declarator[2], kernel)
    return found


def _sizes(brackets: str, kernel: Kernel) -> tuple[int, ...]:
    """The numbers in `[2][TILE]`; () where one of them is no expression that is understood."""
    sizes = []
    for text in re.findall(r"\[([^\]]*)\]", brackets):
        try:
            sizes.append(evaluate(text.strip(), kernel.defines, kernel.source))
        except (ExpressionError, ZeroDivisionError):
            return ()
    return tuple(sizes)


def _source_name(symbol: str, declared: dict[str, tuple[int, ...]]) -> str:
    """The declared name that a mangled symbol holds, such as `stage` in `_ZZ4ringE5stage`."""
    fits = [name for name in declared if symbol == name or f"{len(name)}{name}" in symbol]
    if fits:
        return max(fits, key=lambda name: (symbol.rfind(f"{len(name)}{name}"), len(name)))
    for match in re.finditer(r"(?=(?<!\d)(\d+)([A-Za-z_]\w*)$)", symbol):
        if int(match[1]) == len(match[2]):
            return match[2]
    return symbol


@dataclass
class Fill:
    """A tile that copies brought: to which offset, from which array."""

    tile: int
    array: str
    offset: int


@dataclass
class Places:
    """Names of offsets and numbers of tiles, for one kernel on one problem."""

    arrays: Sequence[SharedArray]
    problem: Problem
    addresses: dict[str, int] = field(default_factory=dict)
    fills: list[Fill] = field(default_factory=list)
    copying_warps: frozenset[int] = frozenset()
    coordinates: dict[str, list[int]] = field(default_factory=dict)

    # --- tiles

    def source(self, address: int | None) -> tuple[str, int] | None:
        """(input array, byte offset in it) of a windowed global address."""
        if not address:
            return None
        for name, start in self.addresses.items():
            if address >> WINDOW_SHIFT == start >> WINDOW_SHIFT and address >= start:
                return name, address - start
        return None

    def tile(self, address: int | None, block: int) -> int | None:
        """Number of the tile that lies at a global address, counted within its block."""
        found = self.source(address)
        coordinate = None if found is None else self.problem.tile_of(*found, block)
        if found is None or coordinate is None:
            return None
        if self.problem.dense_tiles:
            return coordinate
        known = self.coordinates.get(found[0])
        return bisect_right(known, coordinate) - 1 if known else None

    def learn(self, log: np.ndarray, addresses: dict[str, int], block: int) -> None:
        """Take the copies of one block of a traced launch (``launch.LANDING_TYPE``)."""
        self.addresses = addresses
        log = log[log["block"] == block]
        self.copying_warps = frozenset(int(warp) for warp in set(log["warp"].tolist()))
        if not self.problem.dense_tiles:
            self.coordinates = self._coordinates(log, block)
        lowest: dict[tuple[str, int], int] = {}
        for address, offset in zip(log["address"].tolist(), log["shared_offset"].tolist()):
            found, tile = self.source(address), self.tile(address, block)
            if found is None or tile is None:
                continue
            key = (found[0], tile)
            lowest[key] = min(offset, lowest.get(key, offset))
        self.fills = [Fill(tile, array, at) for (array, tile), at in sorted(lowest.items())]

    def _coordinates(self, log: np.ndarray, block: int) -> dict[str, list[int]]:
        """Where along its tiles each input is copied from, by the first warp that copies any of it.

        One warp's copies: several warps may share a tile, each with rows of its own.
        """
        seen: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for address, warp in zip(log["address"].tolist(), log["warp"].tolist()):
            found = self.source(address)
            coordinate = None if found is None else self.problem.tile_of(*found, block)
            if found is not None and coordinate is not None:
                seen[found[0]][warp].add(coordinate)
        return {name: sorted(by_warp[min(by_warp)]) for name, by_warp in seen.items()}

    # --- places

    def place(self, offset: int, size: int = 1) -> Place:
        """What the bytes at an offset are called."""
        array = self.array_at(offset)
        if array is None:
            return Place(f"shared memory at byte {offset}", "shared memory")
        return replace(self._stage_at(array, offset), element=array.element(offset))

    def _stage_at(self, array: SharedArray, offset: int) -> Place:
        starts = self.starts(array, offset)
        if len(array.dimensions) > 1 and self._staged(array, starts):
            bytes_per_stage = array.size // array.dimensions[0]
            stage = (offset - array.offset) // max(bytes_per_stage, 1)
            return Place(f"{array.name}[{stage}]", array.name, stage, array.dimensions[0])
        if len(starts) > 1:
            stage = max(bisect_right(starts, offset) - 1, 0)
            return Place(f"stage {stage} of {array.name}", array.name, stage, len(starts))
        return Place(array.name, array.name, 0 if starts else None, 1)

    def array_at(self, offset: int) -> SharedArray | None:
        """The shared variable that holds a byte."""
        holding = [a for a in self.arrays if a.offset <= offset]
        found = holding[-1] if holding else None
        if found is None or (found.size and offset >= found.offset + found.size):
            return None
        return found

    def starts(self, array: SharedArray, offset: int) -> list[int]:
        """Where in `array` the tiles of one input array begin: one offset for each stage.

        Where tiles of several inputs lie in one variable, those of the one around `offset`.
        """
        end = array.offset + array.size if array.size else 1 << 62
        per_input: dict[str, set[int]] = defaultdict(set)
        for fill in self.fills:
            if array.offset <= fill.offset < end:
                per_input[fill.array].add(fill.offset)
        before = {
            name: max((s for s in starts if s <= offset), default=-1)
            for name, starts in per_input.items()
        }
        if not before:
            return []
        return sorted(per_input[max(before, key=lambda name: before[name])])

    def _staged(self, array: SharedArray, starts: list[int]) -> bool:
        """Whether the first dimension counts stages."""
        first = array.dimensions[0]
        if starts and len({fill.tile for fill in self.fills}) > 1:
            bytes_per_stage = array.size // first
            touched = {(start - array.offset) // max(bytes_per_stage, 1) for start in starts}
            return len(touched) > 1 or first == 1
        return first <= _MOST_STAGES and (len(array.dimensions) > 2 or first < array.dimensions[1])

    # --- the ring

    def tiles_at(self, place: Place) -> list[int]:
        """Tiles that the kernel's copies bring to a place, in order."""
        found = {f.tile for f in self.fills if self.same_place(self.place(f.offset), place)}
        return sorted(found)

    @staticmethod
    def same_place(one: Place, other: Place) -> bool:
        return (one.array, one.stage) == (other.array, other.stage)

    def first_fill(self, place: Place, tile: int | None) -> bool | None:
        """Whether `tile` is the first that comes to this place; None where nothing tells."""
        if tile is None:
            return None
        known = self.tiles_at(place)
        if known:
            return tile <= known[0]
        if self.problem.dense_tiles and place.stage is not None:
            return tile < place.stages
        return None

    def tile_before(self, place: Place, tile: int | None) -> int | None:
        """The tile that lay at a place before `tile` came."""
        if tile is None:
            return None
        earlier = [t for t in self.tiles_at(place) if t < tile]
        if earlier:
            return earlier[-1]
        if self.problem.dense_tiles and place.stage is not None and tile >= place.stages:
            return tile - place.stages
        return None
