"""What a checked run is prepared with, and what comes out of it: the side of `happens_before` that
needs no numba.

The static facts of a kernel are read off its PTX: how narrow the shadow cells must be, whether it
uses the async proxy, and whether strong accesses can order threads at all.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.ptx.parse import BITS, Immediate, Instruction
from course_lib.virtual_gpu.abi import CHECK_GLOBAL, CHECK_SHARED
from course_lib.virtual_gpu.races import RawAccess, RawRace
from course_lib.virtual_gpu.records import (
    B_CELLS,
    B_CELLS_BYTES,
    B_CHUNKS,
    B_COLUMN_KINDS,
    B_ROWS,
    B_WARP_BASE,
    B_WARP_COUNT,
    B_WORDS,
    K_CELL_SHIFT,
    K_CHECK,
    K_CHUNKS_MOST,
    K_HAND_COUNT,
    K_HANDS,
    K_PARTS,
    K_PROXIES,
    K_RACE_COUNT,
    K_RACES,
    K_SNAPSHOTS,
    K_TRAIL,
    K_TRAIL_COUNT,
    K_TRAIL_MOST,
    RACE_BLOCK,
    RACE_BYTES,
    RACE_COUNT,
    RACE_FILL,
    RACE_FIRST_GROUP,
    RACE_FIRST_KIND,
    RACE_FIRST_SITE,
    RACE_FIRST_SOURCE,
    RACE_FIRST_THREAD,
    RACE_MISSING,
    RACE_OFFSET,
    RACE_SECOND_GROUP,
    RACE_SECOND_KIND,
    RACE_SECOND_SITE,
    RACE_SECOND_SOURCE,
    RACE_SECOND_THREAD,
    RACE_SLOTS,
)

if TYPE_CHECKING:
    from course_lib.virtual_gpu.flow import FlatKernel

# What an access is: flags that are added.
WRITES = 1
ATOMIC = 2  # strong: two of them never race
ASYNC_PROXY = 4  # bulk and tensor copies, wgmma
STRONG_ACCESS = 8  # with ATOMIC: a volatile or relaxed load or store, not a read-modify-write
DEVICE_SCOPE = 16  # with ATOMIC: its scope holds other blocks
STRONG_READ = ATOMIC | STRONG_ACCESS
STRONG_WRITE = WRITES | ATOMIC | STRONG_ACCESS
UPDATE = WRITES | ATOMIC

# What a column counts.
COLUMN_THREAD, COLUMN_COPY, COLUMN_BULK, COLUMN_MBARRIER, COLUMN_WGMMA = range(5)
COLUMN_IMPORT = 5  # 1: what another block released is known here; its owner is the snapshot

# An entry of the trail of accesses to global memory (`global_accesses`).
TRAIL_BLOCK, TRAIL_COLUMN, TRAIL_VALUE, TRAIL_OFFSET, TRAIL_BYTES, TRAIL_SITE, TRAIL_WHO = range(7)
TRAIL_SLOTS = 8
KNOWS = -1  # in TRAIL_COLUMN: the next access knows the snapshot in TRAIL_VALUE

# A snapshot: what one block had released, then the snapshots it knew, then its row (32 bits each).
SNAPSHOT_BLOCK, SNAPSHOT_COLUMNS, SNAPSHOT_KNOWN, SNAPSHOT_NEXT, SNAPSHOT_IDS = range(5)

CELL_BYTES = 64
"""Size of the record of one cell."""
WIDEST_CELL = 16
"""Bytes that a cell stands for at most; wider accesses cover several."""

STRONG = ("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio")
"""Words of an opcode that make an access strong (PTX ISA, memory consistency model)."""

MISSING = ("", "order", "wait", "visibility", "phase", "group", "proxy", "proxy-read")
"""Names of happens_before.M_*."""

MOST_TRAIL = 1 << 23
"""Accesses to global memory that one launch remembers: half a gigabyte."""

MOST_CHUNKS = 1024
"""Chunks of a megabyte that the read records of one block take."""

NO_MEMORY = (
    "The check of this launch needs more memory than there is (over a gigabyte for the reads of "
    "one block): check fewer blocks, or smaller tiles."
)

# --- static facts -------------------------------------------------------------------------------


def _instructions(flat: FlatKernel) -> Iterator[Instruction]:
    return (item for item in flat.code if isinstance(item, Instruction) and not item.probe)


_ELSEWHERE = {
    CHECK_SHARED: ("global", "local", "param", "const"),
    CHECK_GLOBAL: ("shared", "local", "param"),
}
"""State spaces that a check does not follow."""


def _bytes_of(item: Instruction, check: int) -> int | None:
    """Bytes of an access that may go to the memory checked; None for everything else."""
    spaces = [w.partition("::")[0] for w in item.modifiers]
    if item.family in ("ld", "ldu", "st", "atom", "red"):
        if any(space in _ELSEWHERE[check] for space in spaces):
            return None
        vector = next((int(w[1]) for w in item.modifiers if w in ("v2", "v4", "v8")), 1)
        return BITS.get(item.opcode.rpartition(".")[2], 8) // 8 * vector
    if item.opcode.startswith(("cp.async.ca", "cp.async.cg")):
        size = item.operands[2] if len(item.operands) > 2 else None
        return size.value if isinstance(size, Immediate) else 4
    if item.family == "wmma":
        return 2
    if item.family in ("stmatrix", "ldmatrix"):
        return 4
    return None


def cell_shift(flat: FlatKernel, check: int = CHECK_SHARED) -> int:
    """A cell stands for 1 << shift bytes: as few as the narrowest access to the memory checked has,
    so that neighbours never seem to race."""
    sizes = [size for item in _instructions(flat) if (size := _bytes_of(item, check))]
    narrowest = min([WIDEST_CELL, *sizes])
    return narrowest.bit_length() - 1


def uses_proxies(flat: FlatKernel) -> bool:
    """Does the kernel have instructions of the async proxy?"""
    asynchronous = ("cp.async.bulk", "cp.reduce", "wgmma", "tcgen05")
    return any(item.opcode.startswith(asynchronous) for item in _instructions(flat))


def orders_by_words(flat: FlatKernel) -> bool:
    """Can a strong access order threads? Only where something fences, acquires or releases."""
    for item in _instructions(flat):
        words = item.modifiers
        if item.family in ("fence", "membar") and "proxy" not in words:
            return True
        if item.family in ("ld", "st", "atom", "red"):
            if any(w in ("acquire", "release", "acq_rel") for w in words):
                return True
    return False


# --- memory of a checked run ----------------------------------------------------------------------


def prepare_block(record: np.ndarray, memory_bytes: int, shift: int) -> list[np.ndarray]:
    """Fill the checker's slots of a block record that follows so many bytes; returns what must live
    as long as the record."""
    cells = np.zeros(((memory_bytes >> shift) + 2) * CELL_BYTES, np.uint8)
    warp_base = np.zeros(int(record[B_WARP_COUNT]) + 8, np.int32)
    record[B_CELLS] = cells.ctypes.data
    record[B_CELLS_BYTES] = cells.nbytes
    record[B_WARP_BASE] = warp_base.ctypes.data
    return [cells, warp_base]


def prepare_core(core: np.ndarray, flat: FlatKernel, check: int) -> None:
    """Fill the checker's slots of a core record."""
    core[K_CHECK] = check
    core[K_TRAIL_MOST], core[K_CHUNKS_MOST] = MOST_TRAIL, MOST_CHUNKS
    core[K_CELL_SHIFT] = cell_shift(flat, check)
    core[K_PROXIES] = int(uses_proxies(flat))
    core[K_PARTS] = 1 + core[K_PROXIES] + (2 if check == CHECK_GLOBAL else 0)


