"""Vector clocks of a checked block: what each thread, barrier and word knows of all the others.

A vector is a row of 32-bit values, one for each column (see `happens_before`), in parts of equal
length. The first says what is known. In a kernel with instructions of the async proxy the second
says what of it is known through a proxy fence. Where global memory is checked, two more follow:
what is known through a fence whose scope holds other blocks (`fenced_part`), and what will be known
after the next such fence (`seen_part`).

Rows 0 to threads - 1 are the threads' clocks; then come the *base*, which everybody knows since the
last barrier of the whole block, a scratch row, and the vectors of synchronisation objects. A
thread's clock is the larger of its row and the base, so a barrier of the whole block costs one pass
over the threads.

Rows and columns are added on demand. Memory comes from the C library and is kept with the block
record; where it gives none, K_EXHAUSTED ends the run.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import T_THREAD
from course_lib.virtual_gpu.raw import (
    allocate,
    copy_bytes,
    fill_bytes,
    give_back,
    join_words,
    load32,
    load64,
    native,
    store32,
    store64,
)
from course_lib.virtual_gpu.records import (
    B_COLUMN_CAPACITY,
    B_COLUMN_KINDS,
    B_COLUMNS,
    B_CORE,
    B_ROW_BYTES,
    B_ROWS,
    B_THREAD_BYTES,
    B_THREAD_COUNT,
    B_THREADS,
    B_VECTOR_CAPACITY,
    B_VECTORS,
    B_WARP_BASE,
    B_WARP_COUNT,
    K_CHECK,
    K_EXHAUSTED,
    K_PARTS,
    T_CHANGED,
    T_COPY_COLUMN,
    T_EPOCH,
    T_FENCED,
    T_SEEN,
)

# What a thread's row may hold beyond the base: its own copy column; its warp's epochs; all.
CHANGED_OWN, CHANGED_WARP, CHANGED_ROW = 1, 2, 4


@native
def exhausted(block):
    """No memory is left for what must be remembered: the run ends after this turn."""
    store64(load64(block, B_CORE), K_EXHAUSTED, 1)


# --- rows -------------------------------------------------------------------------------------


@native
def row_of(block, vector):
    """Address of a vector."""
    return load64(block, B_ROWS) + vector * load64(block, B_ROW_BYTES)


@native
def clock_of(block, thread):
    """Address of a thread's row."""
    return row_of(block, load64(thread, T_THREAD))


@native
def base_of(block):
    """Address of what every thread knows."""
    return row_of(block, load64(block, B_THREAD_COUNT))


@native
def used_words(block):
    """Columns in use, rounded up to what `join_words` takes."""
    return (load64(block, B_COLUMNS) + 7) & ~7


@native
def parts_of(block):
    """Parts of a vector."""
    return load64(load64(block, B_CORE), K_PARTS)


@native
def part_bytes(block):
    """From one part of a vector to the next."""
    return load64(block, B_COLUMN_CAPACITY) * 4


@native
def fenced_part(block):
    """Offset in a vector of what is known through a fence whose scope holds other blocks."""
    return (parts_of(block) - 2) * part_bytes(block)


@native
def seen_part(block):
    """Offset in a vector of what will be known after the next such fence."""
    return (parts_of(block) - 1) * part_bytes(block)


@native
def begin_clocks(block):
    """Nobody knows anything of anybody."""
    warps = load64(block, B_WARP_COUNT)
    threads = load64(block, B_THREAD_COUNT)
    store64(block, B_COLUMNS, warps * 32)
    store64(block, B_VECTORS, threads + 2)
    if load64(block, B_ROWS) == 0:
        resize_rows(block, threads + 8, warps * 64)
    fill_bytes(load64(block, B_ROWS), 0, (threads + 2) * load64(block, B_ROW_BYTES))
    fill_bytes(load64(block, B_WARP_BASE), 0, warps * 4)
    fill_bytes(load64(block, B_COLUMN_KINDS), 0, warps * 32 * 8)
    thread = load64(block, B_THREADS)
    for _ in range(threads):
        store64(thread, T_EPOCH, 1)
        store64(thread, T_COPY_COLUMN, 0)
        store64(thread, T_CHANGED, 0)
        store64(thread, T_FENCED, 0)
        store64(thread, T_SEEN, 0)
        thread += load64(block, B_THREAD_BYTES)


