"""printf of a kernel: the format and the arguments are read from the kernel's memory as text.

Addresses come from the kernel, so each is checked against the window table before it is followed.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable

from course_lib.virtual_gpu.abi import (
    B_LOCAL,
    B_LOCAL_BYTES,
    B_TABLE,
    B_TABLE_COUNT,
    T_THREAD,
    WINDOW_LOCAL,
    WINDOW_MASK,
    WINDOW_SHIFT,
)
from course_lib.virtual_gpu.records import B_CORE, B_LINEAR

LIMIT = 1 << 20
"""Characters that a launch keeps, as the FIFO of the CUDA runtime does by default."""

_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d*|\*)(?:\.(?P<precision>\*|\d*))?"
    r"(?P<size>hh|h|ll|l|z|j|t)?(?P<kind>[diouxXeEfFgGaAcsp%])"
)
_UNREADABLE = "(unreadable)"


def slot(record: int, index: int) -> int:
    """A 64-bit slot of a record, as a signed number."""
    return ctypes.c_int64.from_address(record + index * 8).value


def host_range(block: int, thread: int, address: int) -> tuple[int, int]:
    """(host address, bytes to the end of its window) of a windowed address; (0, 0) where none."""
    window, offset = address >> WINDOW_SHIFT, address & WINDOW_MASK
    if window == WINDOW_LOCAL:
        size = slot(block, B_LOCAL_BYTES)
        base = slot(block, B_LOCAL) + slot(thread, T_THREAD) * size
    elif 0 < window < slot(block, B_TABLE_COUNT):
        table = slot(block, B_TABLE)
        base, size = slot(table, 2 * window), slot(table, 2 * window + 1)
    else:
        return 0, 0
    return (base + offset, size - offset) if offset < size else (0, 0)


def text_at(block: int, thread: int, address: int, limit: int = 4096) -> str | None:
    """The NUL-terminated text at a windowed address, or None where there is none."""
    host, room = host_range(block, thread, address)
    raw = ctypes.string_at(host, min(room, limit)) if host else b""
    return raw.split(b"\0")[0].decode("utf-8", "replace") if host else None


def format_text(block: int, thread: int, format_address: int, arguments: int) -> str:
    """What one printf prints; what cannot be read is said to be unreadable."""
    pattern = text_at(block, thread, format_address)
    if pattern is None:
        return _UNREADABLE
    host, room = host_range(block, thread, arguments)
    packed = ctypes.string_at(host, min(room, 4096)) if host else b""
    position = 0

    def take(size: int, code: str) -> int | float | None:
        nonlocal position
        position = -(-position // size) * size
        raw = packed[position : position + size]
        position += size
        return struct.unpack("<" + code, raw)[0] if len(raw) == size else None

    def convert(match: re.Match[str]) -> str:
        return _converted(match, take, lambda address: text_at(block, thread, address))

    return _CONVERSION.sub(convert, pattern)


def _converted(
    match: re.Match[str],
    take: Callable[[int, str], int | float | None],
    read: Callable[[int], str | None],
) -> str:
    kind, size = match["kind"], match["size"] or ""
    if kind == "%":
        return "%"
    flags, width = match["flags"], match["width"]
    if width == "*":
        width = str(take(4, "i") or "")
    precision = "" if match["precision"] is None else "." + match["precision"]
    if precision == ".*":
        precision = f".{take(4, 'i') or 0}"
    wide = size in ("l", "ll", "z", "j", "t")
    if kind in "eEfFgGaA":
        value = take(8, "d")
        kind = "e" if kind in "aA" else kind
    elif kind in "ps":
        value = take(8, "Q")
    elif kind in "ouxX":
        value = take(8, "Q") if wide else take(4, "I")
    elif kind == "c":
        value = take(4, "i")
    else:
        value, kind = (take(8, "q") if wide else take(4, "i")), "d"
    if value is None:
        return _UNREADABLE
    if kind == "p":
        return f"{value:#x}"
    if kind == "s":
        return f"%{flags}{width}{precision}s" % (read(int(value)) or _UNREADABLE)
    if kind == "c":
        return chr(int(value) & 255)
    return f"%{flags}{width}{precision}{kind}" % value


class Printed:
    """Lines of one worker: (linear block, order of printing, text)."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, int, str]] = []
        self.size = 0

    def add(self, block: int, text: str) -> None:
        """Keep a text, up to LIMIT in all."""
        if self.size <= LIMIT:
            self.lines.append((block, len(self.lines), text))
            self.size += len(text)


_by_core: dict[int, Printed] = {}


def attach(core: int, printed: Printed) -> None:
    """What kernels of this core record print goes to `printed`."""
    _by_core[core] = printed


def detach(core: int) -> None:
    """The core record is about to disappear."""
    _by_core.pop(core, None)


def _printf(block: int, thread: int, pattern: int, arguments: int, site: int) -> int:
    printed = _by_core.get(slot(block, B_CORE))
    if printed is not None and printed.size <= LIMIT:
        try:
            text = format_text(block, thread, pattern, arguments)
        except (TypeError, ValueError, OverflowError):
            text = _UNREADABLE
        printed.add(slot(block, B_LINEAR), text)
    return 1


def joined(all_printed: list[Printed]) -> str:
    """The text of all workers, block by block, so that it does not depend on their number."""
    lines = sorted((line for printed in all_printed for line in printed.lines), key=lambda x: x[:2])
    text = "".join(line[2] for line in lines)
    if any(printed.size > LIMIT for printed in all_printed):
        text += f"\n... (more than {LIMIT >> 20} MB was printed; the rest is left out)\n"
    return text


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)(_printf)
ADDRESS = ctypes.cast(CALLBACK, ctypes.c_void_p).value or 0
