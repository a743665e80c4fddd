"""Bulk and tensor copies: the engine that moves whole tiles (PTX ISA, cp.async.bulk[.tensor]).

A copy into shared memory completes on an mbarrier, which then has seen all of its bytes; a copy to
global memory completes with the bulk group of the thread that issued it. When the bytes really
move is the landing policy's choice, as it is for cp.async.

A tensor map is 128 bytes of our own (`course_lib.tensor_maps`): see the TM_* slots.
"""

from __future__ import annotations

from course_lib.virtual_gpu import happens_before
from course_lib.virtual_gpu.abi import (
    B_SHARED,
    B_SHARED_BYTES,
    B_TABLE,
    B_TABLE_COUNT,
    B_VALID,
    CHECK_GLOBAL,
    T_CLOCK,
    T_SITE,
    T_THREAD,
    WINDOW_MASK,
    WINDOW_SHIFT,
)
from course_lib.virtual_gpu.clock import fetch, log_landing, occupy, stall_until
from course_lib.virtual_gpu.copies import draw
from course_lib.virtual_gpu.global_accesses import global_access
from course_lib.virtual_gpu.happens_before import ASYNC_PROXY, COLUMN_BULK, WRITES
from course_lib.virtual_gpu.mbarriers import land_bytes_of, record_at, use
from course_lib.virtual_gpu.raw import copy_bytes, fill_bytes, load64, native, store64
from course_lib.virtual_gpu.records import (
    B_BULK_CAPACITY,
    B_BULK_COUNT,
    B_BULKS,
    B_CORE,
    B_THREAD_BYTES,
    B_THREADS,
    BULK_BAD_COLUMN,
    BULK_BAD_SIZE,
    BULK_BASE,
    BULK_BYTES,
    BULK_FULL,
    BULK_GLOBAL,
    BULK_GROUP,
    BULK_KIND,
    BULK_LOAD,
    BULK_MBARRIER,
    BULK_MISALIGNED,
    BULK_NEGATIVE,
    BULK_NO_MAP,
    BULK_OUTSIDE,
    BULK_READY_CLOCK,
    BULK_RECORD_BYTES,
    BULK_SHARED,
    BULK_SITE,
    BULK_SLOTS,
    BULK_STORE,
    BULK_TENSOR_LOAD,
    BULK_TENSOR_STORE,
    BULK_THREAD,
    BULK_X,
    BULK_Y,
    BULK_Z,
    K_CHECK,
    K_LANDING,
    K_LATENCY,
    K_MEMORY_QUEUE,
    K_TIMED,
    LAND_EARLY,
    LAND_RANDOM,
    M_COLUMN,
    M_FLYING,
    M_PHASE,
    T_BULK_COLUMN,
    T_BULK_GROUP,
    T_BULK_PENDING,
    T_BULK_READY,
    T_WAIT_SITE,
)

# Slots of our tensor maps (64 bits each).
TM_MARK, TM_ADDRESS, TM_RANK, TM_ELEMENT = 0, 1, 2, 3
TM_SIZE = 4  # elements along x, y, z
TM_STRIDE = 7  # bytes from one y to the next, and from one z to the next
TM_BOX = 9  # elements of the box along x, y, z
TM_SWIZZLE = 12  # 0, 32, 64 or 128 bytes
MAP_MARK = 0x70616D726F736E65


@native
def clear_bulks(block):
    """A new block moves in: nothing is in flight."""
    store64(block, B_BULK_COUNT, 0)


@native
def swizzled(offset, width):
    """Where 16 bytes at `offset` of a box lie: the bits above 128 bytes are mixed into its column.

    PTX ISA, tensor swizzling modes: within each pattern of 8 rows the 16-byte chunk number is
    XORed with the row number; 128 bytes wide by three bits, 64 by two, 32 by one.
    """
    if width == 128:
        return offset ^ ((offset >> 3) & 0x70)
    if width == 64:
        return offset ^ ((offset >> 3) & 0x30)
    if width == 32:
        return offset ^ ((offset >> 3) & 0x10)
    return offset


@native
def window_host(block, address, count):
    """Host address of `count` bytes at a windowed address, or 0 where they are not all there."""
    window = address >> WINDOW_SHIFT
    if window < 0 or window >= load64(block, B_TABLE_COUNT):
        return 0
    offset = address & WINDOW_MASK
    table = load64(block, B_TABLE)
    if offset + count > load64(table, 2 * window + 1):
        return 0
    return load64(table, 2 * window) + offset


# --- moving bytes ---------------------------------------------------------------------------


