"""The scheduler of one SM: which warp runs next, what its lanes' yields mean, when blocks end.

A turn takes one ready warp and runs each of its ready lanes until it yields. Between turns,
operations that everyone needed has arrived at are completed: warp-wide ones, then barriers. Which
warp comes next is the order's choice; a race-free kernel gives the same results under every order.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import (
    B_CTAID_X,
    B_CTAID_Y,
    B_CTAID_Z,
    B_LOCAL,
    B_LOCAL_BYTES,
    B_NCTAID_X,
    B_NCTAID_Y,
    B_SHARED,
    B_SHARED_BYTES,
    B_VALID,
    T_ACCESSES,
    T_CLOCK,
    T_FUEL,
    T_RESUME,
    T_STALL,
    Y_ARRIVE,
    Y_BARRIER,
    Y_EXIT,
    Y_FUEL,
    Y_MATRIX,
    Y_MBARRIER,
    Y_SHUFFLE,
    Y_SLEEP,
    Y_SYNCWARP,
    Y_VOTE,
    Y_WGMMA,
)
from course_lib.virtual_gpu.barriers import (
    after_exit,
    arrive,
    arrived_at,
    clear_barriers,
    complete_barriers,
)
from course_lib.virtual_gpu.bulk_copies import clear_bulks, land_one_bulk, land_some_bulks
from course_lib.virtual_gpu.clock import charge, clear_core_clock, issue, occupy
from course_lib.virtual_gpu.collectives import complete_collectives
from course_lib.virtual_gpu.copies import draw, forget_copies, land_some
from course_lib.virtual_gpu.happens_before import begin_block
from course_lib.virtual_gpu.mbarriers import clear_mbarriers
from course_lib.virtual_gpu.phase_waits import land_due, park, unstick, wait_for_phase, wake
from course_lib.virtual_gpu.raw import call_step, fill_bytes, load64, native, store64
from course_lib.virtual_gpu.records import (
    B_ARRIVED,
    B_BARRIERS,
    B_CORE,
    B_LINEAR,
    B_LIVE,
    B_PARKED,
    B_START_CLOCK,
    B_STEP,
    B_STEPS_LEFT,
    B_THREAD_BYTES,
    B_THREAD_COUNT,
    B_THREADS,
    B_WARP_COUNT,
    B_WARPS,
    B_WGMMA_WAITING,
    BAR_PARTIAL,
    BARRIER_BYTES,
    BARRIER_COUNT,
    BUDGET,
    DEADLOCK,
    DONE,
    EXHAUSTED,
    FAULT,
    FULL_WARP,
    K_BLOCK_BYTES,
    K_BLOCKS,
    K_CYCLES,
    K_EXHAUSTED,
    K_FAULT_BLOCK,
    K_FAULT_THREAD,
    K_FUEL,
    K_LANDING,
    K_LAST_WARP,
    K_LIVE_BLOCKS,
    K_ORDER,
    K_QUEUE,
    K_QUEUE_LENGTH,
    K_QUEUE_NEXT,
    K_RESIDENT,
    K_SHARED_QUEUE,
    K_SPINS,
    K_STEP_BUDGET,
    K_STOP,
    K_TENSOR_FREE,
    K_TIMED,
    K_TURNS,
    K_VICTIM,
    LAND_RANDOM,
    MAX_WARPS,
    ONE_FIRST,
    ONE_LAST,
    RANDOM_ORDER,
    STOPPED,
    T_BULK_COLUMN,
    T_BULK_GROUP,
    T_BULK_PENDING,
    T_BULK_READY,
    T_COPY_COMMITTED,
    T_COPY_FIRST,
    T_COPY_GROUP,
    T_COPY_LAST,
    T_REASON,
    T_WAIT_SITE,
    TIMED_ORDER,
    W_BARRIER,
    W_CLOCK,
    W_COLLECTIVE,
    W_EVENTS,
    W_EXITED,
    W_MATRIX,
    W_PARKED,
    W_READY,
    W_WGMMA,
    WARP_BYTES,
    YIELD_STEPS,
)
from course_lib.virtual_gpu.shared_unit import shared_cycles
from course_lib.virtual_gpu.tensor_cores import complete_matrix
from course_lib.virtual_gpu.wgmma import begin_warpgroups, wake_warpgroups

SCHEDULERS = 4  # of an SM; a warp belongs to one
POISON = 0xCD  # bytes of shared and local memory that nobody has written

# --- a block moves in -----------------------------------------------------------------------


@native
def start_block(core, block, linear, clock):
    """Give a block record its next block of the grid, in a state that nothing is left over in."""
    width = load64(block, B_NCTAID_X)
    height = load64(block, B_NCTAID_Y)
    store64(block, B_CTAID_X, linear % width)
    store64(block, B_CTAID_Y, linear // width % height)
    store64(block, B_CTAID_Z, linear // (width * height))
    store64(block, B_LINEAR, linear)
    store64(block, B_LIVE, load64(block, B_THREAD_COUNT))
    store64(block, B_START_CLOCK, clock)
    store64(block, B_STEPS_LEFT, load64(core, K_STEP_BUDGET))
    fill_bytes(load64(block, B_SHARED), POISON, load64(block, B_SHARED_BYTES))
    fill_bytes(load64(block, B_VALID), 0, load64(block, B_SHARED_BYTES))
    threads = load64(block, B_THREAD_COUNT)
    fill_bytes(load64(block, B_LOCAL), POISON, threads * load64(block, B_LOCAL_BYTES))
    forget_copies(block)
    clear_bulks(block)
    clear_mbarriers(block)
    begin_warpgroups(block)
    clear_barriers(block)
    for index in range(BARRIER_COUNT):
        barrier = load64(block, B_BARRIERS) + index * BARRIER_BYTES
        fill_bytes(barrier + BAR_PARTIAL * 8, 0, MAX_WARPS * 8)
    start_threads(core, block, clock)
    start_warps(block, clock)
    begin_block(block)


@native
def start_threads(core, block, clock):
    """Every thread at the first instruction of the kernel."""
    thread = load64(block, B_THREADS)
    for _ in range(load64(block, B_THREAD_COUNT)):
        store64(thread, T_RESUME, 0)
        store64(thread, T_REASON, -1)
        store64(thread, T_CLOCK, clock)
        store64(thread, T_STALL, 0)
        store64(thread, T_ACCESSES, 0)
        store64(thread, T_FUEL, load64(core, K_FUEL))
        store64(thread, T_WAIT_SITE, -1)
        store64(thread, T_COPY_FIRST, 0)
        store64(thread, T_COPY_LAST, 0)
        store64(thread, T_COPY_GROUP, 0)
        store64(thread, T_COPY_COMMITTED, 0)
        store64(thread, T_BULK_GROUP, 0)
        store64(thread, T_BULK_PENDING, 0)
        store64(thread, T_BULK_COLUMN, -1)
        store64(thread, T_BULK_READY, 0)
        thread += load64(block, B_THREAD_BYTES)


@native
def start_warps(block, clock):
    """Every lane ready; lanes beyond the end of the block count as exited."""
    threads = load64(block, B_THREAD_COUNT)
    for warp in range(load64(block, B_WARP_COUNT)):
        record = load64(block, B_WARPS) + warp * WARP_BYTES
        lanes = FULL_WARP
        if threads - warp * 32 < 32:
            lanes = (1 << (threads - warp * 32)) - 1
        store64(record, W_READY, lanes)
        store64(record, W_EXITED, FULL_WARP & ~lanes)
        store64(record, W_COLLECTIVE, 0)
        store64(record, W_BARRIER, 0)
        store64(record, W_PARKED, 0)
        store64(record, W_EVENTS, 0)
        store64(record, W_MATRIX, 0)
        store64(record, W_WGMMA, 0)
        store64(record, W_CLOCK, clock)


@native
def next_block(core, block, clock):
    """The next waiting block moves into this record; True where there was one."""
    position = load64(core, K_QUEUE_NEXT)
    if position >= load64(core, K_QUEUE_LENGTH):
        store64(block, B_LINEAR, -1)
        return False
    store64(core, K_QUEUE_NEXT, position + 1)
    start_block(core, block, load64(load64(core, K_QUEUE), position), clock)
    return True


# --- which warp is next ---------------------------------------------------------------------


@native
def block_at(core, slot):
    """Address of the record of a resident block."""
    return load64(core, K_BLOCKS) + slot * load64(core, K_BLOCK_BYTES)


@native
def is_ready(core, candidate, warps):
    """Can this warp, counted over all resident blocks, run?"""
    block = block_at(core, candidate // warps)
    if load64(block, B_LINEAR) < 0:
        return False
    return load64(load64(block, B_WARPS) + candidate % warps * WARP_BYTES, W_READY) != 0


@native
def choose_warp(core):
    """The warp of the next turn by the core's order, or -1 where none can run."""
    warps = load64(block_at(core, 0), B_WARP_COUNT)
    total = warps * load64(core, K_RESIDENT)
    order = load64(core, K_ORDER)
    if order == TIMED_ORDER:
        return earliest_warp(core, warps, total)
    if order == RANDOM_ORDER:
        return following_warp(core, warps, total, draw(core, total), -1)
    last = load64(core, K_LAST_WARP)
    victim = load64(core, K_VICTIM) % warps
    spins = load64(core, K_SPINS)
    # Whoever spins may wait for a warp that the order holds back: then everyone has a turn.
    if order == ONE_FIRST and spins == 0:
        for slot in range(load64(core, K_RESIDENT)):
            if is_ready(core, slot * warps + victim, warps):
                return slot * warps + victim
    if order == ONE_LAST and spins < total:
        found = following_warp(core, warps, total, last, victim)
        if found >= 0:
            return found
    return following_warp(core, warps, total, last, -1)


