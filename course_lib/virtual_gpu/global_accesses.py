"""Accesses to global memory, where a launch is checked for them: within a block and between blocks.

Within a block they are followed like those to shared memory, in shadow cells of their own. For the
order between blocks every access is written to a *trail*, which `global_races` reads at the end.

Blocks are ordered by release and acquire through words of global memory alone, at a scope that
holds both (PTX ISA, memory consistency model: synchronizes, morally strong). A release leaves a
*snapshot* of what its thread knows at the word. An acquire by another block gives the snapshot a
column of that block's clocks, so barriers and the like carry the knowledge on as they carry any
other. All blocks of such a launch run on one core, in turns.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import (
    CHECK_GLOBAL,
    T_THREAD,
    WINDOW_GLOBALS,
    WINDOW_MASK,
    WINDOW_SHIFT,
)
from course_lib.virtual_gpu.happens_before import NO_SOURCE, follow
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
    B_COLUMNS,
    B_CORE,
    B_LINEAR,
    B_THREAD_COUNT,
    B_WARP_COUNT,
    K_CHECK,
    K_HAND_CAPACITY,
    K_HAND_COUNT,
    K_HANDS,
    K_SNAPSHOTS,
    K_STARTS,
    K_TRAIL,
    K_TRAIL_CAPACITY,
    K_TRAIL_COUNT,
    K_TRAIL_MOST,
    T_EPOCH,
)
from course_lib.virtual_gpu.shadow import (
    COLUMN_IMPORT,
    KNOWS,
    SNAPSHOT_BLOCK,
    SNAPSHOT_COLUMNS,
    SNAPSHOT_IDS,
    SNAPSHOT_KNOWN,
    SNAPSHOT_NEXT,
    TRAIL_BLOCK,
    TRAIL_BYTES,
    TRAIL_COLUMN,
    TRAIL_OFFSET,
    TRAIL_SITE,
    TRAIL_SLOTS,
    TRAIL_VALUE,
    TRAIL_WHO,
)
from course_lib.virtual_gpu.vector_clocks import (
    CHANGED_ROW,
    add_change,
    add_column,
    base_of,
    clock_of,
    exhausted,
    fence_part,
    fenced_part,
    kind_of_column,
    owner_of_column,
    part_bytes,
    reached,
    release_clock,
    row_of,
    seen_part,
    used_words,
)

TRAIL_AT_FIRST = 1 << 12
HANDS_AT_FIRST = 64


@native
def checks_global(block):
    """Does this run check global memory?"""
    return load64(load64(block, B_CORE), K_CHECK) == CHECK_GLOBAL


@native
def global_access(block, thread, address, count, site, flags, column, value):
    """An access to `count` bytes at a windowed address, complete when `column` reaches `value`."""
    window = address >> WINDOW_SHIFT
    if count <= 0 or window < WINDOW_GLOBALS or not checks_global(block):
        return
    starts = load64(load64(block, B_CORE), K_STARTS)
    offset = load64(starts, window - WINDOW_GLOBALS) + (address & WINDOW_MASK)
    if load64(load64(block, B_CORE), K_HAND_COUNT) != 0:
        note_imports(block, thread)
    note(block, thread, offset, count, site, flags, column, value)
    follow(block, thread, offset, count, site, flags, column, value, NO_SOURCE)


@native
def rt_check_global(block, thread, address, count, site, flags):
    """A load, store or atomic operation; generic ones may also go to other memory."""
    column, value = load64(thread, T_THREAD), load64(thread, T_EPOCH)
    global_access(block, thread, address, count, site, flags, column, value)
    return 0


# --- the trail ------------------------------------------------------------------------------------


@native
def note(block, thread, offset, count, site, flags, column, value):
    """One more entry of the trail."""
    core = load64(block, B_CORE)
    used = load64(core, K_TRAIL_COUNT)
    if used >= load64(core, K_TRAIL_CAPACITY) and not longer_trail(block, core, used):
        return
    entry = load64(core, K_TRAIL) + used * TRAIL_SLOTS * 8
    store64(core, K_TRAIL_COUNT, used + 1)
    store64(entry, TRAIL_BLOCK, load64(block, B_LINEAR))
    store64(entry, TRAIL_COLUMN, column)
    store64(entry, TRAIL_VALUE, value)
    store64(entry, TRAIL_OFFSET, offset)
    store64(entry, TRAIL_BYTES, count)
    store64(entry, TRAIL_SITE, site)
    kind = 0
    if column != KNOWS:
        kind = kind_of_column(block, column)
    store64(entry, TRAIL_WHO, load64(thread, T_THREAD) | (flags << 16) | (kind << 24))


@native
def longer_trail(block, core, used):
    """Twice the room; False where there is no memory, or too much of it is taken."""
    capacity = max(TRAIL_AT_FIRST, 2 * used)
    trail = 0
    if capacity <= load64(core, K_TRAIL_MOST):
        trail = allocate(capacity * TRAIL_SLOTS * 8)
    if trail == 0:
        exhausted(block)
        return False
    if used != 0:
        copy_bytes(trail, load64(core, K_TRAIL), used * TRAIL_SLOTS * 8)
    give_back(load64(core, K_TRAIL))
    store64(core, K_TRAIL, trail)
    store64(core, K_TRAIL_CAPACITY, capacity)
    return True


@native
def note_imports(block, thread):
    """The next entry's thread knows these snapshots of other blocks."""
    for column in range(load64(block, B_WARP_COUNT) * 32, load64(block, B_COLUMNS)):
        if kind_of_column(block, column) == COLUMN_IMPORT:
            if reached(block, thread, column, 1):
                note(block, thread, 0, 0, 0, 0, KNOWS, owner_of_column(block, column))


