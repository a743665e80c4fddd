"""Which accesses to shared memory are ordered: vector clocks, shadow cells and race records.

**Columns.** Time has one column for each thread (its *epoch*) and one for each source of
asynchronous completion: a thread's cp.async groups, a thread's bulk groups, an mbarrier's phases, a
warpgroup's wgmma groups. Every access is an *event* (column, value). It happens before whatever
thread u does next exactly when u's clock has reached `value` in that column, or when the column is
u's own epoch. So an access of the thread itself is (thread, epoch); a copy of cp.async group g is
(the thread's copy column, g + 1); a bulk copy is (the mbarrier's column, phase + 1).

**Vectors.** What joins threads (a barrier, an mbarrier's phase, a word that atomics work on) owns a
vector: `release` joins the thread's clock into it and starts the thread's next epoch, `acquire`
joins it into the thread's clock.

**Proxies.** Where the kernel has instructions of the async proxy, each clock has a second part: the
largest value whose path to here holds a `fence.proxy.async`. A generic access orders before one of
the async proxy only through that part (PTX ISA, memory consistency model, proxy-preserved base
causality order).

**Cells.** A shadow cell stands for as many bytes as the kernel's narrowest access to shared memory.
It keeps the last write, and the reads and strong accesses since then: one record for each warp and
epoch with a mask of lanes. A lane that accesses again moves to the newer record, because whatever
is ordered after the newer access is ordered after the older one.

`thread` is the address of a thread's record everywhere. Every function returns at once where
K_CHECK is 0; callers in hot paths test that themselves.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import CHECK_SHARED, T_THREAD
from course_lib.virtual_gpu.raw import (
    allocate,
    copy_bytes,
    fill_bytes,
    give_back,
    load32,
    load64,
    native,
    store32,
    store64,
)
from course_lib.virtual_gpu.records import (
    B_BARRIERS,
    B_CELLS,
    B_CELLS_BYTES,
    B_CHUNK,
    B_CHUNK_COUNT,
    B_CHUNK_USED,
    B_CHUNKS,
    B_CORE,
    B_FREE_READ,
    B_LINEAR,
    B_LIVE,
    B_ROW_BYTES,
    B_THREAD_BYTES,
    B_THREADS,
    B_WARP_BASE,
    B_WARP_COUNT,
    B_WORD_CAPACITY,
    B_WORD_COUNT,
    B_WORDS,
    BAR_HELD,
    BAR_MARKED,
    BAR_VECTOR,
    BAR_WAITS,
    BARRIER_BYTES,
    BARRIER_COUNT,
    K_CELL_SHIFT,
    K_CHECK,
    K_CHUNKS_MOST,
    K_PROXIES,
    K_RACE_CAPACITY,
    K_RACE_COUNT,
    K_RACES,
    MAX_WARPS,
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
    T_COPY_COLUMN,
    T_EPOCH,
)
from course_lib.virtual_gpu.shadow import (
    ASYNC_PROXY,
    ATOMIC,
    CELL_BYTES,
    COLUMN_BULK,
    COLUMN_COPY,
    COLUMN_MBARRIER,
    COLUMN_THREAD,
    COLUMN_WGMMA,
    WRITES,
)
from course_lib.virtual_gpu.vector_clocks import (
    acquire_clock,
    add_column,
    add_vector,
    base_of,
    begin_clocks,
    clock_of,
    complete_column,
    exhausted,
    fence_proxies,
    join_into_base,
    join_rows,
    kind_of_column,
    reached,
    reached_by_fence,
    release_clock,
    renew_warp_base,
    row_of,
)

NO_SOURCE = 0

# What is missing between two accesses (names in shadow.MISSING).
M_ORDER, M_WAIT, M_VISIBILITY, M_PHASE, M_GROUP, M_PROXY, M_PROXY_READ = range(1, 8)

# --- shadow cell: 32-bit slots ----------------------------------------------------------------
W_COLUMN = 0  # of the last write, plus 1; 0 = nobody wrote
W_VALUE = 1
W_SITE = 2
W_WHO = 3  # thread, and from bit 16 the flags
W_SOURCE = 2  # 64-bit slot: where a copy's bytes come from
CELL_STRONG = 6  # 1: strong writes are among the records
CELL_FILLS = 7  # twice the plain writes and copies so far, plus 1 where the last found reads
CELL_RECORD = 32  # byte offset of the first record of a read or strong access
# Record, here and in the pool: 32-bit slots. A record of column 0 is free for the next access.
R_COLUMN, R_VALUE, R_SITE, R_WHO, R_MASK = 0, 1, 2, 3, 4
R_NEXT = 3  # 64-bit slot: address of the next record, 0 = none
RECORD_BYTES = 32
CHUNK_BYTES = 1 << 20
RACES_AT_FIRST = 64

__all__ = [
    "ASYNC_PROXY", "ATOMIC", "COLUMN_BULK", "COLUMN_COPY", "COLUMN_MBARRIER", "COLUMN_THREAD",
    "COLUMN_WGMMA", "NO_SOURCE", "WRITES", "access", "acquire", "begin_block", "clear_vector",
    "complete", "copy_vector", "join_vector", "known", "mark_vector", "new_column", "new_vector",
    "plain_access", "proxy_fence", "release",
]  # fmt: skip


@native
def checks(block):
    """Is this run checked?"""
    return load64(load64(block, B_CORE), K_CHECK) != 0


@native
def begin_block(block):
    """Forget everything: a new block moves in."""
    if not checks(block):
        return
    begin_clocks(block)
    fill_bytes(load64(block, B_CELLS), 0, load64(block, B_CELLS_BYTES))
    store64(block, B_CHUNK, load64(block, B_CHUNKS))
    store64(block, B_CHUNK_USED, RECORD_BYTES)
    store64(block, B_FREE_READ, 0)
    if load64(block, B_WORD_COUNT) != 0:
        fill_bytes(load64(block, B_WORDS), 0, load64(block, B_WORD_CAPACITY) * 16)
        store64(block, B_WORD_COUNT, 0)
    for index in range(BARRIER_COUNT):
        barrier = load64(block, B_BARRIERS) + index * BARRIER_BYTES
        store64(barrier, BAR_VECTOR, 0)
        store64(barrier, BAR_MARKED, 0)
        fill_bytes(barrier + BAR_HELD * 8, 0, MAX_WARPS * 8)


# --- the interface of the engines --------------------------------------------------------------


@native
def new_column(block, kind, owner):
    """A column for completions, `kind` COLUMN_*, `owner` a thread, mbarrier or warpgroup number."""
    if not checks(block):
        return 0
    return add_column(block, kind, owner)


@native
def new_vector(block):
    """An empty vector of a synchronisation object; returns its handle."""
    if not checks(block):
        return 0
    return add_vector(block)


@native
def clear_vector(block, vector):
    """Empty it again."""
    if checks(block):
        fill_bytes(row_of(block, vector), 0, load64(block, B_ROW_BYTES))


@native
def copy_vector(block, target, source):
    """`target` becomes what `source` is."""
    if checks(block):
        copy_bytes(row_of(block, target), row_of(block, source), load64(block, B_ROW_BYTES))


@native
def release(block, thread, vector):
    """What `thread` has done so far happens before whoever acquires the vector."""
    if checks(block):
        release_clock(block, thread, vector)


@native
def acquire(block, thread, vector):
    """What the vector holds happens before what `thread` does next."""
    if checks(block):
        acquire_clock(block, thread, vector)


@native
def join_vector(block, target, source):
    """`target` also holds what `source` holds."""
    if checks(block):
        join_rows(block, row_of(block, target), row_of(block, source))


@native
def mark_vector(block, vector, column, value):
    """Whoever acquires the vector has seen `column` reach `value`."""
    if checks(block):
        row = row_of(block, vector)
        store32(row, column, max(load32(row, column), value))


@native
def complete(block, thread, column, value):
    """`thread` has waited until `column` reached `value`."""
    if checks(block):
        complete_column(block, thread, column, value)


@native
def known(block, thread, column):
    """The value that `thread` knows `column` to have reached; 0 where nothing is checked."""
    if not checks(block):
        return 0
    return max(load32(base_of(block), column), load32(clock_of(block, thread), column))


@native
def proxy_fence(block, thread):
    """fence.proxy.async by one thread."""
    if checks(block) and load64(load64(block, B_CORE), K_PROXIES) != 0:
        fence_proxies(block, thread)


@native
def access(block, thread, offset, count, site, flags, column, value, source):
    """An access of `count` bytes at `offset` of shared memory, started now by `thread`.

    It is complete when `column` reaches `value`; for a plain access that is the thread's own epoch
    (`plain_access`). `source` is the windowed global address that a copy brings, or NO_SOURCE.
    """
    if load64(load64(block, B_CORE), K_CHECK) == CHECK_SHARED and count > 0:
        follow(block, thread, offset, count, site, flags, column, value, source)


@native
def follow(block, thread, offset, count, site, flags, column, value, source):
    """The same for `count` bytes at `offset` of the memory that this run checks."""
    shift = load64(load64(block, B_CORE), K_CELL_SHIFT)
    first = offset >> shift
    cell = load64(block, B_CELLS) + first * CELL_BYTES
    for index in range(first, ((offset + count - 1) >> shift) + 1):
        at = index << shift
        if flags & ATOMIC:
            strong_cell(block, thread, cell, at, site, flags, column, value)
        elif flags & WRITES:
            part = source
            if source != 0:
                part = source + max(0, at - offset)
            write_cell(block, thread, cell, at, site, flags, column, value, part)
        else:
            read_cell(block, thread, cell, at, site, flags, column, value)
        cell += CELL_BYTES


@native
def plain_access(block, thread, offset, count, site, flags):
    """An access that is complete when the thread goes on."""
    access(
        block, thread, offset, count, site, flags,
        load64(thread, T_THREAD), load64(thread, T_EPOCH), NO_SOURCE,
    )  # fmt: skip


# --- is an earlier access ordered before this one? ---------------------------------------------


@native
def missing_of(block, thread, column, value, who, flags):
    """0 where the event (column, value) happens before what `thread` does now with `flags`, else
    M_*. `who` holds the event's thread and flags."""
    if column != load64(thread, T_THREAD) and not reached(block, thread, column, value):
        return missing_order(block, column, value, who)
    first = who >> 16
    if flags & ASYNC_PROXY and not first & ASYNC_PROXY:
        if load64(load64(block, B_CORE), K_PROXIES) != 0:
            if not reached_by_fence(block, thread, column, value):
                if not first & WRITES and flags & WRITES:
                    return M_PROXY_READ
                return M_PROXY
    return 0


