"""Threads that wait for a phase of an mbarrier: parking, waking, and what happens when all wait.

`try_wait` and `test_wait` both hold the thread back until its phase is over. Where nobody else can
run, copies in flight land; after that a `test_wait` answers "not yet", since a thread may have
other things to do meanwhile. Polls that go round without any change are a deadlock.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import (
    F_MBARRIER,
    T_A0,
    T_A1,
    T_A2,
    T_A3,
    T_A4,
    T_CLOCK,
    T_R0,
    T_SITE,
)
from course_lib.virtual_gpu.bulk_copies import land_at, land_one_bulk
from course_lib.virtual_gpu.clock import advance_to, stall_until
from course_lib.virtual_gpu.copies import land_everything
from course_lib.virtual_gpu.mbarriers import passes, ready_clock
from course_lib.virtual_gpu.raw import load64, native, store64
from course_lib.virtual_gpu.records import (
    B_BULK_COUNT,
    B_BULKS,
    B_CORE,
    B_IDLE_POLLS,
    B_LINEAR,
    B_MBARRIER_EVENTS,
    B_PARKED,
    B_THREAD_BYTES,
    B_THREADS,
    B_WARP_COUNT,
    B_WARPS,
    BULK_READY_CLOCK,
    BULK_RECORD_BYTES,
    IDLE_POLLS,
    K_BLOCK_BYTES,
    K_BLOCKS,
    K_ORDER,
    K_RESIDENT,
    K_TIMED,
    T_WAIT_SITE,
    TIMED_ORDER,
    W_CLOCK,
    W_EVENTS,
    W_PARKED,
    W_READY,
    WARP_BYTES,
)


@native
def tested(block, thread):
    """Does the wait of this thread succeed now? 1, 0, or a negative answer."""
    return passes(
        block,
        thread,
        load64(thread, T_A0),
        load64(thread, T_A1),
        load64(thread, T_A2),
        load64(thread, T_A4),
        load64(thread, T_SITE),
    )


@native
def wait_for_phase(block, thread):
    """A thread comes to a wait: 1 it goes on, 0 it parks, -1 it is at fault."""
    answer = tested(block, thread)
    if answer < 0:
        store64(thread, T_A1, load64(thread, T_A0))
        store64(thread, T_A0, F_MBARRIER)
        store64(thread, T_A2, answer)
        return -1
    store64(thread, T_R0, answer)
    if answer and load64(load64(block, B_CORE), K_TIMED):
        store64(thread, T_WAIT_SITE, load64(thread, T_SITE))
        stall_until(block, thread, ready_clock(block, load64(thread, T_A0)))
    return answer


@native
def park(block, record, lanes):
    """These lanes of a warp wait for their phases."""
    store64(record, W_PARKED, load64(record, W_PARKED) | lanes)
    # A later lane of the same turn may have ended the phase already: look once in any case.
    store64(record, W_EVENTS, -1)
    while lanes != 0:
        lanes &= lanes - 1
        store64(block, B_PARKED, load64(block, B_PARKED) + 1)


@native
def unpark(block, record, lanes):
    """These lanes can run again."""
    store64(record, W_PARKED, load64(record, W_PARKED) & ~lanes)
    store64(record, W_READY, load64(record, W_READY) | lanes)
    while lanes != 0:
        lanes &= lanes - 1
        store64(block, B_PARKED, load64(block, B_PARKED) - 1)


@native
def wake(block):
    """Everyone whose phase is over goes on."""
    events = load64(block, B_MBARRIER_EVENTS)
    for warp in range(load64(block, B_WARP_COUNT)):
        record = load64(block, B_WARPS) + warp * WARP_BYTES
        if load64(record, W_PARKED) != 0 and load64(record, W_EVENTS) != events:
            store64(record, W_EVENTS, events)
            wake_warp(block, record, warp)


@native
def wake_warp(block, record, warp):
    """The lanes of one warp whose phase is over go on, no earlier than it was."""
    timed = load64(load64(block, B_CORE), K_TIMED) != 0
    waiting = load64(record, W_PARKED)
    stride = load64(block, B_THREAD_BYTES)
    thread = load64(block, B_THREADS) + warp * 32 * stride
    woken = 0
    for lane in range(32):
        # A barrier that was invalidated meanwhile never lets anybody pass.
        if (waiting >> lane) & 1 and tested(block, thread) == 1:
            woken |= 1 << lane
            store64(thread, T_R0, 1)
            if timed:
                advance_to(block, thread, ready_clock(block, load64(thread, T_A0)))
                clock = max(load64(record, W_CLOCK), load64(thread, T_CLOCK))
                store64(record, W_CLOCK, clock)
        thread += stride
    if woken != 0:
        unpark(block, record, woken)


@native
def answer_polls(block):
    """Nothing can happen any more: whoever only tests hears "not yet". True where anybody did."""
    polls = load64(block, B_IDLE_POLLS) + 1
    store64(block, B_IDLE_POLLS, polls)
    if polls > IDLE_POLLS:
        return False
    stride = load64(block, B_THREAD_BYTES)
    answered = False
    for warp in range(load64(block, B_WARP_COUNT)):
        record = load64(block, B_WARPS) + warp * WARP_BYTES
        waiting = load64(record, W_PARKED)
        thread = load64(block, B_THREADS) + warp * 32 * stride
        testing = 0
        for lane in range(32):
            if (waiting >> lane) & 1 and load64(thread, T_A3) == 0:
                testing |= 1 << lane
                store64(thread, T_R0, 0)
            thread += stride
        if testing != 0:
            unpark(block, record, testing)
            answered = True
    return answered


@native
def land_due(core, now):
    """Timed order: copies land at their cycle where threads wait. True where anybody goes on."""
    woken = False
    for slot in range(load64(core, K_RESIDENT)):
        block = load64(core, K_BLOCKS) + slot * load64(core, K_BLOCK_BYTES)
        parked = load64(block, B_PARKED)
        if load64(block, B_LINEAR) >= 0 and parked > 0:
            position = 0
            while position < load64(block, B_BULK_COUNT):
                copy = load64(block, B_BULKS) + position * BULK_RECORD_BYTES
                if load64(copy, BULK_READY_CLOCK) <= now:
                    land_at(block, position)
                else:
                    position += 1
            wake(block)
            woken = woken or load64(block, B_PARKED) < parked
    return woken


@native
def next_landing(core):
    """The earliest cycle at which a copy lands in a block where threads wait; -1 for none."""
    earliest = -1
    for slot in range(load64(core, K_RESIDENT)):
        block = load64(core, K_BLOCKS) + slot * load64(core, K_BLOCK_BYTES)
        if load64(block, B_LINEAR) >= 0 and load64(block, B_PARKED) > 0:
            for position in range(load64(block, B_BULK_COUNT)):
                copy = load64(block, B_BULKS) + position * BULK_RECORD_BYTES
                ready = load64(copy, BULK_READY_CLOCK)
                if earliest < 0 or ready < earliest:
                    earliest = ready
    return earliest


@native
def unstick(core):
    """No warp can run: let copies land, then answer polls. True where somebody can run now."""
    if load64(core, K_ORDER) == TIMED_ORDER:
        due = next_landing(core)
        while due >= 0:
            if land_due(core, due):
                return True
            due = next_landing(core)
    for slot in range(load64(core, K_RESIDENT)):
        block = load64(core, K_BLOCKS) + slot * load64(core, K_BLOCK_BYTES)
        if load64(block, B_LINEAR) >= 0 and load64(block, B_PARKED) > 0:
            parked = load64(block, B_PARKED)
            before = -1
            # A phase that ends need not be the one that anybody here waits for: land on until then.
            while load64(block, B_PARKED) == parked and load64(block, B_MBARRIER_EVENTS) != before:
                before = load64(block, B_MBARRIER_EVENTS)
                while load64(block, B_MBARRIER_EVENTS) == before and land_one_bulk(block):
                    pass
                if load64(block, B_MBARRIER_EVENTS) == before:
                    land_everything(block)
                wake(block)
            if load64(block, B_PARKED) < parked or answer_polls(block):
                return True
    return False