# --- from block to block --------------------------------------------------------------------------


@native
def hand_over(block, address, row):
    """What a row holds is released to other blocks at a word, beside what this block has released
    there before. Nothing is done where that holds it all: a spinning loop of atomics says it again
    and again."""
    core = load64(block, B_CORE)
    place = hand_of(block, core, address)
    before = 0
    if place != 0:
        before = load64(place, 1)
    if not adds_to(row, load64(block, B_COLUMNS), before):
        return
    snapshot = take_snapshot(block, core, row)
    if snapshot == 0:
        return
    if place != 0:
        store64(place, 1, snapshot)
    else:
        add_hand(block, core, address, snapshot)


@native
def hand_of(block, core, address):
    """Address of the pair for what this block has released at a word, 0 where there is none."""
    for k in range(load64(core, K_HAND_COUNT)):
        place = load64(core, K_HANDS) + k * 16
        if load64(place, 0) == address:
            if load64(load64(place, 1), SNAPSHOT_BLOCK) == load64(block, B_LINEAR):
                return place
    return 0


@native
def adds_to(row, columns, snapshot):
    """Join a snapshot (0: none) of the same block into a row; does the row hold more than it?"""
    width = 0
    old = 0
    if snapshot != 0:
        width = load64(snapshot, SNAPSHOT_COLUMNS)
        old = snapshot + (SNAPSHOT_IDS + load64(snapshot, SNAPSHOT_KNOWN)) * 8
    more = False
    for column in range(columns):
        now = load32(row, column)
        before = 0
        if column < width:
            before = load32(old, column)
        if now > before:
            more = True
        elif now < before:
            store32(row, column, before)
    return more


@native
def add_hand(block, core, address, snapshot):
    """One more pair of a word and what a block released there."""
    count = load64(core, K_HAND_COUNT)
    if count >= load64(core, K_HAND_CAPACITY):
        capacity = max(HANDS_AT_FIRST, 2 * count)
        hands = allocate(capacity * 16)
        if hands == 0:
            exhausted(block)
            return
        if count != 0:
            copy_bytes(hands, load64(core, K_HANDS), count * 16)
        give_back(load64(core, K_HANDS))
        store64(core, K_HANDS, hands)
        store64(core, K_HAND_CAPACITY, capacity)
    place = load64(core, K_HANDS) + count * 16
    store64(place, 0, address)
    store64(place, 1, snapshot)
    store64(core, K_HAND_COUNT, count + 1)


@native
def take_snapshot(block, core, row):
    """A copy of a row, with the snapshots of other blocks that it knows, and those they knew."""
    columns = load64(block, B_COLUMNS)
    first = load64(block, B_WARP_COUNT) * 32
    most = 0
    for column in range(first, columns):
        if kind_of_column(block, column) == COLUMN_IMPORT and load32(row, column) != 0:
            most += 1 + load64(owner_of_column(block, column), SNAPSHOT_KNOWN)
    snapshot = allocate((SNAPSHOT_IDS + most) * 8 + columns * 4)
    if snapshot == 0:
        exhausted(block)
        return 0
    known = 0
    for column in range(first, columns):
        if kind_of_column(block, column) == COLUMN_IMPORT and load32(row, column) != 0:
            other = owner_of_column(block, column)
            known = add_known(snapshot, known, other)
            for k in range(load64(other, SNAPSHOT_KNOWN)):
                known = add_known(snapshot, known, load64(other, SNAPSHOT_IDS + k))
    store64(snapshot, SNAPSHOT_BLOCK, load64(block, B_LINEAR))
    store64(snapshot, SNAPSHOT_COLUMNS, columns)
    store64(snapshot, SNAPSHOT_KNOWN, known)
    store64(snapshot, SNAPSHOT_NEXT, load64(core, K_SNAPSHOTS))
    copy_bytes(snapshot + (SNAPSHOT_IDS + known) * 8, row, columns * 4)
    store64(core, K_SNAPSHOTS, snapshot)
    return snapshot