@native
def missing_order(block, column, value, who):
    """What would have ordered the event: depends on what completes it, and on who waited."""
    kind = kind_of_column(block, column)
    if kind == COLUMN_THREAD:
        return M_ORDER
    if kind == COLUMN_MBARRIER:
        return M_PHASE
    issuer = load64(block, B_THREADS) + (who & 0xFFFF) * load64(block, B_THREAD_BYTES)
    if reached(block, issuer, column, value):
        return M_VISIBILITY
    return M_WAIT if kind == COLUMN_COPY else M_GROUP


@native
def check_write(block, thread, cell, at, site, flags, column, value, source):
    """The last write to a cell against an access of now."""
    writer = load32(cell, W_COLUMN)
    if writer == 0:
        return
    who = load32(cell, W_WHO)
    missing = missing_of(block, thread, writer - 1, load32(cell, W_VALUE), who, flags)
    if missing != 0:
        report(
            block, thread, at, writer - 1, load32(cell, W_VALUE), load32(cell, W_SITE), who,
            load64(cell, W_SOURCE), site, flags, column, value, source, missing,
            load32(cell, CELL_FILLS),
        )  # fmt: skip


@native
def check_record(block, thread, cell, record, at, site, flags, column, value, source):
    """The accesses of one record against an access of now: each lane is an event of its own."""
    first = load32(record, R_COLUMN) - 1
    if first < 0:
        return
    epoch = load32(record, R_VALUE)
    who = load32(record, R_WHO)
    before = load64(cell, W_SOURCE)
    fill = (load32(cell, CELL_FILLS) | 1) + 2
    mask = load32(record, R_MASK)
    if mask == 0:
        missing = missing_of(block, thread, first, epoch, who, flags)
        if missing != 0:
            report(
                block, thread, at, first, epoch, load32(record, R_SITE), who, before,
                site, flags, column, value, source, missing, fill,
            )  # fmt: skip
        return
    if not flags & ASYNC_PROXY:
        if epoch <= load32(load64(block, B_WARP_BASE), first >> 5):
            return
    for lane in range(32):
        if (mask >> lane) & 1:
            other = (first & ~31) + lane
            actor = (who & ~0xFFFF) | other
            missing = missing_of(block, thread, other, epoch, actor, flags)
            if missing != 0:
                report(
                    block, thread, at, other, epoch, load32(record, R_SITE), actor, before,
                    site, flags, column, value, source, missing, fill,
                )  # fmt: skip


