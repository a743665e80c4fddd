"""The records that stamped kernels write: their buffer, and what they say.

A record is {clock (low 32 bits), site << 1 | phase, shared address, (global address >> 4) & 2³²-1};
the buffer is laid out [block slot][warp][capacity].  The first record of a warp is its header:
{clock at entry, HEADER_MARK, SM, linear block}.  A warp that runs out of records keeps overwriting
its last one, which :func:`decode` drops and reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

RECORD_BYTES = 16
HEADER_MARK = 0xFFFFFFFF


class Aliased(Protocol):
    """What decoding needs of a :class:`course_lib.ptx.probes.ProbedPtx`."""

    @property
    def aliases(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        """(site, phase) -> the (site, phase) before it that its record stands for as well."""


EVENT = np.dtype(
    [
        ("slot", "i4"),
        ("block", "i8"),
        ("sm", "i4"),
        ("warp", "i4"),
        ("order", "i4"),  # program order within the warp
        ("site", "i4"),
        ("phase", "i1"),
        ("clock", "i8"),  # cycles since the first stamped warp's entry, unwrapped
        ("shared", "u4"),
        ("global_address", "u8"),  # modulo 2**36, in steps of 16: see locate()
    ]
)


@dataclass(frozen=True)
class Decoded:
    """Events of all stamped warps, and the warps whose records ran out."""

    events: np.ndarray
    entries: np.ndarray  #: one EVENT per warp, site 0: when it began
    truncated: tuple[tuple[int, int], ...] = ()  #: (block, warp)


def allocate(xp: Any, slots: int, warps: int, capacity: int) -> Any:
    """A zeroed ``uint32[slots, warps, capacity, 4]`` that crosses no 4 GiB line.

    ``xp`` is NumPy or CuPy.  Larger than 2 GiB is refused with ``ValueError``.
    """
    words = slots * warps * capacity * 4
    nbytes = words * 4
    if nbytes > 1 << 31:
        raise ValueError(f"{nbytes >> 20} MiB of stamps; ask for fewer blocks or records")
    store = xp.zeros(2 * words + 64, dtype=xp.uint32)
    begin = address_of(store)
    skip = -begin % 64
    line = (begin >> 32) + 1 << 32
    if begin + skip < line < begin + skip + nbytes:
        skip = line - begin
    return store[skip // 4 : skip // 4 + words].reshape(slots, warps, capacity, 4)


def address_of(array: Any) -> int:
    """Where an array's first element is, for NumPy and CuPy arrays."""
    return int(array.data.ptr if hasattr(array.data, "ptr") else array.ctypes.data)


def decode(records: np.ndarray, probed: Aliased) -> Decoded:
    """Turns the filled buffer, shape ``[slots, warps, capacity, 4]``, into events.

    Clocks count from the first header found.  They compare within one SM only: each SM has its own
    clock.  Warps that never ran have no header and give nothing.
    """
    records = np.asarray(records, dtype=np.uint32)
    headers = records[:, :, 0, :]
    present = np.argwhere(headers[:, :, 1] == HEADER_MARK)
    origin = int(headers[tuple(present[0])][0]) if len(present) else 0
    parts, entries, truncated = [], [], []
    for slot, warp in present:
        header = headers[slot, warp]
        begin = _signed32(int(header[0]) - origin)
        written = records[slot, warp, 1:]
        count = int((written[:, 1] != 0).sum())
        if count == len(written):
            truncated.append((int(header[3]), int(warp)))
            count -= 1
        events = _events_of_warp(written[:count], begin, int(header[0]), probed)
        common = {"slot": slot, "warp": warp, "sm": header[2], "block": header[3]}
        entry = np.zeros(1, EVENT)
        entry["clock"] = begin
        for part in (events, entry):
            for name, value in common.items():
                part[name] = value
        parts.append(events)
        entries.append(entry)
    empty = np.zeros(0, EVENT)
    return Decoded(
        np.concatenate(parts) if parts else empty,
        np.concatenate(entries) if entries else empty,
        tuple(truncated),
    )


def _signed32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _events_of_warp(written: np.ndarray, begin: int, raw: int, probed: Aliased) -> np.ndarray:
    """Events of one warp, with the aliases written out and the 32-bit clock unwrapped."""
    clocks = written[:, 0].astype(np.int64)
    steps = np.diff(clocks, prepend=raw) % (1 << 32)
    if len(steps):  # a polling wait's first record repeats an earlier reading: never "before" it
        steps[steps >= 1 << 31] -= 1 << 32
    unwrapped = begin + np.cumsum(steps)
    marks = written[:, 1].astype(np.int64)
    copies = np.ones(len(marks), dtype=np.int64)
    alias_of = {site << 1 | phase: s << 1 | p for (site, phase), (s, p) in probed.aliases.items()}
    for mark in alias_of:
        copies[marks == mark] = 2
    source = np.repeat(np.arange(len(marks)), copies)
    events = np.zeros(len(source), EVENT)
    expanded = marks[source]
    first = np.r_[source[1:] == source[:-1], False] if len(source) else np.zeros(0, bool)
    for mark, other in alias_of.items():
        expanded[first & (marks[source] == mark)] = other
    events["site"], events["phase"] = expanded >> 1, expanded & 1
    events["clock"] = unwrapped[source]
    own = ~first  # the access's addresses are not those of the barrier before it
    events["shared"] = np.where(own, written[source, 2], 0)
    events["global_address"] = np.where(own, written[source, 3], 0).astype(np.uint64) << np.uint64(
        4
    )
    events["order"] = np.arange(len(events))
    return events


def locate(
    addresses: Iterable[int] | np.ndarray, arrays: Mapping[str, tuple[int, int]]
) -> tuple[list[str], np.ndarray]:
    """Which array each recorded global address lies in, and at which byte.

    ``arrays`` maps names to (address, bytes).  Returns the names ("" for none) and the byte
    offsets (-1 for none), rounded down to 16 as the records are.
    """
    low = np.asarray(addresses, dtype=np.uint64)
    names = [""] * len(low)
    offsets = np.full(len(low), -1, dtype=np.int64)
    mask = np.uint64((1 << 36) - 1)
    for name, (address, nbytes) in arrays.items():
        distance = (low - np.uint64(address & ~15)) & mask
        inside = (low != 0) & (distance < nbytes) & (offsets < 0)
        offsets[inside] = np.maximum(distance[inside].astype(np.int64) - (address & 15), 0)
        for index in np.flatnonzero(inside):
            names[index] = name
    return names, offsets
