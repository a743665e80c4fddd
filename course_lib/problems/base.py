"""What every problem has: inputs, outputs, launch arguments, a reference and a comparison."""

from __future__ import annotations

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

    @abstractmethod
    def small(self) -> Problem:
        """An equivalent case that the virtual GPU finishes in a blink."""

    @abstractmethod
    def awkward(self) -> list[Problem]:
        """Small cases whose shape breaks pipelines: one tile, two tiles, odd numbers of them."""

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
