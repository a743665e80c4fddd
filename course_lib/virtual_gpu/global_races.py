"""Races in global memory within one launch, read off what `global_accesses` has written down.

Within a block the shadow cells have found them. Between blocks two accesses to the same byte, one
of them a write, are ordered only where the later one's thread knows a snapshot of the earlier one's
block that covers it. Two atomic operations never race where both scopes hold both blocks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from course_lib.virtual_gpu.abi import WINDOW_GLOBALS, WINDOW_SHIFT
from course_lib.virtual_gpu.memory import AddressSpace
from course_lib.virtual_gpu.races import RawAccess, RawRace
from course_lib.virtual_gpu.records import K_CELL_SHIFT, K_STARTS, K_TRAIL, K_TRAIL_COUNT
from course_lib.virtual_gpu.shadow import (
    ATOMIC,
    DEVICE_SCOPE,
    KNOWS,
    SNAPSHOT_BLOCK,
    SNAPSHOT_COLUMNS,
    SNAPSHOT_IDS,
    SNAPSHOT_KNOWN,
    TRAIL_BLOCK,
    TRAIL_BYTES,
    TRAIL_COLUMN,
    TRAIL_OFFSET,
    TRAIL_SITE,
    TRAIL_SLOTS,
    TRAIL_VALUE,
    TRAIL_WHO,
    WRITES,
    kind_name,
)

BETWEEN_BLOCKS = "blocks"
"""`missing` of two accesses of different blocks."""

ALIGNMENT = 256
"""Every array begins at a multiple of so many bytes of the shadow."""

_STRONG = ATOMIC | DEVICE_SCOPE


@dataclass(frozen=True)
class GlobalRace:
    """Two accesses to global memory that nothing orders, the first found of ``count`` places with
    this cause. ``where`` is the element in words, such as ``out[3]``; ``missing`` is as in
    ``races.MISSING``, or "blocks"."""

    array: str
    where: str
    bytes: int
    first: RawAccess
    first_block: int
    second: RawAccess
    second_block: int
    missing: str
    count: int = 1


class Layout:
    """Where the windows of a launch lie in the shadow of its global memory."""

    def __init__(self, space: AddressSpace, module_bytes: int) -> None:
        self.space = space
        sizes = [module_bytes, *(size for _, size in space.table_entries())]
        rounded = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
        self.starts = np.concatenate([[0], np.cumsum(rounded)]).astype(np.int64)

    @property
    def bytes(self) -> int:
        """Bytes of the shadowed memory."""
        return int(self.starts[-1])

    def prepare(self, core: np.ndarray) -> None:
        """Tell a core where the windows begin; the layout must live as long as the run."""
        core[K_STARTS] = self.starts.ctypes.data

    def describe(self, offset: int, count: int) -> tuple[str, str]:
        """(array, element in words) at an offset of the shadow."""
        window = int(np.searchsorted(self.starts, offset, side="right")) - 1
        inside = offset - int(self.starts[window])
        address = ((WINDOW_GLOBALS + window) << WINDOW_SHIFT) + inside
        place = self.space.describe(address, count)
        return place.name or place.words, place.words


@dataclass(frozen=True)
class _Snapshot:
    """What a block had released: for each of its columns the value that was reached."""

    block: int
    reached: np.ndarray
    known: tuple[int, ...]


@dataclass
class _Trail:
    """The accesses of a run in their order, and the snapshots that each one's thread knew."""

    rows: np.ndarray
    knows: dict[int, tuple[int, ...]]
    snapshots: dict[int, _Snapshot] = field(default_factory=dict)

    def ordered(self, first: int, second: int) -> bool:
        """Does an earlier access of another block happen before a later one?"""
        row = self.rows[first]
        block, column, value = (int(row[k]) for k in (TRAIL_BLOCK, TRAIL_COLUMN, TRAIL_VALUE))
        for address in self.knows.get(second, ()):
            snapshot = self.snapshot(address)
            for one in (snapshot, *map(self.snapshot, snapshot.known)):
                if one.block == block and column < len(one.reached):
                    if one.reached[column] >= value:
                        return True
        return False

    def snapshot(self, address: int) -> _Snapshot:
        """The snapshot at an address."""
        if address not in self.snapshots:
            head = (ctypes.c_int64 * SNAPSHOT_IDS).from_address(address)
            count = int(head[SNAPSHOT_KNOWN])
            known = (ctypes.c_int64 * count).from_address(address + 8 * SNAPSHOT_IDS)
            row = (ctypes.c_int32 * int(head[SNAPSHOT_COLUMNS])).from_address(
                address + 8 * (SNAPSHOT_IDS + count)
            )
            self.snapshots[address] = _Snapshot(
                int(head[SNAPSHOT_BLOCK]), np.array(row), tuple(known)
            )
        return self.snapshots[address]


