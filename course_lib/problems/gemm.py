"""Matrix multiplication, C = A·Bᵀ, with both operands contiguous along k."""

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

_UNIT_ROUNDOFF = 2.0**-24  # half a unit in the last place of an IEEE binary32 significand
_HALF_ROUNDOFF = 2.0**-11  # the same of a binary16 significand
_DTYPES = {"float32": np.float32, "float16": np.float16}
PANEL_COLUMNS = 64
"""Columns of k that one tensor copy brings: 64 halves are the 128 bytes of the widest swizzle."""


class Gemm(Problem):
    """C = A·Bᵀ with A ``m×k``, B ``n×k`` and C ``m×n``, all row-major.

    ``dtype`` is that of all three: "float32", or "float16" with sums in float32. The kernel is
    ``(const float* A, const float* B, float* C, int m, int n, int k)`` (``half`` likewise) on the
    grid ``(n / tile_n, m / tile_m)`` of the kernel's tile ``tile_m × tile_n`` (64×64 where it has
    none), rounded up. With ``tensor_maps`` A and B are tensor maps instead, ``const
    __grid_constant__ TensorMap`` of ``course_pipeline.cuh``: boxes of ``tile_m`` and ``tile_n``
    rows by 64 columns of k, swizzled by 128 bytes. Elements of A and B are uniform in [-1, 1). The
    reference is a float64 product of the same inputs.

    **Tolerance.** Every element may differ from the reference by ``4·(k + 8)·2⁻²⁴``, and for halves
    by ``2⁻¹¹·|C|`` more, the rounding of the result. Summing k such products in float32 is
    typically off by about ``0.15·k·2⁻²⁴``, in whatever order and with or without fused
    multiply-adds, so a right kernel never comes near it; one product left out (about 0.25), a stale
    panel, or operands rounded to TF32 or half are all far outside.

    Raises:
        ValueError: for sizes that aren't positive, another ``dtype``, or tensor maps of floats.
    """

    name = "matrix multiplication"
    default_tile = (64, 64)
    dense_tiles = False

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        dtype: str = "float32",
        seed: int = 0,
        tensor_maps: bool = False,
    ) -> None:
        require_positive(m=m, n=n, k=k)
        if dtype not in _DTYPES:
            raise ValueError(f"Gemm has dtypes {', '.join(_DTYPES)}, not {dtype!r}")
        if tensor_maps and dtype != "float16":
            raise ValueError('tensor_maps=True goes with dtype="float16"')
        self.m, self.n, self.k, self.dtype, self.seed = m, n, k, dtype, seed
        self.tensor_maps = tensor_maps

    def parameters(self) -> dict[str, Any]:
        given = {"m": self.m, "n": self.n, "k": self.k, "dtype": self.dtype, "seed": self.seed}
        return {**given, "tensor_maps": True} if self.tensor_maps else given

    def _resized(self, m: int, n: int, k: int) -> Gemm:
        return Gemm(m, n, k, self.dtype, self.seed, self.tensor_maps)

    @property
    def tolerance(self) -> float:
        """Largest permitted difference from the float64 reference before the result is rounded."""
        return 4.0 * (self.k + 8) * _UNIT_ROUNDOFF

    def inputs(self, xp: Any = np, iteration: int = 0) -> Arrays:
        return {
            "A": place(xp, self._matrix(iteration, 0, self.m)),
            "B": place(xp, self._matrix(iteration, 1, self.n)),
        }

    def _matrix(self, iteration: int, stream: int, rows: int) -> np.ndarray:
        values = generator(self.seed, iteration, stream).random((rows, self.k), dtype=np.float32)
        values *= 2
        values -= 1
        return values.astype(_DTYPES[self.dtype], copy=False)

    def fresh_inputs(self, xp: Any = np, iteration: int = 0) -> Arrays:
        return {
            "A": self._fresh_matrix(xp, iteration, 0, self.m),
            "B": self._fresh_matrix(xp, iteration, 1, self.n),
        }

    def _fresh_matrix(self, xp: Any, iteration: int, stream: int, rows: int) -> Any:
        words = random_words(xp, rows * self.k, self.seed, iteration, stream)
        values = (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
        return values.astype(self.dtype, copy=False).reshape(rows, self.k)

    def outputs(self, xp: Any = np) -> Arrays:
        # Not a number until written: an element that the kernel forgets cannot pass for a result.
        return {"C": xp.full((self.m, self.n), np.nan, dtype=_DTYPES[self.dtype])}

    def arguments(self, kernel: LaunchShape | None, inputs: Arrays, outputs: Arrays) -> list[Any]:
        sizes = [np.int32(self.m), np.int32(self.n), np.int32(self.k)]
        a, b = inputs["A"], inputs["B"]
        if self.tensor_maps:
            from course_lib.tensor_maps import tensor_map

            tile = self.tile(kernel) or self.default_tile
            a = tensor_map(a, box=(tile[0], PANEL_COLUMNS), swizzle=128)
            b = tensor_map(b, box=(tile[1], PANEL_COLUMNS), swizzle=128)
        return [a, b, outputs["C"], *sizes]

    def grid(self, kernel: LaunchShape | None = None) -> tuple[int, ...]:
        tile = self.tile(kernel) or self.default_tile
        return (-(-self.n // tile[1]), -(-self.m // tile[0]))

    def place_of(
        self, output: str, index: int, kernel: LaunchShape | None = None
    ) -> tuple[int | None, int | None]:
        # Every tile of k goes into every element, so no element tells which one was wrong.
        tile = self.tile(kernel) or self.default_tile
        row, column = divmod(index, self.n)
        return row // tile[0] * self.grid(kernel)[0] + column // tile[1], None

    def element_words(self, output: str, index: int) -> str:
        row, column = divmod(index, self.n)
        return f"{output}[{row}, {column}]"

    def reference(self, inputs: Arrays) -> Arrays:
        return {"C": inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64).T}

    def wrong_elements(self, outputs: Arrays, reference: Arrays) -> Arrays:
        difference = abs(outputs["C"].astype(np.float64) - reference["C"])
        allowed = self.tolerance
        if self.dtype == "float16":
            allowed = allowed + _HALF_ROUNDOFF * abs(reference["C"])
        return {"C": ~(difference <= allowed)}  # written so that a NaN is bad

    def compare(self, outputs: Arrays, reference: Arrays) -> tuple[bool, float, str]:
        difference = abs(outputs["C"].astype(np.float64) - reference["C"])
        bad = to_numpy(self.wrong_elements(outputs, reference)["C"])
        if not bad.any():
            return True, float(difference.max()), ""
        row, column = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        got, right = float(outputs["C"][row, column]), float(reference["C"][row, column])
        text = f"C[{row}, {column}] is {got:.6g}, it should be {right:.6g}"
        if np.isnan(got):
            text += "; it was never written, or was computed from such a value"
        largest = to_numpy(difference).max()
        error = float("inf") if np.isnan(largest) else float(largest)
        return False, error, text + f". {int(bad.sum())} of {bad.size} elements are wrong"

    def small(self) -> Gemm:
        m, n, k = (_shrink(size) for size in (self.m, self.n, self.k))
        return self._resized(m, n, k)

    def awkward(self) -> list[Problem]:
        # Panels of tensor copies have 64 columns: one, two, three and seven of them.
        sizes = (64, 128, 192, 448) if self.tensor_maps else (32, 64, 96, 224)
        return [self._resized(128, 128, k) for k in sizes]

    def bytes_moved(self) -> int:
        size = np.dtype(_DTYPES[self.dtype]).itemsize
        return size * (self.m * self.k + self.n * self.k + self.m * self.n)

    def flops(self) -> int:
        """Floating-point operations of the product: one multiply and one add per term."""
        return 2 * self.m * self.n * self.k

    def tile_of(self, array_name: str, byte_offset: int, block: int) -> int | None:
        """The column k at which a load starts; tiles of one block are ordered by it."""
        if array_name not in ("A", "B"):
            return None
        return byte_offset // np.dtype(_DTYPES[self.dtype]).itemsize % self.k


def _shrink(size: int) -> int:
    """At most 511, the same modulo 256: what divided by a tile of up to 256 still does."""
    return size if size <= 256 else 256 + size % 256