@native
def resize_rows(block, vectors, columns):
    """Room for more vectors or columns; False where there is no memory."""
    parts = parts_of(block)
    row_bytes = columns * 4 * parts
    rows = allocate(vectors * row_bytes)
    kinds = allocate(columns * 8)
    if rows == 0 or kinds == 0:
        exhausted(block)
        return False
    old = load64(block, B_ROWS)
    if old != 0:
        old_columns = load64(block, B_COLUMN_CAPACITY)
        for vector in range(load64(block, B_VECTORS)):
            for part in range(parts):
                copy_bytes(
                    rows + vector * row_bytes + part * columns * 4,
                    row_of(block, vector) + part * old_columns * 4,
                    min(columns, old_columns) * 4,
                )
        copy_bytes(kinds, load64(block, B_COLUMN_KINDS), old_columns * 8)
        give_back(old)
        give_back(load64(block, B_COLUMN_KINDS))
    store64(block, B_ROWS, rows)
    store64(block, B_COLUMN_KINDS, kinds)
    store64(block, B_ROW_BYTES, row_bytes)
    store64(block, B_COLUMN_CAPACITY, columns)
    store64(block, B_VECTOR_CAPACITY, vectors)
    return True


@native
def add_column(block, kind, owner):
    """The next free column."""
    column = load64(block, B_COLUMNS)
    capacity = load64(block, B_COLUMN_CAPACITY)
    if column >= capacity:
        if not resize_rows(block, load64(block, B_VECTOR_CAPACITY), 2 * capacity):
            return column - 1
    store64(block, B_COLUMNS, column + 1)
    store64(load64(block, B_COLUMN_KINDS), column, kind | (owner << 8))
    return column


@native
def kind_of_column(block, column):
    """COLUMN_*."""
    return load64(load64(block, B_COLUMN_KINDS), column) & 0xFF


@native
def owner_of_column(block, column):
    """Whose completions a column counts."""
    return load64(load64(block, B_COLUMN_KINDS), column) >> 8


@native
def add_vector(block):
    """The next free vector, empty."""
    vector = load64(block, B_VECTORS)
    capacity = load64(block, B_VECTOR_CAPACITY)
    if vector >= capacity:
        if not resize_rows(block, 2 * capacity, load64(block, B_COLUMN_CAPACITY)):
            return vector - 1
    store64(block, B_VECTORS, vector + 1)
    fill_bytes(row_of(block, vector), 0, load64(block, B_ROW_BYTES))
    return vector


@native
def join_rows(block, target, source):
    """The row at address `target` also holds what the row at `source` holds, in all parts."""
    words = used_words(block)
    for part in range(parts_of(block)):
        at = part * part_bytes(block)
        join_words(target + at, source + at, words)


# --- what threads do ---------------------------------------------------------------------------


@native
def add_change(thread, what):
    """Remember that a thread's row holds something that the base does not."""
    store64(thread, T_CHANGED, load64(thread, T_CHANGED) | what)


@native
def next_epoch(thread):
    """What the thread does from here on is not covered by what it has released."""
    epoch = load64(thread, T_EPOCH)
    store64(thread, T_EPOCH, epoch + 1)
    return epoch


@native
def release_clock(block, thread, vector):
    """Join a thread's clock into a vector, and start its next epoch."""
    target = row_of(block, vector)
    join_rows(block, target, clock_of(block, thread))
    join_rows(block, target, base_of(block))
    store32(target, load64(thread, T_THREAD), next_epoch(thread))


@native
def acquire_clock(block, thread, vector):
    """Join a vector into a thread's clock."""
    join_rows(block, clock_of(block, thread), row_of(block, vector))
    add_change(thread, CHANGED_ROW)