# --- accesses to one cell ----------------------------------------------------------------------


@native
def check_strong_writes(block, thread, cell, at, site, flags, column, value):
    """Strong writes since the last plain one against a plain read."""
    record = cell + CELL_RECORD
    while record != 0:
        who = load32(record, R_WHO) >> 16
        if who & ATOMIC and who & WRITES:
            check_record(block, thread, cell, record, at, site, flags, column, value, NO_SOURCE)
        record = load64(record, R_NEXT)


@native
def read_cell(block, thread, cell, at, site, flags, column, value):
    """A plain read, or one of the async proxy."""
    source = load64(cell, W_SOURCE)
    check_write(block, thread, cell, at, site, flags, column, value, source)
    if load32(cell, CELL_STRONG) != 0:
        check_strong_writes(block, thread, cell, at, site, flags, column, value)
    remember(block, thread, cell, site, flags, column, value)


@native
def strong_cell(block, thread, cell, at, site, flags, column, value):
    """An atomic operation, or a volatile or relaxed access."""
    check_write(block, thread, cell, at, site, flags, column, value, load64(cell, W_SOURCE))
    if flags & WRITES:
        record = cell + CELL_RECORD
        while record != 0:
            if not (load32(record, R_WHO) >> 16) & ATOMIC:
                check_record(block, thread, cell, record, at, site, flags, column, value, NO_SOURCE)
            record = load64(record, R_NEXT)
        store32(cell, CELL_STRONG, 1)
    remember(block, thread, cell, site, flags, column, value)


