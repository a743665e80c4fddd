"""The kernel's view of the host's arrays: address windows, packed parameters, addresses in words.

Every array argument gets a window of the address space of its own, so that one array's end never
touches another's beginning, and any stray address is caught and can be named.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.tensor_maps import MAP_BYTES, TensorMap
from course_lib.virtual_gpu.abi import (
    WINDOW_GLOBALS,
    WINDOW_LOCAL,
    WINDOW_MASK,
    WINDOW_NULL,
    WINDOW_PARAMETERS,
    WINDOW_SHARED,
    WINDOW_SHIFT,
    WINDOW_USER,
)
from course_lib.virtual_gpu.signature import Declared

HOST_ALIGNMENT = 16
"""The widest access of a kernel: what host addresses must be multiples of."""

DEVICE_ALIGNMENT = 256
"""What device allocators promise for the start of an array."""

_FLOATS = {"f16": "e", "f32": "f", "f64": "d"}


class ArgumentError(TypeError):
    """The launch does not fit the kernel's parameters; the message names the parameter."""


@dataclass(frozen=True)
class Slot:
    """Where one parameter lies in the packed parameters, and its PTX type."""

    declared: Declared
    offset: int
    size: int
    type: str


@dataclass
class Window:
    """One array as the kernel sees it. `skew`: bytes before the array in its window."""

    declared: Declared
    array: np.ndarray
    memory: np.ndarray
    skew: int
    copies_back: bool

    @property
    def host(self) -> int:
        """Host address of the window's start."""
        return int(self.memory.ctypes.data)

    @property
    def size(self) -> int:
        """Bytes of the window."""
        return self.skew + int(self.array.nbytes)

    def write_back(self) -> None:
        """Bring what the kernel wrote home, where it worked on a copy."""
        if self.copies_back:
            raw = self.memory[self.skew : self.size]
            self.array[...] = raw.view(self.array.dtype).reshape(self.array.shape)


