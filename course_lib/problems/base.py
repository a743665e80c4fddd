"""What every problem has: inputs, outputs, launch arguments, a reference and a comparison."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

Arrays = dict[str, Any]
"""Named arrays of one array module (NumPy or CuPy)."""


class LaunchShape(Protocol):
    """The part of a ``Kernel`` that a problem looks at."""

    @property
    def threads(self) -> Any: ...

    @property
    def tile(self) -> Any: ...

    @property
    def defines(self) -> Mapping[str, Any]: ...


class Problem(ABC):
    """One thing to compute, made from numbers alone.

    Inputs come from a seed and an iteration number, always through NumPy's generator and then
    copied, so that they are the same bits on a CPU and on a GPU.
    """

    name: str
    default_threads: int = 256
    default_tile: tuple[int, ...] | None = None
    dense_tiles: bool = True
    """Whether ``tile_of`` numbers tiles 0, 1, 2, … (else only their order means anything)."""
    seed: int

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments that rebuild this problem."""

    @abstractmethod
    def inputs(self, xp: Any = np, iteration: int = 0) -> Arrays:
        """Fresh input arrays of module ``xp``, decided by the seed and ``iteration`` alone."""

    @abstractmethod
    def outputs(self, xp: Any = np) -> Arrays:
        """Output arrays as they must be before a launch."""

    @abstractmethod
    def arguments(self, kernel: LaunchShape | None, inputs: Arrays, outputs: Arrays) -> list[Any]:
        """Arrays and scalars in the order of the kernel's parameters."""

    @abstractmethod
    def grid(self, kernel: LaunchShape | None = None) -> tuple[int, ...]:
        """The launch grid, in blocks."""

    @abstractmethod
    def reference(self, inputs: Arrays) -> Arrays:
        """The right outputs, computed by the array module that the inputs belong to."""

    @abstractmethod
    def compare(self, outputs: Arrays, reference: Arrays) -> tuple[bool, float, str]:
        """``(ok, largest error, words about the first wrong element or "")``."""

    def fresh_inputs(self, xp: Any = np, iteration: int = 0) -> Arrays:
        """Random inputs like ``inputs``, made where module ``xp`` computes and copied nowhere.

        Decided by the seed and ``iteration`` alone, but not the bits of ``inputs``: for runs of
        many iterations on a GPU, which may not wait for NumPy and the bus. Problems that have no
        quicker way give ``inputs`` themselves.
        """
        return self.inputs(xp, iteration)

    @abstractmethod
    def wrong_elements(self, outputs: Arrays, reference: Arrays) -> Arrays:
        """For each output, a boolean array of its wrong elements, in the outputs' own module."""

    def place_of(
        self, output: str, index: int, kernel: LaunchShape | None = None
    ) -> tuple[int | None, int | None]:
        """(block, tile) that an element of an output belongs to, None for what it doesn't tell."""
        return None, None

    def element_words(self, output: str, index: int) -> str:
        """An element of an output by its name, and by its tile where that is known."""
        block, tile = self.place_of(output, index)
        name = f"{output}[{index}]"
        return name if tile is None else f"tile {tile} of block {block} ({name})"

    @abstractmethod
    def small(self) -> Problem:
        """An equivalent case that the virtual GPU finishes in a blink."""

    @abstractmethod
    def awkward(self) -> list[Problem]:
        """Small cases whose shape breaks pipelines: one tile, two tiles, odd numbers of them."""

    def long(self) -> Problem | None:
        """A small case with many tiles: some rings go wrong only after several times round.

        ``None`` where ``small`` has as many tiles as the problem, or where tiles are not counted.
        """
        return None

    @abstractmethod
    def bytes_moved(self) -> int:
        """Bytes that any kernel has to move between global memory and the chip, at least."""

    def tile_of(self, array_name: str, byte_offset: int, block: int) -> int | None:
        """A number that orders the tiles of one block, from where a load starts.

        ``None`` when the array isn't loaded in tiles. The number need not be dense: timelines
        rank the values that they see.
        """
        return None

    def tile_bytes(self) -> int | None:
        """Bytes of one tile in shared memory, where the problem (not the kernel) decides it."""
        return None

    def threads(self, kernel: LaunchShape | None = None) -> int:
        """Threads per block: the kernel's own, else this problem's default."""
        own = getattr(kernel, "threads", None)
        return int(own) if own else self.default_threads

    def tile(self, kernel: LaunchShape | None = None) -> tuple[int, ...] | None:
        """The output tile: the kernel's own, else this problem's default."""
        own = getattr(kernel, "tile", None)
        return tuple(own) if own else self.default_tile

    def blocks(self, kernel: LaunchShape | None = None) -> int:
        """How many blocks the grid has."""
        return int(np.prod(self.grid(kernel)))

    def to_spec(self) -> dict[str, Any]:
        """A plain dict that ``problems.from_spec`` turns back into this problem."""
        return {"kind": type(self).__name__, "parameters": self.parameters()}

    def __repr__(self) -> str:
        words = ", ".join(f"{name}={value!r}" for name, value in self.parameters().items())
        return f"{type(self).__name__}({words})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self.to_spec() == other.to_spec()

    def __hash__(self) -> int:
        return hash(repr(self))


def generator(seed: int, iteration: int, stream: int = 0) -> np.random.Generator:
    """The random generator of one array: SFC64, whose stream NumPy promises to keep."""
    return np.random.Generator(np.random.SFC64([seed, iteration, stream]))


_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def random_words(xp: Any, count: int, seed: int, iteration: int, stream: int = 0) -> Any:
    """``uint32[count]`` of module ``xp``: word i is a hash of i and of the three numbers.

    The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
    generators", OOPSLA 2014) over a counter, so that a GPU makes all words at once, without state,
    and any iteration can be made again alone. Both modules give the same words.
    """
    start = int(generator(seed, iteration, stream).integers(0, 2**63))
    if xp is not np:
        return _random_words_kernel(xp)(np.uint64(start), xp.empty(count, dtype=xp.uint32))
    words = np.arange(count, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(start)
    words = (words ^ words >> np.uint64(30)) * np.uint64(_MIX_1)
    words = (words ^ words >> np.uint64(27)) * np.uint64(_MIX_2)
    return ((words ^ words >> np.uint64(31)) >> np.uint64(32)).astype(np.uint32)


@functools.cache
def _random_words_kernel(xp: Any) -> Any:
    return xp.ElementwiseKernel(
        "uint64 start",
        "uint32 word",
        f"""
        unsigned long long z = (unsigned long long)i * {_GOLDEN}ull + start;
        z = (z ^ z >> 30) * {_MIX_1}ull;
        z = (z ^ z >> 27) * {_MIX_2}ull;
        word = (z ^ z >> 31) >> 32;
        """,
        "course_random_words",
    )


def place(xp: Any, array: np.ndarray) -> Any:
    """``array`` itself for NumPy, else a copy of it in the memory of module ``xp``."""
    return array if xp is np else xp.asarray(array)


def to_numpy(array: Any) -> np.ndarray:
    """The array on the host, whichever module it is of."""
    return array if isinstance(array, np.ndarray) else array.get()


def require_positive(**values: int) -> None:
    """``ValueError`` naming the first value that isn't a positive whole number."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