@native
def add_known(snapshot, known, other):
    """Add one to the list of a snapshot that is being taken; returns the list's length."""
    for k in range(known):
        if load64(snapshot, SNAPSHOT_IDS + k) == other:
            return known
    store64(snapshot, SNAPSHOT_IDS + known, other)
    return known + 1


@native
def drop_hands(block, address):
    """A strong store ends what was released at its word before."""
    core = load64(block, B_CORE)
    hands = load64(core, K_HANDS)
    count = load64(core, K_HAND_COUNT)
    k = 0
    while k < count:
        place = hands + k * 16
        if load64(place, 0) == address:
            count -= 1
            copy_bytes(place, hands + count * 16, 16)  # the last one takes its place
        else:
            k += 1
    store64(core, K_HAND_COUNT, count)


@native
def import_snapshot(block, thread, snapshot, acquires):
    """A thread learns what another block's snapshot holds, now or after its next fence."""
    column = import_column(block, snapshot)
    row = clock_of(block, thread)
    if acquires == 0:
        row += seen_part(block)
    store32(row, column, 1)
    for k in range(load64(snapshot, SNAPSHOT_KNOWN)):
        other = load64(snapshot, SNAPSHOT_IDS + k)
        if load64(other, SNAPSHOT_BLOCK) == load64(block, B_LINEAR):
            come_home(row, other)
    add_change(thread, CHANGED_ROW)


@native
def import_column(block, snapshot):
    """The column of a snapshot, made when it is first needed."""
    for column in range(load64(block, B_WARP_COUNT) * 32, load64(block, B_COLUMNS)):
        if kind_of_column(block, column) == COLUMN_IMPORT:
            if owner_of_column(block, column) == snapshot:
                return column
    return add_column(block, COLUMN_IMPORT, snapshot)


@native
def come_home(row, snapshot):
    """What this block released comes back to it through another one."""
    old = snapshot + (SNAPSHOT_IDS + load64(snapshot, SNAPSHOT_KNOWN)) * 8
    for column in range(load64(snapshot, SNAPSHOT_COLUMNS)):
        store32(row, column, max(load32(row, column), load32(old, column)))


# --- strong accesses and fences whose scope holds other blocks ------------------------------------


@native
def is_global(address):
    """Is this a word that other blocks see?"""
    return address >> WINDOW_SHIFT >= WINDOW_GLOBALS


@native
def read_from_blocks(block, thread, address, acquires):
    """A strong read: what other blocks released at the word is known now, or after a fence."""
    core = load64(block, B_CORE)
    for k in range(load64(core, K_HAND_COUNT)):
        place = load64(core, K_HANDS) + k * 16
        snapshot = load64(place, 1)
        if load64(place, 0) == address:
            if load64(snapshot, SNAPSHOT_BLOCK) != load64(block, B_LINEAR):
                import_snapshot(block, thread, snapshot, acquires)


@native
def release_to_blocks(block, thread, address, releases):
    """A strong write releases what its thread knows; a relaxed one what it knows through a fence,
    its own or another thread's."""
    scratch = load64(block, B_THREAD_COUNT) + 1
    row = row_of(block, scratch)
    fill_bytes(row, 0, part_bytes(block))
    if releases != 0:
        release_clock(block, thread, scratch)
    else:
        words = used_words(block)
        join_words(row, clock_of(block, thread) + fenced_part(block), words)
        join_words(row, base_of(block) + fenced_part(block), words)
    hand_over(block, address, row)


@native
def fence_for_blocks(block, thread):
    """A fence whose scope holds other blocks: what relaxed reads saw is known from here on, and
    what is known may be released by relaxed writes, of this thread or of one that is ordered
    after it."""
    clock = clock_of(block, thread)
    words = used_words(block)
    join_words(clock, clock + seen_part(block), words)
    join_words(clock, base_of(block) + seen_part(block), words)
    fence_part(block, thread, fenced_part(block))