@native
def write_cell(block, thread, cell, at, site, flags, column, value, source):
    """A plain write or a copy's: it is checked against everything and forgets the reads before."""
    check_write(block, thread, cell, at, site, flags, column, value, source)
    first = cell + CELL_RECORD
    found_reads = 0
    if load32(first, R_COLUMN) != 0 or load64(first, R_NEXT) != 0:
        found_reads = 1
    if load32(first, R_COLUMN) != 0:
        check_record(block, thread, cell, first, at, site, flags, column, value, source)
        store32(first, R_COLUMN, 0)
    record = load64(first, R_NEXT)
    if record != 0:
        while record != 0:
            check_record(block, thread, cell, record, at, site, flags, column, value, source)
            following = load64(record, R_NEXT)
            store64(record, R_NEXT, load64(block, B_FREE_READ))
            store64(block, B_FREE_READ, record)
            record = following
        store64(first, R_NEXT, 0)
    store32(cell, CELL_STRONG, 0)
    store32(cell, CELL_FILLS, (load32(cell, CELL_FILLS) & ~1) + 2 + found_reads)
    store32(cell, W_COLUMN, column + 1)
    store32(cell, W_VALUE, value)
    store32(cell, W_SITE, site)
    store32(cell, W_WHO, load64(thread, T_THREAD) | (flags << 16))
    store64(cell, W_SOURCE, source)