@native
def move_row(block, map_, base, shared_row, x, y, z, store):
    """One row of a tensor copy's box, in pieces of 16 bytes or what is left of the row."""
    element = load64(map_, TM_ELEMENT)
    width = load64(map_, TM_BOX) * element
    inside = y >= 0 and y < load64(map_, TM_SIZE + 1) and z >= 0 and z < load64(map_, TM_SIZE + 2)
    row = base + y * load64(map_, TM_STRIDE) + z * load64(map_, TM_STRIDE + 1)
    first = x * element
    limit = load64(map_, TM_SIZE) * element
    shared = load64(block, B_SHARED)
    at = 0
    while at < width:
        piece = min(16, width - at)
        place = shared + swizzled(shared_row + at, load64(map_, TM_SWIZZLE))
        low = min(piece, max(0, -(first + at)))  # bytes of the piece before the array's first
        high = max(low, min(piece, limit - (first + at)))
        if not inside:
            low = 0
            high = 0
        if store:
            if high > low:
                copy_bytes(row + first + at + low, place + low, high - low)
        else:
            if high - low < piece:
                fill_bytes(place, 0, piece)
            if high > low:
                copy_bytes(place + low, row + first + at + low, high - low)
        at += piece


@native
def move_box(block, copy, store):
    """A tensor copy's whole box; elements outside the array read as zeros and are not written."""
    map_ = load64(copy, BULK_GLOBAL)
    pitch = load64(map_, TM_BOX) * load64(map_, TM_ELEMENT)
    shared_row = load64(copy, BULK_SHARED)
    for z in range(load64(map_, TM_BOX + 2)):
        for y in range(load64(map_, TM_BOX + 1)):
            move_row(
                block,
                map_,
                load64(copy, BULK_BASE),
                shared_row,
                load64(copy, BULK_X),
                load64(copy, BULK_Y) + y,
                load64(copy, BULK_Z) + z,
                store,
            )
            shared_row += pitch


@native
def land_bulk(block, copy):
    """Move the bytes of one copy, and tell whoever waits for them."""
    kind = load64(copy, BULK_KIND)
    count = load64(copy, BULK_BYTES)
    shared = load64(block, B_SHARED) + load64(copy, BULK_SHARED)
    if kind == BULK_LOAD:
        copy_bytes(shared, load64(copy, BULK_GLOBAL), count)
    elif kind == BULK_STORE:
        copy_bytes(load64(copy, BULK_GLOBAL), shared, count)
    else:
        move_box(block, copy, kind == BULK_TENSOR_STORE)
    if kind == BULK_LOAD or kind == BULK_TENSOR_LOAD:
        fill_bytes(load64(block, B_VALID) + load64(copy, BULK_SHARED), 1, count)
        land_bytes_of(block, load64(copy, BULK_MBARRIER), count, load64(copy, BULK_READY_CLOCK))
    else:
        stride = load64(block, B_THREAD_BYTES)
        thread = load64(block, B_THREADS) + load64(copy, BULK_THREAD) * stride
        store64(thread, T_BULK_PENDING, load64(thread, T_BULK_PENDING) - 1)


@native
def land_at(block, position):
    """Land the copy at a place of the list of those in flight; younger ones move up."""
    count = load64(block, B_BULK_COUNT)
    copy = load64(block, B_BULKS) + position * BULK_RECORD_BYTES
    land_bulk(block, copy)
    for later in range(position + 1, count):
        source = load64(block, B_BULKS) + later * BULK_RECORD_BYTES
        copy_bytes(source - BULK_RECORD_BYTES, source, BULK_RECORD_BYTES)
    store64(block, B_BULK_COUNT, count - 1)


@native
def land_one_bulk(block):
    """Land the oldest copy in flight; True where there was one."""
    if load64(block, B_BULK_COUNT) == 0:
        return False
    land_at(block, 0)
    return True


@native
def land_some_bulks(core, block):
    """The random landing: some copy in flight lands now, or none does."""
    count = load64(block, B_BULK_COUNT)
    if count > 0 and draw(core, 2) == 0:
        land_at(block, draw(core, count))


# --- issuing --------------------------------------------------------------------------------


@native
def begin_copy(block, thread, kind, shared, global_, count, number, site):
    """Queue a copy; the landing policy may land it at once. Its record, or a negative answer."""
    position = load64(block, B_BULK_COUNT)
    if position >= load64(block, B_BULK_CAPACITY):
        return BULK_FULL
    copy = load64(block, B_BULKS) + position * BULK_RECORD_BYTES
    fill_bytes(copy, 0, BULK_SLOTS * 8)
    for slot, value in (
        (BULK_KIND, kind), (BULK_SHARED, shared), (BULK_GLOBAL, global_), (BULK_BYTES, count),
        (BULK_MBARRIER, number), (BULK_SITE, site), (BULK_THREAD, load64(thread, T_THREAD)),
        (BULK_GROUP, load64(thread, T_BULK_GROUP)),
    ):  # fmt: skip
        store64(copy, slot, value)
    return copy


