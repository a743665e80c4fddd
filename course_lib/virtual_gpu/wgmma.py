"""wgmma.mma_async: the matrix instruction of a warpgroup, asynchronous as the hardware's.

Every thread issues it by itself and goes on. Its accumulators leave the registers for a tile of the
warpgroup; the registers hold marks (`abi.IN_FLIGHT`) until a wait puts the results in their place,
so nothing is visible before the wait, and a chain of instructions on one tile moves nothing. The
product is computed when all 128 threads have issued it and, by the landing policy, at once or as
late as a wait allows: that is when shared memory is read.

Layouts: PTX ISA, "Asynchronous warpgroup level matrix instructions", register fragments of D and A,
matrix descriptor, canonical layouts with their strides.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import (
    B_SHARED,
    B_SHARED_BYTES,
    B_VALID,
    F_DESCRIPTOR,
    F_MATRIX_APART,
    F_WARPGROUP,
    IN_FLIGHT,
    IN_FLIGHT_SHIFT,
    T_CLOCK,
    T_LANE,
    T_SITE,
    T_THREAD,
    WGMMA_A_ACROSS,
    WGMMA_A_HELD,
    WGMMA_ADD,
    WGMMA_B_ACROSS,
    WGMMA_BFLOAT,
    WGMMA_N,
    WGMMA_NEGATIVE,
)
from course_lib.virtual_gpu.clock import stall_until
from course_lib.virtual_gpu.copies import draw
from course_lib.virtual_gpu.happens_before import (
    ASYNC_PROXY,
    COLUMN_WGMMA,
    access,
    complete,
    new_column,
)
from course_lib.virtual_gpu.matrix_math import (
    load32,
    multiply_8,
    multiply_16,
    store32,
    unpack_brains,
    unpack_halves,
    widen_half,
)
from course_lib.virtual_gpu.notes import rt_shared_uninitialised
from course_lib.virtual_gpu.raw import copy_bytes, fill_bytes, load64, native, store64
from course_lib.virtual_gpu.records import (
    ACC_BLOCK,
    ACC_COUNT,
    ACC_FIRST_SITE,
    ACC_GROUP,
    ACC_KIND,
    ACC_SITE,
    ACC_SLOTS,
    ACC_THREAD,
    B_CORE,
    B_LINEAR,
    B_THREAD_BYTES,
    B_THREAD_COUNT,
    B_THREADS,
    B_WARP_COUNT,
    B_WARPGROUPS,
    B_WARPS,
    B_WGMMA_WAITING,
    FLIGHT,
    G_ALLOCATED,
    G_CLOCKS,
    G_COLUMN,
    G_COMPLETE,
    G_DONE,
    G_ENDS,
    G_HELD,
    G_ISSUED,
    G_PENDING,
    G_TILES,
    G_VALUES,
    GROUP_RING,
    K_ACCUMULATORS,
    K_ACCUMULATORS_CAPACITY,
    K_ACCUMULATORS_COUNT,
    K_CHECK,
    K_LANDING,
    K_MATRIX_SCRATCH,
    K_TIMED,
    K_WGMMA_LATENCY,
    LAND_EARLY,
    LAND_RANDOM,
    PEND_A,
    PEND_ARRIVED,
    PEND_B,
    PEND_CLOCK,
    PEND_FIRST,
    PEND_FROM,
    PEND_GROUP,
    PEND_SHAPE,
    PEND_SITE,
    PEND_SLOTS,
    PENDING,
    T_WAIT_SITE,
    T_WGMMA_DONE,
    T_WGMMA_GROUP,
    T_WGMMA_ISSUED,
    T_WGMMA_NEEDS,
    TILE_FIRST,
    TILE_GROUP,
    TILE_N,
    TILE_SITE,
    TILE_SLOTS,
    W_READY,
    W_WGMMA,
    WARP_BYTES,
    WARPGROUP_BYTES,
)
from course_lib.virtual_gpu.tensor_cores import occupy_tensor

BLOCKED = -1
THREADS = 128  # of a warpgroup
ROWS = 64  # of A and D
CHUNK = 16  # bytes of eight halves: what the layouts move about as a whole
ONES = 0x0101010101010101


# --- a block moves in -------------------------------------------------------------------------


@native
def begin_warpgroups(block):
    """Nothing issued, nothing in flight."""
    store64(block, B_WGMMA_WAITING, 0)
    thread = load64(block, B_THREADS)
    for _ in range(load64(block, B_THREAD_COUNT)):
        store64(thread, T_WGMMA_ISSUED, 0)
        store64(thread, T_WGMMA_GROUP, 0)
        store64(thread, T_WGMMA_DONE, 0)
        thread += load64(block, B_THREAD_BYTES)
    group = load64(block, B_WARPGROUPS)
    if group == 0:
        return
    for _ in range(load64(block, B_THREAD_COUNT) // THREADS):
        for slot in (G_ISSUED, G_COMPLETE, G_DONE, G_ALLOCATED, G_COLUMN):
            store64(group, slot, 0)
        group += WARPGROUP_BYTES


@native
def wake_warpgroups(block):
    """Lanes whose warpgroup has issued what they need go on."""
    left = 0
    for warp in range(load64(block, B_WARP_COUNT)):
        record = load64(block, B_WARPS) + warp * WARP_BYTES
        waiting = load64(record, W_WGMMA)
        if waiting != 0:
            group = load64(block, B_WARPGROUPS) + (warp >> 2) * WARPGROUP_BYTES
            complete_count = load64(group, G_COMPLETE)
            thread = load64(block, B_THREADS) + warp * 32 * load64(block, B_THREAD_BYTES)
            for lane in range(32):
                if (waiting >> lane) & 1 and load64(thread, T_WGMMA_NEEDS) <= complete_count:
                    waiting &= ~(1 << lane)
                    store64(record, W_READY, load64(record, W_READY) | (1 << lane))
                thread += load64(block, B_THREAD_BYTES)
            store64(record, W_WGMMA, waiting)
            left |= waiting
    store64(block, B_WGMMA_WAITING, 1 if left != 0 else 0)


# --- where operands lie -----------------------------------------------------------------------


@native
def chunk_offset(descriptor, across, row, chunk):
    """Offset in shared memory of eight halves of an operand.

    K-major: those of `row` from column 8·`chunk` on. Across (MN-major): those of rows 8·`chunk` on,
    in column `row`.
    """
    start = (descriptor & 0x3FFF) << 4
    leading = ((descriptor >> 16) & 0x3FFF) << 4
    stride = ((descriptor >> 32) & 0x3FFF) << 4
    swizzle = (descriptor >> 62) & 3  # 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes
    if swizzle == 0:
        if across:
            return start + chunk * stride + (row & 7) * CHUNK + (row >> 3) * leading
        return start + (row >> 3) * stride + (row & 7) * CHUNK + chunk * leading
    width = 256 >> swizzle
    if across:
        per_atom = width // CHUNK
        offset = start + chunk // per_atom * leading + chunk % per_atom * CHUNK
        offset += (row & 7) * width + (row >> 3) * stride
    else:
        offset = start + (row >> 3) * stride + (row & 7) * width + chunk * CHUNK
    # Address bits 7 to 9 are added to bits 4 to 6, as many of them as the width has.
    return offset ^ ((offset >> 3) & (width - CHUNK))


@native
def operand_end(descriptor, across, rows):
    """The first byte behind the chunks of an operand (of its strides, in the worst case)."""
    end = 0
    if across:
        for column in range(16):
            for chunk in range(rows // 8):
                end = max(end, chunk_offset(descriptor, True, column, chunk))
    else:
        for row in range(rows):
            for chunk in range(2):
                end = max(end, chunk_offset(descriptor, False, row, chunk))
    return end + CHUNK


# --- issue ------------------------------------------------------------------------------------


@native
def warpgroup_of(block, thread):
    """Address of a thread's warpgroup record."""
    return load64(block, B_WARPGROUPS) + load64(thread, T_THREAD) // THREADS * WARPGROUP_BYTES


