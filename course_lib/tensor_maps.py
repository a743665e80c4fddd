"""Tensor maps: what a tensor copy (TMA) must know of an array, for the real and the virtual GPU.

A kernel takes one as `const __grid_constant__ TensorMap map` with
`struct alignas(64) TensorMap { unsigned long long opaque[16]; };`: 128 bytes by value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAP_BYTES = 128
MAP_MARK = 0x70616D726F736E65  # first word of the virtual GPU's maps: bulk_copies.MAP_MARK
SWIZZLES = (0, 32, 64, 128)

_ELEMENTS = {
    "uint8": "UINT8", "int8": "UINT8", "uint16": "UINT16", "int16": "UINT16", "uint32": "UINT32",
    "int32": "INT32", "uint64": "UINT64", "int64": "INT64", "float16": "FLOAT16",
    "float32": "FLOAT32", "float64": "FLOAT64", "bfloat16": "BFLOAT16",
}  # fmt: skip
"""NumPy type to the end of its CUtensorMapDataType; int8 and int16 are moved as their bits."""


class TensorMapError(ValueError):
    """No tensor map can be made of this array and box; the message says which rule is broken."""


@dataclass(frozen=True, eq=False)
class TensorMap:
    """An array (NumPy or CuPy), its box in elements in the array's own order of axes, a swizzle."""

    array: Any
    box: tuple[int, ...]
    swizzle: int

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy moves, those of elements outside the array included: what
        `mbarrier.expect_tx` must announce."""
        return math.prod(self.box) * int(self.array.dtype.itemsize)

    def virtual_bytes(self, address: int) -> bytes:
        """The virtual GPU's own map of the array at a windowed address: the TM_* slots."""
        itemsize = int(self.array.dtype.itemsize)
        sizes = _three(self.array.shape)
        strides = tuple(int(n) for n in reversed(self.array.strides))[1:]
        slots = [MAP_MARK, address, len(self.box), itemsize, *sizes]
        slots += [*strides, 0, 0][:2]
        slots += [*_three(self.box), self.swizzle]
        return struct.pack("<16Q", *slots, *[0] * (16 - len(slots)))

    def _driver_strides(self) -> list[int]:
        """Bytes from one y to the next and so on. One dimension has none, but the driver refuses
        an empty list: it gets one that it does not use."""
        strides = [int(n) for n in reversed(self.array.strides)][1:]
        return strides or [-(-int(self.array.nbytes) // 16) * 16]

    def real_bytes(self) -> bytes:
        """The driver's map (cuTensorMapEncodeTiled) of an array in the GPU's memory."""
        import ctypes

        from cuda.bindings import driver

        count = len(self.box)
        kinds = driver.CUtensorMapDataType
        swizzles = driver.CUtensorMapSwizzle
        error, encoded = driver.cuTensorMapEncodeTiled(
            getattr(kinds, f"CU_TENSOR_MAP_DATA_TYPE_{_ELEMENTS[str(self.array.dtype)]}"),
            count,
            self.array.data.ptr,
            [driver.cuuint64_t(int(n)) for n in reversed(self.array.shape)],
            [driver.cuuint64_t(n) for n in self._driver_strides()],
            [driver.cuuint32_t(int(n)) for n in reversed(self.box)],
            [driver.cuuint32_t(1)] * count,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(
                swizzles,
                "CU_TENSOR_MAP_SWIZZLE_" + (f"{self.swizzle}B" if self.swizzle else "NONE"),
            ),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        if error != driver.CUresult.CUDA_SUCCESS:
            raise TensorMapError(f"The driver refuses this tensor map: {error.name}.")
        return bytes((ctypes.c_ubyte * MAP_BYTES).from_address(encoded.getPtr()))


def tensor_map(array: Any, box: Sequence[int], swizzle: int = 0) -> TensorMap:
    """A tensor map of a NumPy or CuPy array of 1 to 3 dimensions, to pass to a kernel.

    `box` is the tile that one copy moves, in elements and in the array's order of axes, such as
    `(rows, columns)`; a kernel names its corner in the opposite order, `{column, row}`. `swizzle`
    is 0, 32, 64 or 128 bytes. Elements of a box outside the array read as zeros and are not
    written. The first coordinate times the bytes of an element must be a multiple of 16, and a
    store's coordinates must not be negative: the H200 ends such a kernel, and so does the virtual
    GPU. Raises TensorMapError where a rule of CUDA's tensor maps is broken (cuTensorMapEncodeTiled,
    CUDA Driver API); the same on both devices.
    """
    box = tuple(int(n) for n in box)
    _check_array(array)
    _check_box(array, box)
    _check_swizzle(array, box, swizzle)
    return TensorMap(array, box, int(swizzle))


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    """Sizes along x, y and z from an array's order; those that are missing are 1."""
    x, y, z = (*(int(n) for n in reversed(sizes)), 1, 1)[:3]
    return x, y, z


def _check_array(array: Any) -> None:
    if str(array.dtype) not in _ELEMENTS:
        raise TensorMapError(
            f"A tensor map cannot hold elements of type {array.dtype}: take one of "
            f"{', '.join(_ELEMENTS)}."
        )
    if not 1 <= array.ndim <= 3:
        raise TensorMapError(
            f"The array has {array.ndim} dimensions: tensor maps of 1 to 3 dimensions are there."
        )
    if 0 in array.shape or max(array.shape) > 1 << 32:
        raise TensorMapError(f"An array of shape {array.shape} cannot be mapped.")
    if not array.flags.c_contiguous:
        raise TensorMapError(
            "The array is not contiguous: make a tensor map of numpy.ascontiguousarray(...)."
        )
    for axis, stride in enumerate(array.strides[:-1]):
        if stride % 16:
            raise TensorMapError(
                f"Axis {axis} of the array steps {stride} bytes from one index to the next: the "
                "tensor copy unit needs a multiple of 16. Make the last axis a multiple of "
                f"{16 // math.gcd(16, int(array.dtype.itemsize))} elements long (pad it)."
            )
    if _address(array) % 16:
        raise TensorMapError(
            "The array does not begin at a multiple of 16 bytes, as a tensor map must: map the "
            "whole array, and name the corner of the tile in the kernel."
        )


def _address(array: Any) -> int:
    """Address of the first element as far as alignment counts: within what it is a view of."""
    if hasattr(array, "data") and hasattr(array.data, "ptr"):
        return int(array.data.ptr)
    owner = array
    while getattr(owner, "base", None) is not None and hasattr(owner.base, "ctypes"):
        owner = owner.base
    return int(array.ctypes.data) - int(owner.ctypes.data)


def _check_box(array: Any, box: tuple[int, ...]) -> None:
    if len(box) != array.ndim:
        raise TensorMapError(
            f"The box {box} has {len(box)} dimensions, and the array has {array.ndim}."
        )
    for axis, length in enumerate(box):
        if not 1 <= length <= 256:
            raise TensorMapError(
                f"The box {box} is {length} elements long along axis {axis}: a tensor copy moves "
                "1 to 256 along each."
            )
    row = box[-1] * int(array.dtype.itemsize)
    if row % 16:
        raise TensorMapError(
            f"A row of the box is {box[-1]} elements = {row} bytes: it must be a multiple of 16."
        )


def _check_swizzle(array: Any, box: tuple[int, ...], swizzle: int) -> None:
    if swizzle not in SWIZZLES:
        raise TensorMapError(f"swizzle={swizzle!r} is none of 0, 32, 64 and 128 bytes.")
    row = box[-1] * int(array.dtype.itemsize)
    if swizzle and row > swizzle:
        raise TensorMapError(
            f"A row of the box is {row} bytes, and a swizzle of {swizzle} bytes takes rows of at "
            f"most {swizzle}: give the box at most {swizzle // int(array.dtype.itemsize)} elements "
            "along the last axis, and copy a wider tile in several pieces."
        )