class AddressSpace:
    """Windows and packed parameters of one launch."""

    def __init__(self, slots: Sequence[Slot], arguments: Sequence[Any], size: int) -> None:
        _check_count(slots, arguments)
        self.windows: list[Window] = []
        self._known: dict[tuple[int, int, bool], int] = {}
        packed = np.zeros(max(size, 1) + 16, np.uint8)
        for slot, argument in zip(slots, arguments, strict=True):
            raw = self._bytes_of(slot, argument)
            packed[slot.offset : slot.offset + slot.size] = np.frombuffer(raw, np.uint8)
        self.parameters = packed

    def table_entries(self) -> list[tuple[int, int]]:
        """(host address, bytes) of every user window, in order from WINDOW_USER."""
        return [(window.host, window.size) for window in self.windows]

    def addresses(self) -> dict[str, int]:
        """Parameter name to windowed address of the array given for it."""
        return {
            window.declared.name: ((WINDOW_USER + k) << WINDOW_SHIFT) + window.skew
            for k, window in enumerate(self.windows)
        }

    def write_back(self) -> None:
        """After the run: copies of unaligned arrays go home."""
        for window in self.windows:
            window.write_back()

    # --- packing --------------------------------------------------------------------------------

    def _bytes_of(self, slot: Slot, argument: Any) -> bytes:
        name = f"parameter `{slot.declared}`"
        if isinstance(argument, TensorMap):
            return self._map_of(slot, argument, name)
        if isinstance(argument, np.ndarray):
            return struct.pack("<Q", self._address_of(slot, argument, name))
        if isinstance(argument, bytes | bytearray | np.void):
            raw = bytes(argument) if not isinstance(argument, np.void) else argument.tobytes()
            if len(raw) != slot.size:
                raise ArgumentError(
                    f"{name} takes {slot.size} bytes, and {len(raw)} bytes were given."
                )
            return raw
        if argument is None and slot.size == 8:
            return bytes(8)
        if isinstance(argument, int | float | np.number | np.bool_):
            return _scalar_bytes(slot, argument, name)
        raise ArgumentError(
            f"{name} got a {type(argument).__name__}: the virtual GPU takes NumPy arrays, numbers "
            f"and bytes."
        )

    def _map_of(self, slot: Slot, tensor: TensorMap, name: str) -> bytes:
        if slot.size != MAP_BYTES:
            raise ArgumentError(
                f"{name} has {slot.size} bytes, and a tensor map of {MAP_BYTES} was given for it: "
                "declare it as `const __grid_constant__ TensorMap`."
            )
        if not isinstance(tensor.array, np.ndarray):
            raise ArgumentError(
                f"{name} got a tensor map of a {type(tensor.array).__name__} that is not NumPy's: "
                "the virtual GPU takes NumPy arrays."
            )
        return tensor.virtual_bytes(self._windowed(slot.declared, tensor.array))

    def _address_of(self, slot: Slot, array: np.ndarray, name: str) -> int:
        declared = slot.declared
        if slot.size == MAP_BYTES:
            raise ArgumentError(
                f"{name} is a tensor map, and an array was given for it: pass "
                "tensor_map(array, box=...) of course_lib.tensor_maps."
            )
        if slot.size != 8 or (declared.text and not declared.is_pointer):
            raise ArgumentError(f"{name} is a value, and an array was given for it.")
        if declared.element_bytes and array.dtype.itemsize not in (1, declared.element_bytes):
            raise ArgumentError(
                f"{name} points to elements of {declared.element_bytes} bytes, and the array given "
                f"for it holds {array.dtype} ({array.dtype.itemsize} bytes each): convert it with "
                f".astype() before the launch."
            )
        if array.dtype.kind in "iu" and _POINTS_TO_FLOATS.search(declared.text):
            raise ArgumentError(
                f"{name} points to floating-point numbers, and the array given for it holds "
                f"{array.dtype}: convert it with .astype() before the launch, or with .view() if "
                f"its bits are meant."
            )
        if array.dtype.hasobject:
            raise ArgumentError(f"{name} got an array of Python objects.")
        if not array.dtype.isnative:
            raise ArgumentError(
                f"{name} got an array whose bytes are swapped ({array.dtype.str}): convert it with "
                f".astype({array.dtype.newbyteorder('=').name!r}) before the launch."
            )
        if not array.flags.c_contiguous:
            raise ArgumentError(
                f"{name} got an array that is not contiguous: pass numpy.ascontiguousarray(...)."
            )
        return self._windowed(declared, array)

    def _windowed(self, declared: Declared, array: np.ndarray) -> int:
        """The windowed address of an array; one that was given before keeps its window."""
        key = (int(array.ctypes.data), int(array.nbytes), bool(array.flags.writeable))
        if key not in self._known:
            self.windows.append(_window(declared, array))
            self._known[key] = len(self.windows) - 1
        index = self._known[key]
        return ((WINDOW_USER + index) << WINDOW_SHIFT) + self.windows[index].skew

    # --- addresses in words ---------------------------------------------------------------------

    def describe(self, address: int, count: int) -> Place:
        """What lies at a windowed address."""
        number, offset = address >> WINDOW_SHIFT, address & WINDOW_MASK
        index = number - WINDOW_USER
        if 0 <= index < len(self.windows):
            return _place_in(self.windows[index], offset, count)
        # A step before an array's start borrows from the window number.
        if offset >= 1 << (WINDOW_SHIFT - 1) and 0 <= index + 1 < len(self.windows):
            return _place_in(self.windows[index + 1], offset - (1 << WINDOW_SHIFT), count)
        if number == WINDOW_NULL:
            return Place("null", f"address {address:#x}", offset, 0)
        known = {
            WINDOW_SHARED: "shared memory",
            WINDOW_LOCAL: "local memory",
            WINDOW_PARAMETERS: "the kernel's parameters",
            WINDOW_GLOBALS: "the module's variables",
        }
        if number in known:
            return Place("space", f"{known[number]}, byte {offset}", offset, 0)
        return Place("wild", f"address {address:#x}", offset, 0)