@native
def following_warp(core, warps, total, last, avoided):
    """The first ready warp after `last`, in a circle; never the warp `avoided` of any block."""
    for distance in range(1, total + 1):
        candidate = (last + distance) % total
        if candidate % warps != avoided and is_ready(core, candidate, warps):
            return candidate
    return -1


@native
def clock_of(core, candidate):
    """The virtual clock of a warp, counted over all resident blocks."""
    warps = load64(block_at(core, 0), B_WARP_COUNT)
    block = block_at(core, candidate // warps)
    return load64(load64(block, B_WARPS) + candidate % warps * WARP_BYTES, W_CLOCK)


@native
def earliest_warp(core, warps, total):
    """The ready warp whose virtual clock is lowest."""
    best = -1
    best_clock = 0
    for candidate in range(total):
        if is_ready(core, candidate, warps):
            block = block_at(core, candidate // warps)
            clock = load64(load64(block, B_WARPS) + candidate % warps * WARP_BYTES, W_CLOCK)
            if best < 0 or clock < best_clock:
                best = candidate
                best_clock = clock
    return best


# --- a turn ---------------------------------------------------------------------------------


@native
def run_lanes(core, block, warp, record):
    """Run each ready lane until it yields, and sort the lanes by their reason; DONE or FAULT."""
    ready = load64(record, W_READY)
    started = ready
    store64(record, W_READY, 0)
    step = load64(block, B_STEP)
    stride = load64(block, B_THREAD_BYTES)
    thread = load64(block, B_THREADS) + warp * 32 * stride
    collective = 0
    matrix = 0
    wgmma = 0
    exited = 0
    again = 0
    waited = 0
    parked = 0
    spent = 0
    lane = 0
    while ready >> lane != 0:
        if (ready >> lane) & 1:
            reason = call_step(step, thread, block)
            store64(thread, T_REASON, reason)
            spent += YIELD_STEPS
            if reason == Y_SHUFFLE or reason == Y_VOTE or reason == Y_SYNCWARP:
                collective |= 1 << lane
            elif reason == Y_BARRIER or reason == Y_ARRIVE:
                arrive(block, thread, warp, lane, reason)
            elif reason == Y_MBARRIER:
                answer = wait_for_phase(block, thread)
                if answer < 0:
                    store64(core, K_FAULT_THREAD, warp * 32 + lane)
                    return FAULT
                if answer:
                    again |= 1 << lane
                    waited |= 1 << lane
                else:
                    parked |= 1 << lane
            elif reason == Y_MATRIX:
                matrix |= 1 << lane
            elif reason == Y_WGMMA:
                wgmma |= 1 << lane
            elif reason == Y_EXIT:
                exited |= 1 << lane
            elif reason == Y_FUEL or reason == Y_SLEEP:
                again |= 1 << lane
                if reason == Y_FUEL:
                    spent += load64(core, K_FUEL)
                    store64(thread, T_FUEL, load64(core, K_FUEL))
            else:
                store64(core, K_FAULT_THREAD, warp * 32 + lane)
                return FAULT
        thread += stride
        lane += 1
    store64(record, W_READY, load64(record, W_READY) | again)
    spinning = again == started and waited == 0
    store64(core, K_SPINS, load64(core, K_SPINS) + 1 if spinning else 0)
    if parked != 0:
        park(block, record, parked)
    store64(record, W_COLLECTIVE, load64(record, W_COLLECTIVE) | collective)
    if matrix != 0:
        store64(record, W_MATRIX, load64(record, W_MATRIX) | matrix)
    if wgmma != 0:
        store64(record, W_WGMMA, load64(record, W_WGMMA) | wgmma)
        store64(block, B_WGMMA_WAITING, 1)
    store64(block, B_STEPS_LEFT, load64(block, B_STEPS_LEFT) - spent)
    if exited != 0:
        exit_lanes(block, warp, record, exited)
    return DONE


@native
def exit_lanes(block, warp, record, exited):
    """Lanes have returned from the kernel."""
    store64(record, W_EXITED, load64(record, W_EXITED) | exited)
    count = 0
    while exited != 0:
        exited &= exited - 1
        count += 1
    store64(block, B_LIVE, load64(block, B_LIVE) - count)
    if load64(block, B_ARRIVED) != 0:
        after_exit(block, warp)


@native
def warps_sharing(core, candidate, until, units):
    """Warps that want the same one of `units` before cycle `until`, this one among them."""
    warps = load64(block_at(core, 0), B_WARP_COUNT)
    sharers = 1
    for other in range(candidate % units, warps * load64(core, K_RESIDENT), units):
        if other != candidate and is_ready(core, other, warps):
            block = block_at(core, other // warps)
            if load64(load64(block, B_WARPS) + other % warps * WARP_BYTES, W_CLOCK) < until:
                sharers += 1
    return sharers


@native
def wait_for_slowest_lane(block, first, ran, latest):
    """A warp goes on when the last of its lanes' copies has landed: the others wait as long."""
    for lane in range(32):
        if (ran >> lane) & 1:
            thread = first + lane * load64(block, B_THREAD_BYTES)
            site = load64(thread, T_WAIT_SITE)
            if site >= 0:
                charge(block, site, latest - load64(thread, T_CLOCK))
                store64(thread, T_WAIT_SITE, -1)


@native
def keep_time(core, block, candidate, warp, record, ran):
    """Charge a turn to the warp's scheduler and to shared memory; its lanes get one clock."""
    start = load64(record, W_CLOCK)
    stride = load64(block, B_THREAD_BYTES)
    first = load64(block, B_THREADS) + warp * 32 * stride
    latest = start
    waited = 0
    for lane in range(32):
        if (ran >> lane) & 1:
            thread = first + lane * stride
            latest = max(latest, load64(thread, T_CLOCK))
            waited = max(waited, load64(thread, T_STALL))
            store64(thread, T_STALL, 0)
    wait_for_slowest_lane(block, first, ran, latest)
    cycles = max(0, latest - start - waited)
    if cycles > 0:
        sharers = warps_sharing(core, candidate, start + cycles, SCHEDULERS)
        latest = max(latest, issue(core, candidate, start, cycles, sharers))
    accesses = shared_cycles(core, first, stride, ran)
    if accesses > 0:
        sharers = warps_sharing(core, candidate, start + accesses, 1)
        latest = max(latest, occupy(load64(core, K_SHARED_QUEUE), start, accesses, sharers))
    store64(record, W_CLOCK, latest)
    for lane in range(32):
        if (ran >> lane) & 1:
            thread = first + lane * stride
            store64(thread, T_CLOCK, latest)
            reason = load64(thread, T_REASON)
            if reason == Y_BARRIER or reason == Y_ARRIVE:
                arrived_at(block, thread, latest)


@native
def run_turn(core, candidate):
    """One turn of one warp, and what it completes; DONE or how the run ended."""
    warps = load64(block_at(core, 0), B_WARP_COUNT)
    block = block_at(core, candidate // warps)
    warp = candidate % warps
    record = load64(block, B_WARPS) + warp * WARP_BYTES
    store64(core, K_LAST_WARP, candidate)
    store64(core, K_FAULT_BLOCK, block)
    ran = load64(record, W_READY)
    status = run_lanes(core, block, warp, record)
    if status != DONE:
        return status
    if load64(core, K_TIMED) != 0:
        keep_time(core, block, candidate, warp, record, ran)
    if load64(record, W_COLLECTIVE) != 0:
        status = complete_collectives(block, warp)
        if status != DONE:
            return status
    if load64(record, W_MATRIX) != 0:
        status = complete_matrix(core, block, warp, record)
        if status != DONE:
            return status
    if load64(block, B_WGMMA_WAITING) != 0:
        wake_warpgroups(block)
    if load64(block, B_ARRIVED) != 0:
        status = complete_barriers(block)
        if status != DONE:
            return status
    if load64(core, K_LANDING) == LAND_RANDOM:
        land_some(core, block)
        land_some_bulks(core, block)
    if load64(block, B_PARKED) != 0:
        wake(block)
    if load64(block, B_LIVE) == 0:
        end_block(core, block)
    elif load64(block, B_STEPS_LEFT) < 0:
        return BUDGET
    if load64(core, K_EXHAUSTED) != 0:
        return EXHAUSTED
    return DONE


@native
def end_block(core, block):
    """A block has ended: its place goes to the next one of the queue."""
    while land_one_bulk(block):
        pass
    clock = load64(block, B_START_CLOCK)
    for warp in range(load64(block, B_WARP_COUNT)):
        clock = max(clock, load64(load64(block, B_WARPS) + warp * WARP_BYTES, W_CLOCK))
    store64(core, K_CYCLES, max(load64(core, K_CYCLES), clock))
    if not next_block(core, block, clock):
        store64(core, K_LIVE_BLOCKS, load64(core, K_LIVE_BLOCKS) - 1)


# --- entry point ----------------------------------------------------------------------------


@native
def run_core(core):
    """Run every block of the core's queue; returns DONE or how the run ended.

    On every other ending K_FAULT_BLOCK and K_FAULT_THREAD say where, and all records stay as they
    were, so that the report can look at who waits for whom.
    """
    store64(core, K_QUEUE_NEXT, 0)
    store64(core, K_LIVE_BLOCKS, 0)
    store64(core, K_LAST_WARP, -1)
    store64(core, K_SPINS, 0)
    store64(core, K_CYCLES, 0)
    if load64(core, K_TIMED) != 0:
        clear_core_clock(core)
        store64(core, K_TENSOR_FREE, 0)
    for slot in range(load64(core, K_RESIDENT)):
        block = block_at(core, slot)
        store64(block, B_CORE, core)
        if next_block(core, block, 0):
            store64(core, K_LIVE_BLOCKS, load64(core, K_LIVE_BLOCKS) + 1)
    turns = 0
    status = DONE
    while load64(core, K_LIVE_BLOCKS) > 0 and status == DONE:
        candidate = choose_warp(core)
        if candidate >= 0 and load64(core, K_ORDER) == TIMED_ORDER:
            if land_due(core, clock_of(core, candidate)):
                candidate = choose_warp(core)
        if candidate < 0:
            status = DONE if unstick(core) else DEADLOCK
        elif load64(load64(core, K_STOP), 0) != 0:
            status = STOPPED
        else:
            status = run_turn(core, candidate)
        turns += 1
    store64(core, K_TURNS, load64(core, K_TURNS) + turns)
    return status
