"""Barriers of a block: bar.sync, bar.arrive, bar.red, with and without a number of threads.

PTX counts arrivals by whole warps: a warp has arrived when all its living lanes have. A barrier
without a number is complete when every warp that still lives has arrived.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import (
    REDUCE_AND,
    REDUCE_POPC,
    T_A0,
    T_A1,
    T_A2,
    T_A3,
    T_R0,
    T_RESUME,
    T_SITE,
    Y_BARRIER,
)
from course_lib.virtual_gpu.clock import advance_to
from course_lib.virtual_gpu.happens_before import arrive_only, count_arrivals, join_barrier
from course_lib.virtual_gpu.notes import note_meeting
from course_lib.virtual_gpu.raw import load64, native, store64
from course_lib.virtual_gpu.records import (
    B_ARRIVED,
    B_BARRIERS,
    B_CORE,
    B_THREAD_BYTES,
    B_THREADS,
    B_WARP_COUNT,
    B_WARPS,
    BAR_ARRIVED,
    BAR_CLOCK,
    BAR_EXPECTED,
    BAR_PARTIAL,
    BAR_TRUE,
    BAR_VOTES,
    BAR_WAITS,
    BARRIER_BYTES,
    BARRIER_COUNT,
    DIVERGENT,
    DONE,
    FULL_WARP,
    K_BARRIER_CYCLES,
    K_BARRIER_WARP_CYCLES,
    K_CHECK,
    K_FAULT_THREAD,
    K_TIMED,
    W_BARRIER,
    W_CLOCK,
    W_EXITED,
    W_READY,
    WARP_BYTES,
)


@native
def clear_barriers(block):
    """No arrivals anywhere."""
    store64(block, B_ARRIVED, 0)
    for index in range(BARRIER_COUNT):
        clear_barrier(load64(block, B_BARRIERS) + index * BARRIER_BYTES)


@native
def clear_barrier(barrier):
    """Ready for the next phase; lanes of warps that are not complete yet stay arrived."""
    store64(barrier, BAR_ARRIVED, 0)
    store64(barrier, BAR_EXPECTED, 0)
    store64(barrier, BAR_TRUE, 0)
    store64(barrier, BAR_VOTES, 0)
    store64(barrier, BAR_CLOCK, 0)


@native
def arrive(block, thread, warp, lane, reason):
    """One lane arrives; with Y_BARRIER it waits, with Y_ARRIVE it goes on."""
    index = load64(thread, T_A0) & (BARRIER_COUNT - 1)
    barrier = load64(block, B_BARRIERS) + index * BARRIER_BYTES
    record = load64(block, B_WARPS) + warp * WARP_BYTES
    bit = 1 << lane
    store64(block, B_ARRIVED, load64(block, B_ARRIVED) | (1 << index))
    store64(barrier, BAR_EXPECTED, load64(thread, T_A1))
    store64(barrier, BAR_VOTES, load64(barrier, BAR_VOTES) + 1)
    store64(barrier, BAR_TRUE, load64(barrier, BAR_TRUE) + (load64(thread, T_A2) & 1))
    place = BAR_PARTIAL + warp
    store64(barrier, place, load64(barrier, place) | bit)
    waiting = W_BARRIER if reason == Y_BARRIER else W_READY
    store64(record, waiting, load64(record, waiting) | bit)
    if reason != Y_BARRIER:
        arrive_only(block, thread, barrier, warp)
    count_warp(block, barrier, warp)


@native
def arrived_at(block, thread, clock):
    """The arrival that a thread has just made happened at `clock`."""
    index = load64(thread, T_A0) & (BARRIER_COUNT - 1)
    barrier = load64(block, B_BARRIERS) + index * BARRIER_BYTES
    store64(barrier, BAR_CLOCK, max(load64(barrier, BAR_CLOCK), clock))


@native
def count_warp(block, barrier, warp):
    """A warp of which every living lane has arrived counts as 32 threads."""
    arrived = load64(barrier, BAR_PARTIAL + warp)
    exited = load64(load64(block, B_WARPS) + warp * WARP_BYTES, W_EXITED)
    if arrived != 0 and (arrived | exited) == FULL_WARP:
        store64(barrier, BAR_PARTIAL + warp, 0)
        store64(barrier, BAR_ARRIVED, load64(barrier, BAR_ARRIVED) + 32)
        count_arrivals(block, barrier, warp)


@native
def living_warps(block):
    """Warps with a lane that has not exited."""
    living = 0
    for warp in range(load64(block, B_WARP_COUNT)):
        if load64(load64(block, B_WARPS) + warp * WARP_BYTES, W_EXITED) != FULL_WARP:
            living += 1
    return living


@native
def is_complete(block, barrier):
    """Has everyone whom the barrier waits for arrived?"""
    arrived = load64(barrier, BAR_ARRIVED)
    expected = load64(barrier, BAR_EXPECTED)
    if arrived == 0:
        return False
    if expected == 0:
        return arrived >= 32 * living_warps(block)
    return arrived >= expected


@native
def complete_barriers(block):
    """Release every barrier that is complete; DONE, or DIVERGENT where a warp met one apart."""
    pending = load64(block, B_ARRIVED)
    index = 0
    while pending >> index != 0:
        if (pending >> index) & 1:
            barrier = load64(block, B_BARRIERS) + index * BARRIER_BYTES
            if is_complete(block, barrier):
                store64(block, B_ARRIVED, load64(block, B_ARRIVED) & ~(1 << index))
                status = release(block, barrier, index)
                if status != DONE:
                    return status
        index += 1
    return DONE


@native
def after_exit(block, warp):
    """Lanes of a warp have exited: the lanes that wait at barriers may now be all of it."""
    pending = load64(block, B_ARRIVED)
    for index in range(BARRIER_COUNT):
        if (pending >> index) & 1:
            count_warp(block, load64(block, B_BARRIERS) + index * BARRIER_BYTES, warp)


@native
def reduction(barrier, kind):
    """The result of bar.red for everyone who waited."""
    true = load64(barrier, BAR_TRUE)
    if kind == REDUCE_POPC:
        return true
    if kind == REDUCE_AND:
        return 1 if true == load64(barrier, BAR_VOTES) else 0
    return 1 if true > 0 else 0


@native
def waits_at(block, barrier, index, warp):
    """Address of the first thread of a warp that waits here and has been counted, 0 = none."""
    record = load64(block, B_WARPS) + warp * WARP_BYTES
    waiting = load64(record, W_BARRIER) & ~load64(barrier, BAR_PARTIAL + warp)
    stride = load64(block, B_THREAD_BYTES)
    thread = load64(block, B_THREADS) + warp * 32 * stride
    lane = 0
    while waiting >> lane != 0:
        if (waiting >> lane) & 1 and load64(thread, T_A0) & (BARRIER_COUNT - 1) == index:
            return thread
        thread += stride
        lane += 1
    return 0


@native
def lanes_at(block, barrier, index, warp):
    """The lanes of a warp that wait here and have been counted."""
    record = load64(block, B_WARPS) + warp * WARP_BYTES
    waiting = load64(record, W_BARRIER) & ~load64(barrier, BAR_PARTIAL + warp)
    stride = load64(block, B_THREAD_BYTES)
    thread = load64(block, B_THREADS) + warp * 32 * stride
    here = 0
    lane = 0
    while waiting >> lane != 0:
        if (waiting >> lane) & 1 and load64(thread, T_A0) & (BARRIER_COUNT - 1) == index:
            here |= 1 << lane
        thread += stride
        lane += 1
    return here


@native
def warps_at(block, barrier, index, site):
    """The warps that wait here at this site, as a bit mask."""
    found = 0
    for warp in range(load64(block, B_WARP_COUNT)):
        thread = waits_at(block, barrier, index, warp)
        if thread != 0 and load64(thread, T_SITE) == site:
            found |= 1 << warp
    return found


@native
def compare_sites(block, barrier, index):
    """Note where warps meet the barrier of the whole block at different sites: legal, but rare."""
    first = 0
    told = -1
    for warp in range(load64(block, B_WARP_COUNT)):
        thread = waits_at(block, barrier, index, warp)
        if thread != 0:
            site = load64(thread, T_SITE)
            if first == 0:
                first = thread
            elif site != load64(first, T_SITE) and site != told:
                here = load64(first, T_SITE)
                mine = warps_at(block, barrier, index, here)
                others = warps_at(block, barrier, index, site)
                note_meeting(block, thread, here, mine, site, others)
                told = site


@native
def release(block, barrier, index):
    """Everyone who waits here goes on, no earlier than the last arrival."""
    core = load64(block, B_CORE)
    warps = load64(barrier, BAR_ARRIVED) // 32
    cost = load64(core, K_BARRIER_CYCLES) + load64(core, K_BARRIER_WARP_CYCLES) * warps
    clock = load64(barrier, BAR_CLOCK) + cost
    # Barriers with a number of threads join roles on purpose, each at its own line.
    if load64(barrier, BAR_EXPECTED) == 0:
        compare_sites(block, barrier, index)
    if load64(core, K_CHECK) != 0:
        for warp in range(load64(block, B_WARP_COUNT)):
            store64(barrier, BAR_WAITS + warp, lanes_at(block, barrier, index, warp))
        join_barrier(block, barrier)
    for warp in range(load64(block, B_WARP_COUNT)):
        record = load64(block, B_WARPS) + warp * WARP_BYTES
        if load64(record, W_BARRIER) != 0:
            status = release_warp(block, barrier, index, warp, record, clock)
            if status != DONE:
                return status
    clear_barrier(barrier)
    return DONE


@native
def release_warp(block, barrier, index, warp, record, clock):
    """Wake the lanes of one warp that wait at this barrier and have been counted."""
    core = load64(block, B_CORE)
    timed = load64(core, K_TIMED) != 0
    waiting = load64(record, W_BARRIER)
    held = load64(barrier, BAR_PARTIAL + warp)
    stride = load64(block, B_THREAD_BYTES)
    thread = load64(block, B_THREADS) + warp * 32 * stride
    woken = 0
    resume = -1
    for lane in range(32):
        if (waiting >> lane) & 1 and not (held >> lane) & 1:
            if load64(thread, T_A0) & (BARRIER_COUNT - 1) == index:
                if resume >= 0 and load64(thread, T_RESUME) != resume:
                    store64(core, K_FAULT_THREAD, warp * 32 + lane)
                    return DIVERGENT
                resume = load64(thread, T_RESUME)
                woken |= 1 << lane
                kind = load64(thread, T_A3)
                if kind != 0:
                    store64(thread, T_R0, reduction(barrier, kind))
                if timed:
                    advance_to(block, thread, clock)
        thread += stride
    store64(record, W_BARRIER, waiting & ~woken)
    store64(record, W_READY, load64(record, W_READY) | woken)
    if woken != 0:
        store64(record, W_CLOCK, max(load64(record, W_CLOCK), clock))
    return DONE
