"""Warp-wide operations: shuffle, vote, match, redux, elect, activemask, __syncwarp.

A lane waits until every living lane of its member mask waits in the same operation; then all of
them get their results at once.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import (
    ACTIVE_MASK,
    ELECT,
    MATCH_ALL,
    MATCH_ANY,
    REDUX_ADD,
    REDUX_AND,
    REDUX_MAX,
    REDUX_MIN,
    REDUX_OR,
    REDUX_SIGNED,
    SHUFFLE_BFLY,
    SHUFFLE_DOWN,
    SHUFFLE_UP,
    T_A0,
    T_A1,
    T_A2,
    T_A3,
    T_A4,
    T_CLOCK,
    T_R0,
    T_R1,
    T_RESUME,
    VOTE_ALL,
    VOTE_ANY,
    VOTE_BALLOT,
    VOTE_UNI,
    Y_SHUFFLE,
    Y_SYNCWARP,
    Y_VOTE,
)
from course_lib.virtual_gpu.clock import advance_to
from course_lib.virtual_gpu.raw import load64, native, store64
from course_lib.virtual_gpu.records import (
    B_CORE,
    B_THREAD_BYTES,
    B_THREADS,
    B_WARPS,
    BAD_MASK,
    DONE,
    FULL_WARP,
    K_COLLECTIVE_CYCLES,
    K_FAULT_THREAD,
    K_SHUFFLE_CYCLES,
    K_TIMED,
    T_REASON,
    W_CLOCK,
    W_COLLECTIVE,
    W_EXITED,
    W_READY,
    WARP_BYTES,
)
from course_lib.virtual_gpu.vector_clocks import join_lanes

ABSENT_LANE = 0xCDCDCDCD  # what a shuffle reads from a lane that takes no part: undefined in CUDA


@native
def complete_collectives(block, warp):
    """Finish every operation of a warp whose members have all arrived; DONE or BAD_MASK."""
    record = load64(block, B_WARPS) + warp * WARP_BYTES
    stride = load64(block, B_THREAD_BYTES)
    threads = load64(block, B_THREADS) + warp * 32 * stride
    undecided = load64(record, W_COLLECTIVE)
    lane = 0
    while undecided >> lane != 0:
        if (undecided >> lane) & 1:
            thread = threads + lane * stride
            members = members_of(threads, stride, record, thread)
            if not (members >> lane) & 1:
                store64(load64(block, B_CORE), K_FAULT_THREAD, warp * 32 + lane)
                return BAD_MASK
            members &= ~load64(record, W_EXITED)
            if are_together(threads, stride, record, thread, members):
                perform(threads, stride, thread, members)
                if load64(thread, T_REASON) == Y_SYNCWARP:
                    join_lanes(block, threads, stride, members)
                resume(block, record, threads, stride, members, load64(thread, T_REASON))
                undecided &= ~members
        lane += 1
    return DONE


@native
def members_of(threads, stride, record, thread):
    """The lanes that the operation names; for activemask, those that are at the same place."""
    if load64(thread, T_REASON) != Y_VOTE or load64(thread, T_A0) != ACTIVE_MASK:
        return load64(thread, T_A4) & FULL_WARP
    waiting = load64(record, W_COLLECTIVE)
    together = 0
    for lane in range(32):
        if (waiting >> lane) & 1:
            other = threads + lane * stride
            if load64(other, T_RESUME) == load64(thread, T_RESUME):
                together |= 1 << lane
    return together


@native
def are_together(threads, stride, record, thread, members):
    """Do all members wait in the same operation?"""
    if members & ~load64(record, W_COLLECTIVE):
        return False
    reason = load64(thread, T_REASON)
    kind = load64(thread, T_A0)
    other = threads
    for lane in range(32):
        if (members >> lane) & 1:
            if load64(other, T_REASON) != reason:
                return False
            if (reason == Y_VOTE or reason == Y_SHUFFLE) and load64(other, T_A0) != kind:
                return False
            # A lane with another mask is in another operation, an earlier or a later one.
            if load64(other, T_A4) & FULL_WARP != load64(thread, T_A4) & FULL_WARP:
                return False
        other += stride
    return True


@native
def perform(threads, stride, thread, members):
    """Give every member its result."""
    reason = load64(thread, T_REASON)
    if reason == Y_SHUFFLE:
        shuffle(threads, stride, members)
    elif reason == Y_VOTE:
        mode = load64(thread, T_A0)
        if mode == MATCH_ANY or mode == MATCH_ALL:
            match(threads, stride, members, mode)
        elif mode == ELECT or mode == ACTIVE_MASK:
            elect(threads, stride, members, mode)
        elif mode >= REDUX_ADD:
            redux(threads, stride, members, mode)
        else:
            vote(threads, stride, members, mode)


@native
def resume(block, record, threads, stride, members, reason):
    """The members go on, no earlier than the last of them arrived."""
    store64(record, W_COLLECTIVE, load64(record, W_COLLECTIVE) & ~members)
    store64(record, W_READY, load64(record, W_READY) | members)
    core = load64(block, B_CORE)
    if load64(core, K_TIMED) == 0:
        return
    clock = 0
    for lane in range(32):
        if (members >> lane) & 1:
            clock = max(clock, load64(threads + lane * stride, T_CLOCK))
    if reason == Y_SHUFFLE:
        clock += load64(core, K_SHUFFLE_CYCLES)
    elif reason != Y_SYNCWARP:
        clock += load64(core, K_COLLECTIVE_CYCLES)
    for lane in range(32):
        if (members >> lane) & 1:
            advance_to(block, threads + lane * stride, clock)
    store64(record, W_CLOCK, max(load64(record, W_CLOCK), clock))


@native
def shuffle(threads, stride, members):
    """shfl.sync: A1 value, A2 lane operand, A3 clamp and segment mask (PTX ISA, shfl.sync)."""
    for lane in range(32):
        if not (members >> lane) & 1:
            continue
        thread = threads + lane * stride
        mode = load64(thread, T_A0)
        operand = load64(thread, T_A2) & 31
        control = load64(thread, T_A3)
        clamp = control & 31
        segment = (control >> 8) & 31
        highest = (lane & segment) | (clamp & ~segment & 31)
        if mode == SHUFFLE_UP:
            source = lane - operand
            inside = source >= highest
        elif mode == SHUFFLE_DOWN:
            source = lane + operand
            inside = source <= highest
        elif mode == SHUFFLE_BFLY:
            source = lane ^ operand
            inside = source <= highest
        else:
            source = (lane & segment) | (operand & ~segment & 31)
            inside = source <= highest
        if not inside:
            source = lane
        value = ABSENT_LANE
        if (members >> source) & 1:
            value = load64(threads + source * stride, T_A1)
        store64(thread, T_R0, value)
        store64(thread, T_R1, 1 if inside else 0)


@native
def vote(threads, stride, members, mode):
    """vote.sync: ballot, any, all, uni over the predicates in A1."""
    true = 0
    for lane in range(32):
        if (members >> lane) & 1 and load64(threads + lane * stride, T_A1) & 1:
            true |= 1 << lane
    result = true
    if mode == VOTE_ANY:
        result = 1 if true != 0 else 0
    elif mode == VOTE_ALL:
        result = 1 if true == members else 0
    elif mode == VOTE_UNI:
        result = 1 if true == members or true == 0 else 0
    elif mode != VOTE_BALLOT:
        result = 0
    for lane in range(32):
        if (members >> lane) & 1:
            store64(threads + lane * stride, T_R0, result)


@native
def match(threads, stride, members, mode):
    """match.sync: the lanes with the same value; `all` gives none unless every lane has it."""
    for lane in range(32):
        if not (members >> lane) & 1:
            continue
        thread = threads + lane * stride
        same = 0
        for other in range(32):
            if (members >> other) & 1:
                if load64(threads + other * stride, T_A1) == load64(thread, T_A1):
                    same |= 1 << other
        if mode == MATCH_ALL:
            store64(thread, T_R1, 1 if same == members else 0)
            same = same if same == members else 0
        store64(thread, T_R0, same)


@native
def elect(threads, stride, members, mode):
    """elect.sync chooses the lowest member; activemask gives the members themselves."""
    lowest = 0
    while not (members >> lowest) & 1:
        lowest += 1
    for lane in range(32):
        if (members >> lane) & 1:
            thread = threads + lane * stride
            store64(thread, T_R0, lowest if mode == ELECT else members)
            store64(thread, T_R1, 1 if lane == lowest else 0)


@native
def redux(threads, stride, members, mode):
    """redux.sync: one value of all members; signed modes have sign-extended values in A1."""
    kind = mode - REDUX_SIGNED if mode >= REDUX_ADD + REDUX_SIGNED else mode
    total = 0
    first = True
    for lane in range(32):
        if not (members >> lane) & 1:
            continue
        value = load64(threads + lane * stride, T_A1)
        if first:
            total = value
        elif kind == REDUX_ADD:
            total += value
        elif kind == REDUX_MIN:
            total = min(total, value)
        elif kind == REDUX_MAX:
            total = max(total, value)
        elif kind == REDUX_AND:
            total &= value
        elif kind == REDUX_OR:
            total |= value
        else:
            total ^= value
        first = False
    for lane in range(32):
        if (members >> lane) & 1:
            store64(threads + lane * stride, T_R0, total)