@native
def finish_issue(block, copy):
    """The record is complete: land it now where the policy says so."""
    core = load64(block, B_CORE)
    policy = load64(core, K_LANDING)
    if policy == LAND_EARLY or (policy == LAND_RANDOM and draw(core, 2) == 0):
        land_bulk(block, copy)
    else:
        store64(block, B_BULK_COUNT, load64(block, B_BULK_COUNT) + 1)
    return 0


@native
def check_load(block, thread, shared, count, number, site, source):
    """Tell the checker that a copy now writes to shared memory until its phase completes."""
    record = record_at(block, number)
    store64(record, M_FLYING, load64(record, M_FLYING) + count)
    if load64(load64(block, B_CORE), K_CHECK):
        flags = WRITES | ASYNC_PROXY
        phase = load64(record, M_PHASE) + 1
        column = load64(record, M_COLUMN)
        happens_before.access(block, thread, shared, count, site, flags, column, phase, source)


@native
def check_store(block, thread, shared, count, site):
    """Tell the checker that a copy reads shared memory until its bulk group has read it."""
    if load64(load64(block, B_CORE), K_CHECK) == 0:
        return
    column = load64(thread, T_BULK_COLUMN)
    if column < 0:
        owner = load64(thread, T_THREAD)
        column = happens_before.new_column(block, COLUMN_BULK, owner)
        store64(thread, T_BULK_COLUMN, column)
    group = load64(thread, T_BULK_GROUP) + 1
    happens_before.access(block, thread, shared, count, site, ASYNC_PROXY, column, group, 0)


@native
def read_global(block, thread, number, address, count, site):
    """The global side of a load: read until the mbarrier's phase completes."""
    record = record_at(block, number)
    column, phase = load64(record, M_COLUMN), load64(record, M_PHASE) + 1
    global_access(block, thread, address, count, site, ASYNC_PROXY, column, phase)


@native
def write_global(block, thread, address, count, site):
    """The global side of a store: written until its bulk group is complete."""
    column, group = load64(thread, T_BULK_COLUMN), load64(thread, T_BULK_GROUP) + 1
    global_access(block, thread, address, count, site, WRITES | ASYNC_PROXY, column, group)


@native
def follow_box(block, thread, number, map_, x, y, z, site):
    """The global side of a tensor copy, row by row; `number` is its mbarrier, -1 for a store."""
    if load64(load64(block, B_CORE), K_CHECK) != CHECK_GLOBAL:
        return
    element = load64(map_, TM_ELEMENT)
    low, high = max(0, x), min(load64(map_, TM_SIZE), x + load64(map_, TM_BOX))
    for depth in range(max(0, z), min(load64(map_, TM_SIZE + 2), z + load64(map_, TM_BOX + 2))):
        top = min(load64(map_, TM_SIZE + 1), y + load64(map_, TM_BOX + 1))
        for line in range(max(0, y), top):
            row = load64(map_, TM_ADDRESS) + line * load64(map_, TM_STRIDE)
            address = row + depth * load64(map_, TM_STRIDE + 1) + low * element
            if number >= 0:
                read_global(block, thread, number, address, (high - low) * element, site)
            else:
                write_global(block, thread, address, (high - low) * element, site)


@native
def timing(block, thread, copy, address, count, load):
    """When a copy's bytes are there, on the virtual clock."""
    core = load64(block, B_CORE)
    if load64(core, K_TIMED) == 0:
        return
    now = load64(thread, T_CLOCK)
    if load:
        ready = fetch(core, address, count, now, False)
        log_landing(
            block, thread, load64(copy, BULK_SHARED), address, load64(copy, BULK_SITE), now, ready
        )
    else:
        ready = occupy(load64(core, K_MEMORY_QUEUE), now, count * 256, 1)
        store64(thread, T_BULK_READY, max(load64(thread, T_BULK_READY), ready))
        ready += load64(core, K_LATENCY)
    store64(copy, BULK_READY_CLOCK, ready)


@native
def shared_range(block, shared, count):
    """Do `count` bytes at `shared` lie in the block's shared memory?"""
    return shared >= 0 and shared + count <= load64(block, B_SHARED_BYTES)


@native
def rt_bulk_load(block, thread, shared, address, count, mbarrier, site):
    """cp.async.bulk.shared.global: `count` bytes, completing on an mbarrier."""
    number = use(block, thread, mbarrier, site)
    if number < 0:
        return number
    if (shared | address) & 15:
        return BULK_MISALIGNED
    if count & 15 or count < 0:
        return BULK_BAD_SIZE
    if not shared_range(block, shared, count):
        return BULK_OUTSIDE
    host = window_host(block, address, count)
    if host == 0:
        return BULK_OUTSIDE
    check_load(block, thread, shared, count, number, site, address)
    read_global(block, thread, number, address, count, site)
    copy = begin_copy(block, thread, BULK_LOAD, shared, host, count, number, site)
    if copy < 0:
        return copy
    timing(block, thread, copy, address, count, True)
    return finish_issue(block, copy)


