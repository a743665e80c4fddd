"""Notes: what is worth telling the learner but does not end a run, once for each line.

Compilers load speculatively, so a read of shared memory that nobody wrote is no proof of a mistake:
it is noted, and the poison that the read returns shows in the results if it was one.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import B_VALID, T_THREAD
from course_lib.virtual_gpu.raw import load8, load64, native, store8, store64
from course_lib.virtual_gpu.records import (
    B_COPIES_IN_FLIGHT,
    B_CORE,
    B_LINEAR,
    B_THREAD_BYTES,
    B_THREAD_COUNT,
    B_THREADS,
    CP_BYTES,
    CP_LANDED,
    CP_NEXT,
    CP_SITE,
    CP_TARGET,
    K_NOTES,
    K_NOTES_CAPACITY,
    K_NOTES_COUNT,
    K_SEEN,
    N_DIVISION,
    N_MEETING,
    N_UNINITIALISED,
    NOTE_BLOCK,
    NOTE_BYTES,
    NOTE_COPY_SITE,
    NOTE_COPY_THREAD,
    NOTE_KIND,
    NOTE_OFFSET,
    NOTE_OTHER_SITE,
    NOTE_SITE,
    NOTE_SLOTS,
    NOTE_THREAD,
    T_COPY_FIRST,
)


@native
def first_time(core, site, kind):
    """True once for each site and kind of note."""
    seen = load64(core, K_SEEN)
    flags = load8(seen, site)
    if flags & kind:
        return False
    store8(seen, site, flags | kind)
    return True


@native
def add_note(block, thread, kind, site, offset, count, copy_site, copy_thread):
    """Append a note; the table has room for every site, and what exceeds it is dropped."""
    core = load64(block, B_CORE)
    index = load64(core, K_NOTES_COUNT)
    if index >= load64(core, K_NOTES_CAPACITY):
        return
    store64(core, K_NOTES_COUNT, index + 1)
    note = load64(core, K_NOTES) + index * NOTE_SLOTS * 8
    store64(note, NOTE_KIND, kind)
    store64(note, NOTE_SITE, site)
    store64(note, NOTE_BLOCK, load64(block, B_LINEAR))
    store64(note, NOTE_THREAD, load64(thread, T_THREAD))
    store64(note, NOTE_OFFSET, offset)
    store64(note, NOTE_BYTES, count)
    store64(note, NOTE_COPY_SITE, copy_site)
    store64(note, NOTE_COPY_THREAD, copy_thread)


@native
def first_meeting(core, site, other):
    """True once for each pair of sites, whichever of the two comes first."""
    for index in range(load64(core, K_NOTES_COUNT)):
        note = load64(core, K_NOTES) + index * NOTE_SLOTS * 8
        if load64(note, NOTE_KIND) == N_MEETING:
            one, two = load64(note, NOTE_SITE), load64(note, NOTE_OTHER_SITE)
            if (one == site and two == other) or (one == other and two == site):
                return False
    return load64(core, K_NOTES_COUNT) < load64(core, K_NOTES_CAPACITY)


@native
def note_meeting(block, thread, site, warps, other, other_warps):
    """Warps of one block met one barrier at two sites (warps as bit masks)."""
    if first_meeting(load64(block, B_CORE), site, other):
        add_note(block, thread, N_MEETING, site, warps, other_warps, other, 0)


@native
def copy_in_flight_to(block, offset):
    """(site, thread) of a copy that has not landed at `offset` of shared memory, or (-1, -1)."""
    if load64(block, B_COPIES_IN_FLIGHT) == 0:
        return -1, -1
    for index in range(load64(block, B_THREAD_COUNT)):
        thread = load64(block, B_THREADS) + index * load64(block, B_THREAD_BYTES)
        copy = load64(thread, T_COPY_FIRST)
        while copy != 0:
            start = load64(copy, CP_TARGET)
            if load64(copy, CP_LANDED) == 0 and start <= offset:
                if offset < start + load64(copy, CP_BYTES):
                    return load64(copy, CP_SITE), index
            copy = load64(copy, CP_NEXT)
    return -1, -1


# --- called by translated code --------------------------------------------------------------


@native
def rt_shared_uninitialised(block, thread, offset, count, site):
    """A load met bytes of shared memory that nobody has written."""
    if not first_time(load64(block, B_CORE), site, N_UNINITIALISED):
        return 0
    missing = offset
    while load8(load64(block, B_VALID), missing) != 0 and missing < offset + count - 1:
        missing += 1
    copy_site, copy_thread = copy_in_flight_to(block, missing)
    add_note(block, thread, N_UNINITIALISED, site, missing, count, copy_site, copy_thread)
    return 0


@native
def rt_divide(block, thread, site):
    """An integer division by zero: undefined in CUDA C++; hardware returns all ones."""
    if first_time(load64(block, B_CORE), site, N_DIVISION):
        add_note(block, thread, N_DIVISION, site, 0, 0, -1, -1)
    return 0
