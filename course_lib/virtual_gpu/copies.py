"""Asynchronous copies (cp.async): issued, grouped, waited for, and landed when the policy says.

CUDA promises only that a copy has landed when its issuing thread's wait returns. Within that
promise the landing policy chooses: at once (`early`), as late as a wait allows (`late`), or at
moments drawn from the seed (`random`). A thread's copies form a list, oldest first.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import (
    B_SHARED,
    B_VALID,
    T_CLOCK,
    T_SITE,
)
from course_lib.virtual_gpu.clock import fetch, log_landing, stall_until
from course_lib.virtual_gpu.global_accesses import global_access
from course_lib.virtual_gpu.happens_before import WRITES, access, copies_complete, copy_column
from course_lib.virtual_gpu.mbarriers import arrive_for_copies, expect_one_more, use
from course_lib.virtual_gpu.raw import copy_bytes, fill_bytes, load64, native, store64
from course_lib.virtual_gpu.records import (
    B_COPIES,
    B_COPIES_IN_FLIGHT,
    B_COPY_CAPACITY,
    B_COPY_FREE,
    B_COPY_USED,
    B_CORE,
    B_THREAD_BYTES,
    B_THREAD_COUNT,
    B_THREADS,
    COPY_BYTES,
    CP_ARRIVES,
    CP_BYTES,
    CP_GROUP,
    CP_LANDED,
    CP_NEXT,
    CP_READY_CLOCK,
    CP_SITE,
    CP_SOURCE,
    CP_SOURCE_BYTES,
    CP_TARGET,
    K_CHECK,
    K_COPY_ISSUE_CYCLES,
    K_FORCED_LANDINGS,
    K_LANDING,
    K_RANDOM,
    K_TIMED,
    LAND_EARLY,
    LAND_RANDOM,
    T_COPY_COMMITTED,
    T_COPY_FIRST,
    T_COPY_GROUP,
    T_COPY_LAST,
    T_WAIT_SITE,
)


@native
def draw(core, choices):
    """A number below `choices` from the core's seeded generator (xorshift)."""
    state = load64(core, K_RANDOM)
    state ^= state << 13
    state ^= (state >> 7) & 0x1FFFFFFFFFFFFFF
    state ^= state << 17
    store64(core, K_RANDOM, state)
    return ((state >> 20) & 0x7FFFFFFF) % choices


@native
def land_bytes(block, target, source, count, source_count):
    """Put the bytes of a copy into shared memory; beyond `source_count` they are zeros."""
    shared = load64(block, B_SHARED) + target
    moved = min(count, source_count)
    if moved == 16:
        copy_bytes(shared, source, 16)
    else:
        copy_bytes(shared, source, moved)
        fill_bytes(shared + moved, 0, count - moved)
    fill_bytes(load64(block, B_VALID) + target, 1, count)


@native
def land(block, copy):
    """Land one copy, unless it has landed before."""
    if load64(copy, CP_LANDED) == 0:
        store64(copy, CP_LANDED, 1)
        if load64(copy, CP_ARRIVES):
            thread = load64(copy, CP_SOURCE)
            target = load64(copy, CP_TARGET)
            arrive_for_copies(block, thread, target, load64(copy, CP_GROUP) + 1, 0)
            return
        land_bytes(
            block,
            load64(copy, CP_TARGET),
            load64(copy, CP_SOURCE),
            load64(copy, CP_BYTES),
            load64(copy, CP_SOURCE_BYTES),
        )


@native
def land_in_order(block, thread):
    """Land all copies of a thread, and make the arrivals that wait behind them."""
    copy = load64(thread, T_COPY_FIRST)
    while copy != 0:
        land(block, copy)
        copy = load64(copy, CP_NEXT)


@native
def land_everything(block):
    """Every copy in flight lands: nobody can go on before."""
    thread = load64(block, B_THREADS)
    for _ in range(load64(block, B_THREAD_COUNT)):
        land_in_order(block, thread)
        thread += load64(block, B_THREAD_BYTES)


@native
def forget_copies(block):
    """An empty pool, for a new block."""
    store64(block, B_COPY_USED, 0)
    store64(block, B_COPY_FREE, 0)
    store64(block, B_COPIES_IN_FLIGHT, 0)


@native
def new_record(block):
    """A free copy record, or 0 where the pool is full."""
    copy = load64(block, B_COPY_FREE)
    if copy != 0:
        store64(block, B_COPY_FREE, load64(copy, CP_NEXT))
        return copy
    used = load64(block, B_COPY_USED)
    if used >= load64(block, B_COPY_CAPACITY):
        return 0
    store64(block, B_COPY_USED, used + 1)
    return load64(block, B_COPIES) + used * COPY_BYTES


@native
def pop_oldest(block, thread):
    """Land a thread's oldest copy and drop its record; returns the cycle at which it was there."""
    copy = load64(thread, T_COPY_FIRST)
    land(block, copy)
    following = load64(copy, CP_NEXT)
    store64(thread, T_COPY_FIRST, following)
    if following == 0:
        store64(thread, T_COPY_LAST, 0)
    store64(copy, CP_NEXT, load64(block, B_COPY_FREE))
    store64(block, B_COPY_FREE, copy)
    store64(block, B_COPIES_IN_FLIGHT, load64(block, B_COPIES_IN_FLIGHT) - 1)
    return load64(copy, CP_READY_CLOCK)