# --- remembering reads and strong accesses -----------------------------------------------------


@native
def remember(block, thread, cell, site, flags, column, value):
    """Add an access to a cell's records."""
    me = load64(thread, T_THREAD)
    plain = column == me
    bit = 1 << (me & 31) if plain else 0
    proxies = load64(load64(block, B_CORE), K_PROXIES)
    warp_base = load64(block, B_WARP_BASE)
    record = cell + CELL_RECORD
    place = 0
    while record != 0:
        first = load32(record, R_COLUMN) - 1
        if first < 0:
            if place == 0:
                place = record
        elif load32(record, R_MASK) == 0:
            if first == column and load32(record, R_WHO) >> 16 == flags:
                store32(record, R_VALUE, value)
                store32(record, R_SITE, site)
                return
        else:
            if plain and first >> 5 == me >> 5 and load32(record, R_WHO) >> 16 == flags:
                if load32(record, R_VALUE) == value:
                    store32(record, R_MASK, load32(record, R_MASK) | bit)
                    return
                left = load32(record, R_MASK) & ~bit
                store32(record, R_MASK, left)
                if left == 0:
                    store32(record, R_COLUMN, 0)
            elif proxies == 0 and load32(record, R_VALUE) <= load32(warp_base, first >> 5):
                store32(record, R_COLUMN, 0)
            if load32(record, R_COLUMN) == 0 and place == 0:
                place = record
        record = load64(record, R_NEXT)
    if place == 0:
        place = new_record(block)
        if place == 0:
            return
        store64(place, R_NEXT, load64(cell + CELL_RECORD, R_NEXT))
        store64(cell + CELL_RECORD, R_NEXT, place)
    store32(place, R_COLUMN, column + 1)
    store32(place, R_VALUE, value)
    store32(place, R_SITE, site)
    store32(place, R_WHO, me | (flags << 16))
    store32(place, R_MASK, bit)


@native
def new_record(block):
    """A record of the pool, which grows; 0 where there is no memory."""
    record = load64(block, B_FREE_READ)
    if record != 0:
        store64(block, B_FREE_READ, load64(record, R_NEXT))
        return record
    chunk = load64(block, B_CHUNK)
    used = load64(block, B_CHUNK_USED)
    if chunk == 0 or used >= CHUNK_BYTES:
        chunk = next_chunk(block, chunk)
        if chunk == 0:
            return 0
        used = RECORD_BYTES
    store64(block, B_CHUNK_USED, used + RECORD_BYTES)
    return chunk + used


@native
def next_chunk(block, chunk):
    """The chunk after this one; chunks are linked by their first slot, and kept between blocks."""
    following = 0
    if chunk != 0:
        following = load64(chunk, 0)
    if following == 0:
        count = load64(block, B_CHUNK_COUNT)
        if count < load64(load64(block, B_CORE), K_CHUNKS_MOST):
            following = allocate(CHUNK_BYTES)
        if following == 0:
            exhausted(block)
            return 0
        store64(block, B_CHUNK_COUNT, count + 1)
        if chunk == 0:
            store64(block, B_CHUNKS, following)
        else:
            store64(chunk, 0, following)
    store64(block, B_CHUNK, following)
    return following


# --- race records ------------------------------------------------------------------------------