@functools.lru_cache(maxsize=1)
def _free() -> Any:
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    return free


def free_tables(core: np.ndarray, records: np.ndarray) -> None:
    """Return the tables that the run-time allocated while they grew."""
    for record in records:
        for slot in (B_ROWS, B_COLUMN_KINDS, B_WORDS):
            _free()(int(record[slot]))
        chunk = int(record[B_CHUNKS])
        while chunk:
            following = ctypes.c_int64.from_address(chunk).value
            _free()(chunk)
            chunk = following
    free_snapshots(core)
    for slot in (K_RACES, K_TRAIL, K_HANDS):
        _free()(int(core[slot]))


def free_snapshots(core: np.ndarray) -> None:
    """Forget what blocks of the launch before have released to others."""
    snapshot = int(core[K_SNAPSHOTS])
    while snapshot:
        following = ctypes.c_int64.from_address(snapshot + 8 * SNAPSHOT_NEXT).value
        _free()(snapshot)
        snapshot = following
    core[K_SNAPSHOTS] = core[K_HAND_COUNT] = core[K_TRAIL_COUNT] = 0


# --- what was found -------------------------------------------------------------------------------


def kind_name(code: int) -> str:
    """ACCESS_KINDS of an access's flags and the kind of its column."""
    flags, column = code & 0xFF, code >> 8
    if column == COLUMN_COPY:
        return "copy"
    if flags & ASYNC_PROXY:
        if flags & WRITES:
            return "bulk copy"
        return "wgmma read" if column == COLUMN_WGMMA else "bulk store"
    if flags & ATOMIC and not flags & STRONG_ACCESS:
        return "atomic"
    return "write" if flags & WRITES else "read"