def _trail_of(core: np.ndarray) -> _Trail:
    count = int(core[K_TRAIL_COUNT])
    if count == 0:
        return _Trail(np.zeros((0, TRAIL_SLOTS), np.int64), {})
    numbers = (ctypes.c_int64 * (count * TRAIL_SLOTS)).from_address(int(core[K_TRAIL]))
    rows = np.array(numbers, np.int64).reshape(count, TRAIL_SLOTS)
    marks = rows[:, TRAIL_COLUMN] == KNOWS
    knows: dict[int, tuple[int, ...]] = {}
    number = np.cumsum(~marks)  # the number of the access that follows a mark
    for at in np.flatnonzero(marks):
        access = int(number[at])
        knows[access] = (*knows.get(access, ()), int(rows[at, TRAIL_VALUE]))
    return _Trail(rows[~marks], knows)


def between_blocks(core: np.ndarray, layout: Layout) -> list[GlobalRace]:
    """Races between blocks of the run that a core has just made, one for each cause."""
    trail, shift = _trail_of(core), int(core[K_CELL_SHIFT])
    found: dict[tuple[object, ...], GlobalRace] = {}
    for cell, accesses in _shared_by_blocks(trail.rows, shift):
        seen: set[tuple[object, ...]] = set()
        for first, second in _pairs(trail, accesses):
            race = _race(trail, layout, cell << shift, 1 << shift, first, second)
            cause = _cause(race)
            if cause in seen:
                continue
            seen.add(cause)
            other = found.get(cause)
            found[cause] = replace(other, count=other.count + 1) if other else race
    return sorted(found.values(), key=lambda r: (r.first.site, r.second.site))


def _cause(race: GlobalRace) -> tuple[object, ...]:
    return (race.array, race.first.site, race.first.kind, race.second.site, race.second.kind)


def _shared_by_blocks(rows: np.ndarray, shift: int) -> Iterator[tuple[int, np.ndarray]]:
    """Each cell that blocks may race at, with the numbers of the accesses to it in their order."""
    low = rows[:, TRAIL_OFFSET] >> shift
    high = (rows[:, TRAIL_OFFSET] + rows[:, TRAIL_BYTES] - 1) >> shift
    width = high - low + 1
    access = np.repeat(np.arange(len(rows)), width)
    before = np.repeat(np.cumsum(width) - width, width)
    cell = np.repeat(low, width) + np.arange(len(access)) - before
    order = np.argsort(cell, kind="stable")
    cell, access = cell[order], access[order]
    if not len(cell):
        return
    starts = np.flatnonzero(np.concatenate([[True], cell[1:] != cell[:-1]]))
    flags, block = rows[access, TRAIL_WHO] >> 16, rows[access, TRAIL_BLOCK]
    writes = np.logical_or.reduceat(flags & WRITES != 0, starts)
    weak = np.logical_or.reduceat(flags & _STRONG != _STRONG, starts)
    several = np.minimum.reduceat(block, starts) != np.maximum.reduceat(block, starts)
    ends = np.append(starts[1:], len(cell))
    for number in np.flatnonzero(writes & weak & several):
        start = starts[number]
        yield int(cell[start]), access[start : ends[number]]


def _pairs(trail: _Trail, accesses: np.ndarray) -> Iterator[tuple[int, int]]:
    """Unordered pairs of accesses to one cell, once for each block, thread and line."""
    kept: dict[tuple[int, ...], int] = {}
    rows = trail.rows
    for number in map(int, accesses):
        row = rows[number]
        block, flags = int(row[TRAIL_BLOCK]), int(row[TRAIL_WHO]) >> 16
        for earlier in kept.values():
            other = rows[earlier]
            before = int(other[TRAIL_WHO]) >> 16
            if int(other[TRAIL_BLOCK]) == block or not (before | flags) & WRITES:
                continue
            if before & flags & _STRONG == _STRONG:
                continue
            if not trail.ordered(earlier, number):
                yield earlier, number
        # A later access at the same line by the same thread is ordered after fewer things.
        kept[block, int(row[TRAIL_COLUMN]), int(row[TRAIL_SITE]), flags] = number


def _access(row: np.ndarray) -> RawAccess:
    who = int(row[TRAIL_WHO])
    thread = who & 0xFFFF
    return RawAccess(thread, thread // 32, int(row[TRAIL_SITE]), kind_name(who >> 16))


def _race(
    trail: _Trail, layout: Layout, offset: int, count: int, first: int, second: int
) -> GlobalRace:
    one, two = trail.rows[first], trail.rows[second]
    array, where = layout.describe(offset, count)
    return GlobalRace(
        array, where, count, _access(one), int(one[TRAIL_BLOCK]),
        _access(two), int(two[TRAIL_BLOCK]), BETWEEN_BLOCKS,
    )  # fmt: skip


def within_blocks(races: Sequence[RawRace], layout: Layout) -> list[GlobalRace]:
    """What the shadow cells found, with the arrays' names."""
    return [
        GlobalRace(
            *layout.describe(race.offset, race.bytes), race.bytes, race.first, race.block,
            race.second, race.block, race.missing, race.count,
        )
        for race in races
    ]  # fmt: skip