@native
def complete_column(block, thread, column, value):
    """A thread has waited until `column` reached `value`."""
    clock = clock_of(block, thread)
    if load32(clock, column) < value:
        store32(clock, column, value)
        own = column == load64(thread, T_COPY_COLUMN)
        add_change(thread, CHANGED_OWN if own else CHANGED_ROW)


@native
def fence_part(block, thread, part):
    """What is known now is known through a fence: it is so in the part at this offset."""
    clock = clock_of(block, thread)
    words = used_words(block)
    join_words(clock + part, clock, words)
    join_words(clock + part, base_of(block), words)
    store32(clock + part, load64(thread, T_THREAD), next_epoch(thread))
    add_change(thread, CHANGED_ROW)


@native
def fence_proxies(block, thread):
    """fence.proxy.async."""
    fence_part(block, thread, part_bytes(block))


@native
def reached(block, thread, column, value):
    """Does a thread's clock show that `column` has reached `value`?"""
    if value <= load32(base_of(block), column):
        return True
    return value <= load32(clock_of(block, thread), column)


@native
def reached_by_fence(block, thread, column, value):
    """The same along a path that holds a proxy fence."""
    part = part_bytes(block)
    if value <= load32(base_of(block) + part, column):
        return True
    return value <= load32(clock_of(block, thread) + part, column)


# --- barriers of the whole block, and of a warp ------------------------------------------------


@native
def join_into_base(block, thread):
    """A thread has arrived at a barrier of the whole block."""
    base = base_of(block)
    changed = load64(thread, T_CHANGED)
    if changed != 0:
        clock = clock_of(block, thread)
        if changed & CHANGED_ROW:
            join_rows(block, base, clock)
        else:
            if changed & CHANGED_WARP:
                first = (load64(thread, T_THREAD) & ~31) * 4
                join_words(base + first, clock + first, 32)
            if changed & CHANGED_OWN:
                column = load64(thread, T_COPY_COLUMN)
                store32(base, column, max(load32(base, column), load32(clock, column)))
        store64(thread, T_CHANGED, 0)
    store32(base, load64(thread, T_THREAD), next_epoch(thread))


@native
def renew_warp_base(block):
    """For each warp the least epoch that the base holds: what is older is ordered for all."""
    base = base_of(block)
    threads = load64(block, B_THREAD_COUNT)
    for warp in range(load64(block, B_WARP_COUNT)):
        least = load32(base, warp * 32)
        for thread in range(warp * 32 + 1, min(warp * 32 + 32, threads)):
            least = min(least, load32(base, thread))
        store32(load64(block, B_WARP_BASE), warp, least)


@native
def join_lanes(block, threads, stride, members):
    """`__syncwarp`: everything that a member has done happens before what any of them does next.

    `threads` is the address of the record of the warp's lane 0.
    """
    if load64(load64(block, B_CORE), K_CHECK) == 0:
        return
    changed = 0
    for lane in range(32):
        if (members >> lane) & 1:
            changed |= load64(threads + lane * stride, T_CHANGED)
    whole = changed & (CHANGED_OWN | CHANGED_ROW)
    first = (load64(threads, T_THREAD) & ~31) * 4
    words = 32
    parts = 1
    if whole:
        first = 0
        words = used_words(block)
        parts = parts_of(block)
    scratch = row_of(block, load64(block, B_THREAD_COUNT) + 1)
    for part in range(parts):
        fill_bytes(scratch + part * part_bytes(block) + first, 0, words * 4)
    for lane in range(32):
        if (members >> lane) & 1:
            thread = threads + lane * stride
            for part in range(parts):
                at = part * part_bytes(block) + first
                join_words(scratch + at, clock_of(block, thread) + at, words)
            store32(scratch, load64(thread, T_THREAD), next_epoch(thread))
    for lane in range(32):
        if (members >> lane) & 1:
            thread = threads + lane * stride
            for part in range(parts):
                at = part * part_bytes(block) + first
                copy_bytes(clock_of(block, thread) + at, scratch + at, words * 4)
            add_change(thread, CHANGED_ROW if whole else CHANGED_WARP)
