"""The SM's shared-memory unit on the virtual clock: how long a warp's accesses occupy it.

The unit serves one warp instruction after another, for all four schedulers. It has 32 banks of
4 bytes, so an instruction takes a cycle for each different word that its lanes want of one bank;
and it passes 128 bytes per cycle to or from the registers, so 16 bytes a lane take four cycles even
where lanes share words (shared_* of h200.json). Where all lanes are in pairs, next to each other or
two apart, that want the same, one transfer serves both: NVIDIA's developer forum, thread 77228, for
compute capability 7.x. Both rules for shared words were measured on the H200 since, and do not hold
there: it counts different words of a bank and nothing else (docs/virtual_clock.md).

Lanes are simulated one after another. So each notes its accesses, and when its warp's turn is over
the lanes' notes are put side by side again: lanes at the same instruction made one access.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import ACCESS_BYTES_SHIFT, ACCESS_LOG, T_ACCESSES
from course_lib.virtual_gpu.raw import load64, native, store64
from course_lib.virtual_gpu.records import K_ACCESS_SCRATCH, K_ACCESSES

LEFT = 0  # scratch: by lane, notes that are not yet counted
TOTAL = 32  # by lane, accesses of the turn
OFFSETS = 64  # by lane, where the access that is counted goes
WANTED = 96  # by bank, how many different words are wanted of it
WORDS = 128  # by bank, room for those words
OFFSET_MASK = (1 << ACCESS_BYTES_SHIFT) - 1


@native
def shared_cycles(core, threads, stride, ran):
    """Cycles of the unit that a warp's accesses of this turn take; forgets the accesses."""
    scratch = load64(core, K_ACCESS_SCRATCH)
    most = 0
    for lane in range(32):
        count = 0
        if (ran >> lane) & 1:
            thread = threads + lane * stride
            count = load64(thread, T_ACCESSES)
            store64(thread, T_ACCESSES, 0)
        store64(scratch, TOTAL + lane, count)
        store64(scratch, LEFT + lane, min(count, ACCESS_LOG))
        most = max(most, count)
    if most == 0:
        return 0
    cycles = 0
    leader = lane_with_most_left(scratch)
    while leader >= 0:
        cycles += count_access(load64(core, K_ACCESSES), scratch, leader)
        leader = lane_with_most_left(scratch)
    # Of a longer turn only the latest accesses are known: the others are taken to be like them.
    return cycles * most // min(most, ACCESS_LOG)


@native
def lane_with_most_left(scratch):
    """The lane that has most accesses to count, or -1: where lanes diverge, it is ahead."""
    leader = -1
    most = 0
    for lane in range(32):
        left = load64(scratch, LEFT + lane)
        if left > most:
            leader = lane
            most = left
    return leader


@native
def noted(log, scratch, lane):
    """The next note of a lane: site, bytes and offset in one word."""
    place = load64(scratch, TOTAL + lane) - load64(scratch, LEFT + lane)
    return load64(log + lane * ACCESS_LOG * 8, place % ACCESS_LOG)


@native
def count_access(log, scratch, leader):
    """Cycles of the access that the leader and all lanes at the same instruction make now."""
    first = noted(log, scratch, leader)
    kind = first >> ACCESS_BYTES_SHIFT
    first &= OFFSET_MASK
    width = kind & 255
    members = 0
    count = 0
    in_a_row = True
    for lane in range(32):
        left = load64(scratch, LEFT + lane)
        if left > 0:
            note = noted(log, scratch, lane)
            if note >> ACCESS_BYTES_SHIFT == kind:
                offset = note & OFFSET_MASK
                store64(scratch, OFFSETS + lane, offset)
                store64(scratch, LEFT + lane, left - 1)
                members |= 1 << lane
                count += 1
                if offset != first + (lane - leader) * width:
                    in_a_row = False
    if in_a_row:
        return max(1, (count * width + 127) // 128)
    transfers = (count * width + 127) // 128
    if in_pairs(scratch, members, 1) or in_pairs(scratch, members, 2):
        transfers = (transfers + 1) // 2
    return max(transfers, most_words_of_a_bank(scratch, members, width))


@native
def in_pairs(scratch, members, distance):
    """Does every lane want the same as the lane whose number differs in the bit `distance`?"""
    for lane in range(32):
        other = lane ^ distance
        if (members >> lane) & (members >> other) & 1:
            if load64(scratch, OFFSETS + lane) != load64(scratch, OFFSETS + other):
                return False
    return True


@native
def most_words_of_a_bank(scratch, members, width):
    """Lanes that want the same word share it; different words of one bank come one by one."""
    for bank in range(32):
        store64(scratch, WANTED + bank, 0)
    most = 1
    for lane in range(32):
        if (members >> lane) & 1:
            offset = load64(scratch, OFFSETS + lane)
            for word in range(offset >> 2, (offset + width + 3) >> 2):
                bank = word & 31
                count = load64(scratch, WANTED + bank)
                known = 0
                while known < count and load64(scratch, WORDS + bank * 32 + known) != word:
                    known += 1
                if known == count:
                    store64(scratch, WORDS + bank * 32 + count, word)
                    store64(scratch, WANTED + bank, count + 1)
                    most = max(most, count + 1)
    return most