def _access(row: np.ndarray, slots: Sequence[int]) -> RawAccess:
    site, kind, thread, group, source = (int(row[slot]) for slot in slots)
    return RawAccess(
        thread=thread,
        warp=thread // 32,
        site=site,
        kind=kind_name(kind),
        source=source or None,
        group=group if group >= 0 else None,
    )


_FIRST = (
    RACE_FIRST_SITE, RACE_FIRST_KIND, RACE_FIRST_THREAD, RACE_FIRST_GROUP, RACE_FIRST_SOURCE
)  # fmt: skip
_SECOND = (
    RACE_SECOND_SITE, RACE_SECOND_KIND, RACE_SECOND_THREAD, RACE_SECOND_GROUP, RACE_SECOND_SOURCE
)  # fmt: skip


def _races_of(core: np.ndarray) -> Iterator[RawRace]:
    count = int(core[K_RACE_COUNT])
    if count == 0:
        return
    numbers = (ctypes.c_int64 * (count * RACE_SLOTS)).from_address(int(core[K_RACES]))
    for row in np.array(numbers, np.int64).reshape(count, RACE_SLOTS):
        yield RawRace(
            block=int(row[RACE_BLOCK]),
            offset=int(row[RACE_OFFSET]),
            bytes=int(row[RACE_BYTES]),
            first=_access(row, _FIRST),
            second=_access(row, _SECOND),
            missing=MISSING[int(row[RACE_MISSING])],
            count=int(row[RACE_COUNT]),
            fill=int(row[RACE_FILL]) >> 1,
            found_reads=bool(row[RACE_FILL] & 1),
        )


def collect_races(cores: Iterable[np.ndarray]) -> list[RawRace]:
    """The races of all cores, one for each cause; of equal causes the lowest block's facts."""
    found: dict[tuple[object, ...], RawRace] = {}
    for race in (race for core in cores for race in _races_of(core)):
        first, second = race.first, race.second
        cause = (first.site, first.kind, second.site, second.kind, race.missing)
        other = found.get(cause)
        if other is not None:
            total = race.count + other.count
            kept = min(race, other, key=lambda r: r.block)
            race = replace(kept, count=total)
        found[cause] = race
    return sorted(found.values(), key=lambda r: (r.block, r.first.site, r.second.site, r.missing))