@native
def report(
    block, thread, at, column, value, first_site, who, first_source,
    site, flags, second_column, second_value, source, missing, fill,
):  # fmt: skip
    """One more pair of unordered accesses; the first pair of each cause is kept with its facts."""
    core = load64(block, B_CORE)
    first_kind = (who >> 16) | (kind_of_column(block, column) << 8)
    second_kind = flags | (kind_of_column(block, second_column) << 8)
    race = load64(core, K_RACES)
    count = load64(core, K_RACE_COUNT)
    for _ in range(count):
        if (
            load64(race, RACE_FIRST_SITE) == first_site
            and load64(race, RACE_SECOND_SITE) == site
            and load64(race, RACE_MISSING) == missing
            and load64(race, RACE_FIRST_KIND) == first_kind
            and load64(race, RACE_SECOND_KIND) == second_kind
        ):
            store64(race, RACE_COUNT, load64(race, RACE_COUNT) + 1)
            return
        race += RACE_SLOTS * 8
    if count >= load64(core, K_RACE_CAPACITY) and not more_races(block, core, count):
        return
    race = load64(core, K_RACES) + count * RACE_SLOTS * 8
    store64(core, K_RACE_COUNT, count + 1)
    store64(race, RACE_FIRST_SITE, first_site)
    store64(race, RACE_FIRST_KIND, first_kind)
    store64(race, RACE_SECOND_SITE, site)
    store64(race, RACE_SECOND_KIND, second_kind)
    store64(race, RACE_MISSING, missing)
    store64(race, RACE_COUNT, 1)
    store64(race, RACE_BLOCK, load64(block, B_LINEAR))
    store64(race, RACE_OFFSET, at)
    store64(race, RACE_BYTES, 1 << load64(core, K_CELL_SHIFT))
    store64(race, RACE_FIRST_THREAD, who & 0xFFFF)
    store64(race, RACE_FIRST_GROUP, value - 1 if first_kind >> 8 != COLUMN_THREAD else -1)
    store64(race, RACE_FIRST_SOURCE, first_source)
    store64(race, RACE_SECOND_THREAD, load64(thread, T_THREAD))
    store64(race, RACE_SECOND_GROUP, second_value - 1 if second_kind >> 8 != COLUMN_THREAD else -1)
    store64(race, RACE_SECOND_SOURCE, source)
    store64(race, RACE_FILL, fill)


@native
def more_races(block, core, count):
    """Twice the room for race records."""
    capacity = max(RACES_AT_FIRST, 2 * count)
    races = allocate(capacity * RACE_SLOTS * 8)
    if races == 0:
        exhausted(block)
        return False
    if count != 0:
        copy_bytes(races, load64(core, K_RACES), count * RACE_SLOTS * 8)
    give_back(load64(core, K_RACES))
    store64(core, K_RACES, races)
    store64(core, K_RACE_CAPACITY, capacity)
    return True


# --- barriers of the block ---------------------------------------------------------------------


@native
def arrive_only(block, thread, barrier, warp):
    """bar.arrive: the thread goes on, so what it releases is kept; it counts with its warp."""
    if not checks(block):
        return
    vector = load64(barrier, BAR_HELD + warp)
    if vector == 0:
        vector = add_vector(block)
        store64(barrier, BAR_HELD + warp, vector)
    release_clock(block, thread, vector)


@native
def count_arrivals(block, barrier, warp):
    """A warp has arrived as a whole: what its lanes released belongs to this phase."""
    held = load64(barrier, BAR_HELD + warp)
    if held == 0 or not checks(block):
        return
    join_rows(block, row_of(block, barrier_vector(block, barrier)), row_of(block, held))
    store64(barrier, BAR_MARKED, 1)
    clear_vector(block, held)


@native
def barrier_vector(block, barrier):
    """The vector of a barrier's phase, made when it is first needed."""
    vector = load64(barrier, BAR_VECTOR)
    if vector == 0:
        vector = add_vector(block)
        store64(barrier, BAR_VECTOR, vector)
    return vector