@native
def append(block, thread, target, source, count, source_count, site, ready, landed):
    """Queue a copy behind the thread's others. A full pool lands older ones early, and says so."""
    copy = new_record(block)
    if copy == 0:
        core = load64(block, B_CORE)
        store64(core, K_FORCED_LANDINGS, load64(core, K_FORCED_LANDINGS) + 1)
        if load64(thread, T_COPY_FIRST) == 0:
            if landed == 0:
                land_bytes(block, target, source, count, source_count)
            return
        pop_oldest(block, thread)
        copy = new_record(block)
    store64(copy, CP_NEXT, 0)
    store64(copy, CP_ARRIVES, 0)
    store64(copy, CP_TARGET, target)
    store64(copy, CP_SOURCE, source)
    store64(copy, CP_BYTES, count)
    store64(copy, CP_SOURCE_BYTES, source_count)
    store64(copy, CP_GROUP, load64(thread, T_COPY_GROUP))
    store64(copy, CP_SITE, site)
    store64(copy, CP_LANDED, landed)
    store64(copy, CP_READY_CLOCK, ready)
    last = load64(thread, T_COPY_LAST)
    store64(thread, T_COPY_LAST, copy)
    if last == 0:
        store64(thread, T_COPY_FIRST, copy)
    else:
        store64(last, CP_NEXT, copy)
    store64(block, B_COPIES_IN_FLIGHT, load64(block, B_COPIES_IN_FLIGHT) + 1)


@native
def land_some(core, block):
    """Random landing between two turns: some copies of one thread land, in no order."""
    if load64(block, B_COPIES_IN_FLIGHT) == 0 or draw(core, 2) == 0:
        return
    index = draw(core, load64(block, B_THREAD_COUNT))
    thread = load64(block, B_THREADS) + index * load64(block, B_THREAD_BYTES)
    copy = load64(thread, T_COPY_FIRST)
    while copy != 0:
        if load64(copy, CP_ARRIVES):
            return  # an arrival needs all copies before it
        if draw(core, 2) == 0:
            land(block, copy)
        copy = load64(copy, CP_NEXT)


# --- called by translated code --------------------------------------------------------------


@native
def rt_copy_async(block, thread, target, source, count, source_count, site, address):
    """Issue one copy of `count` bytes from a checked host address to shared offset `target`."""
    core = load64(block, B_CORE)
    timed = load64(core, K_TIMED) != 0
    ready = 0
    if timed:
        now = load64(thread, T_CLOCK)
        ready = fetch(core, address, source_count, now, False)
        log_landing(block, thread, target, address, site, now, ready)
        store64(thread, T_CLOCK, now + load64(core, K_COPY_ISSUE_CYCLES))
    if load64(core, K_CHECK) != 0:
        column, group = copy_column(block, thread), load64(thread, T_COPY_GROUP)
        access(block, thread, target, count, site, WRITES, column, group + 1, address)
        global_access(block, thread, address, source_count, site, 0, column, group + 1)
    policy = load64(core, K_LANDING)
    now_landing = policy == LAND_EARLY or (policy == LAND_RANDOM and draw(core, 2) == 0)
    if now_landing:
        land_bytes(block, target, source, count, source_count)
    if timed or not now_landing:
        landed = 1 if now_landing else 0
        append(block, thread, target, source, count, source_count, site, ready, landed)
    return 0


@native
def rt_copy_commit(block, thread):
    """Close the open group: copies issued from now on belong to the next one."""
    group = load64(thread, T_COPY_GROUP) + 1
    store64(thread, T_COPY_GROUP, group)
    store64(thread, T_COPY_COMMITTED, group)
    return 0


@native
def rt_copy_wait(block, thread, allowed, site):
    """Wait until at most `allowed` of the thread's youngest groups are pending (-1: none, not even
    the open one)."""
    # An arrival behind copies ends a group too, but does not commit it.
    limit = min(load64(thread, T_COPY_GROUP) - allowed, load64(thread, T_COPY_COMMITTED))
    if load64(load64(block, B_CORE), K_CHECK) != 0:
        copies_complete(block, thread, limit)
    copy = load64(thread, T_COPY_FIRST)
    if copy == 0:
        return 0
    ready = 0
    while copy != 0 and load64(copy, CP_GROUP) < limit:
        ready = max(ready, pop_oldest(block, thread))
        copy = load64(thread, T_COPY_FIRST)
    if ready != 0:
        store64(thread, T_SITE, site)
        store64(thread, T_WAIT_SITE, site)
        stall_until(block, thread, ready)
    return 0


@native
def rt_copy_arrive(block, thread, offset, counted, site):
    """cp.async.mbarrier.arrive: arrive when all earlier copies of this thread have landed.

    Without .noinc the arrival is one more than those that the mbarrier was initialised with.
    """
    number = use(block, thread, offset, site)
    if number < 0:
        return number
    if not counted:
        expect_one_more(block, number)
    group = load64(thread, T_COPY_GROUP)
    store64(thread, T_COPY_GROUP, group + 1)  # what comes later is not covered by the arrival
    core = load64(block, B_CORE)
    if load64(core, K_LANDING) == LAND_EARLY:
        ready = load64(thread, T_CLOCK)
        while load64(thread, T_COPY_FIRST) != 0:
            ready = max(ready, pop_oldest(block, thread))
        return arrive_for_copies(block, thread, offset, group + 1, ready)
    append(block, thread, offset, thread, 0, 0, site, 0, 0)
    marker = load64(thread, T_COPY_LAST)
    store64(marker, CP_ARRIVES, 1)
    store64(marker, CP_GROUP, group)
    return 0