@dataclass(frozen=True)
class Place:
    """An address in words. `kind`: array, null, space or wild; `beyond` in bytes past the end."""

    kind: str
    words: str
    offset: int
    beyond: int
    name: str = ""
    bounds: str = ""


def _place_in(window: Window, offset: int, count: int) -> Place:
    itemsize = window.array.dtype.itemsize
    offset -= window.skew
    index = offset // itemsize
    inside = f" + {offset % itemsize} bytes" if offset % itemsize else ""
    name = window.declared.name
    size = window.array.size
    beyond = max(0, offset + count - int(window.array.nbytes))
    if offset < 0:
        bounds = f"{_elements(-index)} before the start"
    elif offset >= window.array.nbytes:
        bounds = f"{_elements(index - size + 1)} past the end"
    elif beyond:
        bounds = f"the last {beyond} bytes are past the end"
    else:
        bounds = ""
    words = f"{name}[{index}]{inside}"
    return Place("array", words, offset, beyond, f"{name} ({_elements(size)})", bounds)


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count:,} elements"


def _check_count(slots: Sequence[Slot], arguments: Sequence[Any]) -> None:
    if len(slots) == len(arguments):
        return
    wanted = ", ".join(str(slot.declared) for slot in slots)
    raise ArgumentError(
        f"The kernel takes {len(slots)} parameters ({wanted}), and {len(arguments)} arguments "
        f"were given."
    )


_POINTS_TO_FLOATS = re.compile(r"\b(float|double)[1-4]?\s*(const\s*)?\*")


def _scalar_bytes(slot: Slot, value: Any, name: str) -> bytes:
    if isinstance(value, complex | np.complexfloating):
        raise ArgumentError(f"{name} got a complex number.")
    if slot.type in _FLOATS:
        try:
            return struct.pack("<" + _FLOATS[slot.type], float(value))
        except OverflowError:
            raise ArgumentError(f"{name} cannot hold {value}: it is too large.") from None
    if slot.type == "b8" and slot.size == 2 and isinstance(value, np.float16):
        return value.tobytes()  # `half` is a structure of two bytes
    if slot.type == "b8" and slot.size != 1:
        raise ArgumentError(f"{name} is a structure of {slot.size} bytes: pass it as bytes.")
    if isinstance(value, float | np.floating) and not float(value).is_integer():
        raise ArgumentError(f"{name} is a whole number, and {value} was given.")
    whole, bits = int(value), slot.size * 8
    if not -(1 << (bits - 1)) <= whole < (1 << bits):
        raise ArgumentError(f"{name} has {bits} bits, and {whole} does not fit into them.")
    return (whole & ((1 << bits) - 1)).to_bytes(slot.size, "little")


def _window(declared: Declared, array: np.ndarray) -> Window:
    """The array itself, or a copy where its own memory may not be handed to a kernel.

    A view that starts at an odd place in its base keeps that misalignment, as it would on a GPU.
    A read-only array is copied, and what the kernel writes to it is dropped.
    """
    skew = (int(array.ctypes.data) - _owner_address(array)) % DEVICE_ALIGNMENT
    aligned = int(array.ctypes.data) % HOST_ALIGNMENT == 0
    if skew % HOST_ALIGNMENT == 0 and aligned and array.flags.writeable:
        return Window(declared, array, array, 0, False)
    memory = aligned_bytes(skew + int(array.nbytes))
    memory[skew : skew + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    return Window(declared, array, memory, skew, bool(array.flags.writeable))


def _owner_address(array: np.ndarray) -> int:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return int(array.ctypes.data)


def aligned_bytes(count: int, alignment: int = DEVICE_ALIGNMENT) -> np.ndarray:
    """`count` bytes of memory whose address is a multiple of `alignment`."""
    raw = np.empty(count + alignment + HOST_ALIGNMENT, np.uint8)
    start = -int(raw.ctypes.data) % alignment
    return raw[start : start + count + HOST_ALIGNMENT]