@native
def join_barrier(block, barrier):
    """The lanes in BAR_WAITS go on together: order them, and those that only arrived before."""
    waiting = 0
    for warp in range(load64(block, B_WARP_COUNT)):
        lanes = load64(barrier, BAR_WAITS + warp)
        while lanes != 0:
            lanes &= lanes - 1
            waiting += 1
    everyone = waiting == load64(block, B_LIVE) and load64(barrier, BAR_MARKED) == 0
    if everyone:
        each_waiting(block, barrier, 0)
        renew_warp_base(block)
        return
    barrier_vector(block, barrier)
    each_waiting(block, barrier, 1)
    each_waiting(block, barrier, 2)
    clear_vector(block, load64(barrier, BAR_VECTOR))
    store64(barrier, BAR_MARKED, 0)


@native
def each_waiting(block, barrier, action):
    """For each waiting lane: 0 join into the base, 1 release to and 2 acquire the vector."""
    stride = load64(block, B_THREAD_BYTES)
    for warp in range(load64(block, B_WARP_COUNT)):
        lanes = load64(barrier, BAR_WAITS + warp)
        thread = load64(block, B_THREADS) + warp * 32 * stride
        while lanes != 0:
            if lanes & 1:
                if action == 0:
                    join_into_base(block, thread)
                elif action == 1:
                    release_clock(block, thread, load64(barrier, BAR_VECTOR))
                else:
                    acquire_clock(block, thread, load64(barrier, BAR_VECTOR))
            thread += stride
            lanes >>= 1


# --- cp.async ----------------------------------------------------------------------------------


@native
def copy_column(block, thread):
    """The column of a thread's cp.async groups."""
    column = load64(thread, T_COPY_COLUMN)
    if column == 0:
        column = add_column(block, COLUMN_COPY, load64(thread, T_THREAD))
        store64(thread, T_COPY_COLUMN, column)
    return column


@native
def copies_complete(block, thread, groups):
    """The thread has waited for all of its groups below `groups`."""
    column = load64(thread, T_COPY_COLUMN)
    if column != 0 and groups > 0:
        complete(block, thread, column, groups)


# --- called by translated code -----------------------------------------------------------------


@native
def rt_check_read(block, thread, offset, count, site):
    """A plain load from shared memory. The common case stays here: an ordered write, and a read
    that joins those of its warp."""
    shift = load64(load64(block, B_CORE), K_CELL_SHIFT)
    index = offset >> shift
    last = (offset + count - 1) >> shift
    me = load64(thread, T_THREAD)
    epoch = load64(thread, T_EPOCH)
    base = base_of(block)
    clock = clock_of(block, thread)
    cell = load64(block, B_CELLS) + index * CELL_BYTES
    while index <= last:
        writer = load32(cell, W_COLUMN) - 1
        value = load32(cell, W_VALUE)
        if (
            writer < 0
            or writer == me
            or value <= load32(base, writer)
            or (value <= load32(clock, writer))
        ):
            record = cell + CELL_RECORD
            if (
                load32(record, R_VALUE) == epoch
                and (load32(record, R_COLUMN) - 1) >> 5 == me >> 5
                and load32(record, R_WHO) >> 16 == 0
                and load32(record, R_MASK) != 0
                and load32(cell, CELL_STRONG) == 0
            ):
                store32(record, R_MASK, load32(record, R_MASK) | (1 << (me & 31)))
            else:
                read_cell(block, thread, cell, index << shift, site, 0, me, epoch)
        else:
            read_cell(block, thread, cell, index << shift, site, 0, me, epoch)
        cell += CELL_BYTES
        index += 1
    return 0


@native
def rt_check_write(block, thread, offset, count, site):
    """A plain store to shared memory."""
    plain_access(block, thread, offset, count, site, WRITES)
    return 0


@native
def rt_check_atomic(block, thread, offset, count, site, flags):
    """A strong access to shared memory."""
    plain_access(block, thread, offset, count, site, flags)
    return 0