@native
def pending_at(group, number):
    """Address of the record of an instruction by its number."""
    return load64(group, G_PENDING) + number % PENDING * PEND_SLOTS * 8


@native
def tile_of(group, register):
    """Address of what a register in flight belongs to."""
    return load64(group, G_TILES) + register % FLIGHT * TILE_SLOTS * 8


@native
def marked(word):
    """The number of the register in flight that a word stands for, or -1."""
    return word & (FLIGHT - 1) if word >> IN_FLIGHT_SHIFT == IN_FLIGHT else -1


@native
def chained(group, payload, shape):
    """Number of the first register where all accumulators are one tile in flight, else -1."""
    n = shape & WGMMA_N
    first_word = load32(payload, 0)
    first = marked(first_word)
    if first < 0:
        return -1
    tile = tile_of(group, first)
    if load64(tile, TILE_FIRST) != first or load64(tile, TILE_N) != n:
        return -1
    for k in range(1, n // 2):
        if load32(payload, k) != first_word + k:
            return -1
    return first


@native
def room_for(block, group, registers):
    """Where registers could begin, counted from the first ever; BLOCKED while they are in use."""
    start = load64(group, G_ALLOCATED)
    if start % FLIGHT + registers > FLIGHT:
        start += FLIGHT - start % FLIGHT
    oldest = load64(group, G_DONE)
    while oldest < load64(group, G_ISSUED):
        if load64(pending_at(group, oldest), PEND_FROM) + FLIGHT < start + registers:
            if oldest >= load64(group, G_COMPLETE):
                return BLOCKED
            compute_until(block, group, oldest + 1)
        oldest += 1
    return start


@native
def begin_instruction(block, thread, group, payload, a, b, shape, site):
    """The first thread of a warpgroup issues an instruction; 0, BLOCKED or -F_*."""
    number = load64(group, G_ISSUED)
    n = shape & WGMMA_N
    limit = load64(block, B_SHARED_BYTES)
    if not shape & WGMMA_A_HELD and operand_end(a, shape & WGMMA_A_ACROSS, ROWS) > limit:
        return -F_DESCRIPTOR
    if operand_end(b, shape & WGMMA_B_ACROSS, n) > limit:
        return -F_DESCRIPTOR
    if number - load64(group, G_DONE) >= PENDING:
        oldest = load64(group, G_DONE)
        if load64(group, G_COMPLETE) <= oldest:
            store64(thread, T_WGMMA_NEEDS, oldest + 1)
            return BLOCKED
        compute_until(block, group, oldest + 1)
    first = chained(group, payload, shape)
    pending = pending_at(group, number)
    if first < 0:
        start = room_for(block, group, n // 2)
        if start < 0:
            store64(thread, T_WGMMA_NEEDS, load64(group, G_COMPLETE) + 1)
            return BLOCKED
        store64(group, G_ALLOCATED, start + n // 2)
        store64(pending, PEND_FROM, start)
        first = start % FLIGHT
        for k in range(n // 2):
            tile = tile_of(group, first + k)
            store64(tile, TILE_FIRST, first)
            store64(tile, TILE_N, n)
    else:
        # The tile is in use from now on, wherever in the order of allocation it came.
        store64(pending, PEND_FROM, load64(group, G_ALLOCATED) - FLIGHT // 2)
    store64(pending, PEND_A, a)
    store64(pending, PEND_B, b)
    store64(pending, PEND_SHAPE, shape)
    store64(pending, PEND_SITE, site)
    store64(pending, PEND_GROUP, load64(thread, T_WGMMA_GROUP))
    store64(pending, PEND_FIRST, first)
    store64(pending, PEND_ARRIVED, 0)
    store64(pending, PEND_CLOCK, 0)
    for k in range(n // 2):
        tile = tile_of(group, first + k)
        store64(tile, TILE_GROUP, load64(thread, T_WGMMA_GROUP))
        store64(tile, TILE_SITE, site)
    store64(group, G_ISSUED, number + 1)
    return 0


@native
def element_of(index, register, n):
    """Index in its tile of the element that a thread of the warpgroup has in register `register`:
    row 16·warp + lane/4 (+ 8), column 8·(register/4) + 2·(lane mod 4) (+ 1)."""
    lane = index & 31
    row = (index >> 5) * 16 + (lane >> 2) + 8 * ((register >> 1) & 1)
    return row * n + (register >> 2) * 8 + (lane & 3) * 2 + (register & 1)


@native
def give_accumulators(group, index, payload, first, n):
    """A thread's accumulators leave its registers for the tile, unless they are there."""
    values = load64(group, G_VALUES) + first * THREADS * 4
    mark = (IN_FLIGHT << IN_FLIGHT_SHIFT) | first
    for k in range(n // 2):
        word = load32(payload, k)
        if word != mark + k:
            store32(values, element_of(index, k, n), word)


@native
def give_operand(group, number, index, payload, shape):
    """A thread's share of an A that comes from registers."""
    held = load64(group, G_HELD) + number % PENDING * ROWS * 16 * 4
    words = payload + (shape & WGMMA_N) // 2 * 4
    lane = index & 31
    for register in range(4):
        word = load32(words, register)
        row = (index >> 5) * 16 + (lane >> 2) + 8 * (register & 1)
        column = (lane & 3) * 2 + 8 * (register >> 1)
        for half in range(2):
            bits = (word >> (16 * half)) & 0xFFFF
            bits = bits << 16 if shape & WGMMA_BFLOAT else widen_half(bits)
            store32(held, row * 16 + column + half, bits)


@native
def check_reads(block, thread, group, a, b, shape, site):
    """Tell the checker what a warp's wgmma reads: its own 16 rows of A, and B."""
    if load64(group, G_COLUMN) == 0:
        owner = load64(thread, T_THREAD) // THREADS
        store64(group, G_COLUMN, new_column(block, COLUMN_WGMMA, owner) + 1)
    column = load64(group, G_COLUMN) - 1
    value = load64(thread, T_WGMMA_GROUP) + 1
    if not shape & WGMMA_A_HELD:
        first = (load64(thread, T_THREAD) % THREADS) >> 5
        check_operand(block, thread, a, shape & WGMMA_A_ACROSS, first * 16, 16, site, column, value)
    n = shape & WGMMA_N
    check_operand(block, thread, b, shape & WGMMA_B_ACROSS, 0, n, site, column, value)


@native
def check_operand(block, thread, descriptor, across, first, rows, site, column, value):
    """Accesses to the chunks of `rows` rows, neighbours as one."""
    lines = 16 if across else rows
    chunks = rows // 8 if across else 2
    for line in range(lines):
        row = line if across else first + line
        start = -1
        count = 0
        for k in range(chunks):
            chunk = first // 8 + k if across else k
            offset = chunk_offset(descriptor, across, row, chunk)
            if count > 0 and offset == start + count:
                count += CHUNK
            elif count > 0 and offset + CHUNK == start:
                start = offset
                count += CHUNK
            else:
                if count > 0:
                    access(block, thread, start, count, site, ASYNC_PROXY, column, value, 0)
                start = offset
                count = CHUNK
        access(block, thread, start, count, site, ASYNC_PROXY, column, value, 0)


@native
def rt_wgmma(block, thread, payload, a, b, shape, site):
    """One thread issues an instruction: number of its first register in flight, BLOCKED or -F_*."""
    index = load64(thread, T_THREAD)
    if (index // THREADS + 1) * THREADS > load64(block, B_THREAD_COUNT):
        return -F_WARPGROUP
    group = warpgroup_of(block, thread)
    number = load64(thread, T_WGMMA_ISSUED)
    if number == load64(group, G_ISSUED):
        status = begin_instruction(block, thread, group, payload, a, b, shape, site)
        if status != 0:
            return status
    pending = pending_at(group, number)
    same = load64(pending, PEND_A) == a or shape & WGMMA_A_HELD
    same = same and load64(pending, PEND_B) == b and load64(pending, PEND_SITE) == site
    if not same or load64(pending, PEND_SHAPE) != shape:
        return -F_MATRIX_APART
    first = load64(pending, PEND_FIRST)
    give_accumulators(group, index % THREADS, payload, first, shape & WGMMA_N)
    if shape & WGMMA_A_HELD:
        give_operand(group, number, index % THREADS, payload, shape)
    core = load64(block, B_CORE)
    if load64(core, K_CHECK) != 0 and load64(thread, T_LANE) == 0:
        check_reads(block, thread, group, a, b, shape, site)
    store64(thread, T_WGMMA_ISSUED, number + 1)
    store64(pending, PEND_CLOCK, max(load64(pending, PEND_CLOCK), load64(thread, T_CLOCK)))
    arrived = load64(pending, PEND_ARRIVED) + 1
    store64(pending, PEND_ARRIVED, arrived)
    if arrived == THREADS:
        all_issued(core, block, group, number, pending)
    return first


@native
def all_issued(core, block, group, number, pending):
    """The last thread has issued it: it takes its place in the tensor cores' queue."""
    store64(group, G_COMPLETE, number + 1)
    if load64(core, K_TIMED) != 0:
        multiplies = ROWS * 16 * (load64(pending, PEND_SHAPE) & WGMMA_N)
        ready = occupy_tensor(core, load64(pending, PEND_CLOCK), multiplies)
        ready += load64(core, K_WGMMA_LATENCY)
        store64(load64(group, G_CLOCKS), number % GROUP_RING, ready)
    policy = load64(core, K_LANDING)
    if policy == LAND_EARLY or (policy == LAND_RANDOM and draw(core, 2) == 0):
        compute_until(block, group, number + 1)


# --- commit and wait --------------------------------------------------------------------------


@native
def rt_wgmma_commit(block, thread):
    """Close the open group."""
    number = load64(thread, T_WGMMA_GROUP)
    ends = load64(warpgroup_of(block, thread), G_ENDS)
    store64(ends, number % GROUP_RING, load64(thread, T_WGMMA_ISSUED))
    store64(thread, T_WGMMA_GROUP, number + 1)
    return 0


@native
def rt_wgmma_wait(block, thread, allowed, site):
    """Wait until at most `allowed` of the youngest groups are pending; 0 where others must come."""
    limit = load64(thread, T_WGMMA_GROUP) - allowed
    if limit <= load64(thread, T_WGMMA_DONE):
        return 1
    group = warpgroup_of(block, thread)
    needed = load64(load64(group, G_ENDS), (limit - 1) % GROUP_RING)
    needed = min(needed, load64(thread, T_WGMMA_ISSUED))
    if load64(group, G_COMPLETE) < needed:
        store64(thread, T_WGMMA_NEEDS, needed)
        return 0
    compute_until(block, group, needed)
    store64(thread, T_WGMMA_DONE, limit)
    core = load64(block, B_CORE)
    if load64(core, K_CHECK) != 0 and load64(group, G_COLUMN) != 0:
        complete(block, thread, load64(group, G_COLUMN) - 1, limit)
    if load64(core, K_TIMED) != 0 and needed > 0:
        store64(thread, T_SITE, site)
        store64(thread, T_WAIT_SITE, site)
        stall_until(block, thread, load64(load64(group, G_CLOCKS), (needed - 1) % GROUP_RING))
    return 1


@native
def rt_wgmma_resolve(block, thread, payload, words):
    """Put results in the place of the marks whose groups the thread has waited for."""
    group = warpgroup_of(block, thread)
    index = load64(thread, T_THREAD) % THREADS
    done = load64(thread, T_WGMMA_DONE)
    for k in range(words):
        register = marked(load32(payload, k))
        if register >= 0:
            tile = tile_of(group, register)
            if load64(tile, TILE_GROUP) < done:
                first = load64(tile, TILE_FIRST)
                values = load64(group, G_VALUES) + first * THREADS * 4
                at = element_of(index, register - first, load64(tile, TILE_N))
                store32(payload, k, load32(values, at))
    return 0


# --- the product ------------------------------------------------------------------------------


@native
def compute_until(block, group, number):
    """Compute all instructions before this number that are not, in order."""
    for k in range(load64(group, G_DONE), number):
        compute(block, group, k, pending_at(group, k))
    store64(group, G_DONE, max(number, load64(group, G_DONE)))


@native
def read_chunk(block, pending, offset, target, stride, brain):
    """Eight halves of shared memory to floats."""
    valid = load64(block, B_VALID) + offset
    if load64(valid, 0) != ONES or load64(valid, 1) != ONES:
        thread = load64(block, B_THREADS)
        rt_shared_uninitialised(block, thread, offset, CHUNK, load64(pending, PEND_SITE))
    source = load64(block, B_SHARED) + offset
    if brain:
        unpack_brains(source, target, stride)
    else:
        unpack_halves(source, target, stride)


@native
def read_a(block, pending, a, shape):
    """A as 64 × 16 floats."""
    descriptor = load64(pending, PEND_A)
    brain = shape & WGMMA_BFLOAT
    if shape & WGMMA_A_ACROSS:
        for column in range(16):
            for chunk in range(ROWS // 8):
                offset = chunk_offset(descriptor, True, column, chunk)
                read_chunk(block, pending, offset, a + (chunk * 128 + column) * 4, 64, brain)
    else:
        for row in range(ROWS):
            for chunk in range(2):
                offset = chunk_offset(descriptor, False, row, chunk)
                read_chunk(block, pending, offset, a + (row * 16 + chunk * 8) * 4, 4, brain)


@native
def read_b(block, pending, b, shape):
    """B as 16 × n floats."""
    descriptor = load64(pending, PEND_B)
    n = shape & WGMMA_N
    brain = shape & WGMMA_BFLOAT
    if shape & WGMMA_B_ACROSS:
        for row in range(16):
            for chunk in range(n // 8):
                offset = chunk_offset(descriptor, True, row, chunk)
                read_chunk(block, pending, offset, b + (row * n + chunk * 8) * 4, 4, brain)
    else:
        for column in range(n):
            for chunk in range(2):
                offset = chunk_offset(descriptor, False, column, chunk)
                target = b + (chunk * 8 * n + column) * 4
                read_chunk(block, pending, offset, target, n * 4, brain)


@native
def compute(block, group, number, pending):
    """D = A·B + D, or A·B."""
    shape = load64(pending, PEND_SHAPE)
    n = shape & WGMMA_N
    a = load64(load64(block, B_CORE), K_MATRIX_SCRATCH)
    b = a + ROWS * 16 * 4
    d = load64(group, G_VALUES) + load64(pending, PEND_FIRST) * THREADS * 4
    if shape & WGMMA_A_HELD:
        copy_bytes(a, load64(group, G_HELD) + number % PENDING * ROWS * 64, ROWS * 64)
    else:
        read_a(block, pending, a, shape)
    read_b(block, pending, b, shape)
    if not shape & WGMMA_ADD:
        fill_bytes(d, 0, ROWS * n * 4)
    if shape & WGMMA_NEGATIVE:
        for k in range(ROWS * 16):
            store32(a, k, load32(a, k) ^ 0x80000000)
    pitch = n * 4
    for row in range(0, ROWS, 4):
        left = a + row * 64
        column = 0
        while column + 16 <= n:
            multiply_16(d + row * pitch + column * 4, left, b + column * 4, pitch)
            column += 16
        if column < n:
            multiply_8(d + row * pitch + column * 4, left, b + column * 4, pitch)


# --- findings about accumulators --------------------------------------------------------------


@native
def rt_accumulator(block, thread, kind, word, site):
    """An accumulator was used before its wait, or changed without a wgmma.fence (checked build)."""
    core = load64(block, B_CORE)
    first_site = 0
    number = load64(thread, T_WGMMA_GROUP)
    register = marked(word)
    if register >= 0:
        tile = tile_of(warpgroup_of(block, thread), register)
        first_site = load64(tile, TILE_SITE)
        number = load64(tile, TILE_GROUP)
    count = load64(core, K_ACCUMULATORS_COUNT)
    for k in range(count):
        entry = load64(core, K_ACCUMULATORS) + k * ACC_SLOTS * 8
        if load64(entry, ACC_KIND) == kind and load64(entry, ACC_SITE) == site:
            store64(entry, ACC_COUNT, load64(entry, ACC_COUNT) + 1)
            return 0
    # There is room for both kinds at every site.
    if count < load64(core, K_ACCUMULATORS_CAPACITY):
        entry = load64(core, K_ACCUMULATORS) + count * ACC_SLOTS * 8
        store64(entry, ACC_KIND, kind)
        store64(entry, ACC_SITE, site)
        store64(entry, ACC_FIRST_SITE, first_site)
        store64(entry, ACC_BLOCK, load64(block, B_LINEAR))
        store64(entry, ACC_THREAD, load64(thread, T_THREAD))
        store64(entry, ACC_GROUP, number)
        store64(entry, ACC_COUNT, 1)
        store64(core, K_ACCUMULATORS_COUNT, count + 1)
    return 0