@native
def rt_bulk_store(block, thread, address, shared, count, site):
    """cp.async.bulk.global.shared: `count` bytes, completing with the thread's bulk group."""
    if (shared | address) & 15:
        return BULK_MISALIGNED
    if count & 15 or count < 0:
        return BULK_BAD_SIZE
    if not shared_range(block, shared, count):
        return BULK_OUTSIDE
    host = window_host(block, address, count)
    if host == 0:
        return BULK_OUTSIDE
    check_store(block, thread, shared, count, site)
    write_global(block, thread, address, count, site)
    copy = begin_copy(block, thread, BULK_STORE, shared, host, count, -1, site)
    if copy < 0:
        return copy
    store64(thread, T_BULK_PENDING, load64(thread, T_BULK_PENDING) + 1)
    timing(block, thread, copy, address, count, False)
    return finish_issue(block, copy)


@native
def rt_tensor_copy(block, thread, shared, map_, mbarrier, x, y, z, kind, site):
    """cp.async.bulk.tensor: the box of a tensor map (host address) at (x, y, z)."""
    number = -1
    if kind == BULK_TENSOR_LOAD:
        number = use(block, thread, mbarrier, site)
        if number < 0:
            return number
    if load64(map_, TM_MARK) != MAP_MARK:
        return BULK_NO_MAP
    if shared & 127:
        return BULK_MISALIGNED
    # Both end with an illegal instruction on the H200 (tests/test_tensor_maps.py asks it).
    if (x * load64(map_, TM_ELEMENT)) & 15:
        return BULK_BAD_COLUMN
    if kind == BULK_TENSOR_STORE and (x < 0 or y < 0 or z < 0):
        return BULK_NEGATIVE
    count = load64(map_, TM_ELEMENT)
    for axis in range(3):
        count *= load64(map_, TM_BOX + axis)
    if not shared_range(block, shared, count):
        return BULK_OUTSIDE
    address = load64(map_, TM_ADDRESS)
    base = window_host(block, address, 1)
    if base == 0:
        return BULK_OUTSIDE
    strides = load64(map_, TM_STRIDE) * y + load64(map_, TM_STRIDE + 1) * z
    corner = address + max(0, strides) + max(0, x) * load64(map_, TM_ELEMENT)
    if kind == BULK_TENSOR_LOAD:
        check_load(block, thread, shared, count, number, site, corner)
    else:
        check_store(block, thread, shared, count, site)
    follow_box(block, thread, number, map_, x, y, z, site)
    copy = begin_copy(block, thread, kind, shared, map_, count, number, site)
    if copy < 0:
        return copy
    store64(copy, BULK_X, x)
    store64(copy, BULK_Y, y)
    store64(copy, BULK_Z, z)
    store64(copy, BULK_BASE, base)
    if kind == BULK_TENSOR_STORE:
        store64(thread, T_BULK_PENDING, load64(thread, T_BULK_PENDING) + 1)
    timing(block, thread, copy, corner, count, kind == BULK_TENSOR_LOAD)
    return finish_issue(block, copy)


@native
def rt_bulk_commit(block, thread):
    """cp.async.bulk.commit_group."""
    store64(thread, T_BULK_GROUP, load64(thread, T_BULK_GROUP) + 1)
    return 0


@native
def rt_bulk_wait(block, thread, allowed, read, site):
    """cp.async.bulk.wait_group[.read]: at most `allowed` of the youngest groups stay pending.

    With `read` 1 the sources have been read; what was written to global memory is not known.
    """
    limit = load64(thread, T_BULK_GROUP) - allowed
    owner = load64(thread, T_THREAD)
    position = 0
    while position < load64(block, B_BULK_COUNT):
        copy = load64(block, B_BULKS) + position * BULK_RECORD_BYTES
        mine = load64(copy, BULK_MBARRIER) < 0 and load64(copy, BULK_THREAD) == owner
        if mine and load64(copy, BULK_GROUP) < limit:
            land_at(block, position)
        else:
            position += 1
    check = load64(load64(block, B_CORE), K_CHECK)
    if read != 0 and check == CHECK_GLOBAL:
        check = 0
    if check != 0 and load64(thread, T_BULK_COLUMN) >= 0:
        happens_before.complete(block, thread, load64(thread, T_BULK_COLUMN), limit)
    if load64(load64(block, B_CORE), K_TIMED):
        store64(thread, T_SITE, site)
        store64(thread, T_WAIT_SITE, site)
        stall_until(block, thread, load64(thread, T_BULK_READY))
    return 0
