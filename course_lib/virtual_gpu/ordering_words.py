"""Orderings through memory: atomics, strong loads and stores, and fences (PTX ISA, release and
acquire patterns).

A release pattern is a release operation, or a fence or a release to the same word and a later
strong write; an acquire pattern is an acquire operation, or a strong read and a later fence or
acquire of the same word. Each word that was released to has a vector, and for each thread one of
what it has released to the word and one of what its reads of it saw. A read-modify-write continues
the release before it; any other write starts anew. One that returns nothing (`red`) reads nothing
that could be acquired.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import (
    ORDER_ACQUIRE,
    ORDER_DEVICE,
    ORDER_RELEASE,
    T_THREAD,
    WORD_LOAD,
    WORD_REDUCE,
    WORD_STORE,
)
from course_lib.virtual_gpu.global_accesses import (
    checks_global,
    drop_hands,
    fence_for_blocks,
    is_global,
    read_from_blocks,
    release_to_blocks,
)
from course_lib.virtual_gpu.happens_before import (
    acquire,
    checks,
    clear_vector,
    copy_vector,
    join_vector,
    new_vector,
    proxy_fence,
    release,
)
from course_lib.virtual_gpu.raw import allocate, give_back, load64, native, store64
from course_lib.virtual_gpu.records import (
    B_WORD_CAPACITY,
    B_WORD_COUNT,
    B_WORDS,
    T_FENCED,
    T_SEEN,
)
from course_lib.virtual_gpu.vector_clocks import exhausted

WORDS_AT_FIRST = 64
OWNER_SHIFT = 50  # above an address: 0, or 1 + twice the thread (+ 1) whose vector it is


@native
def place_of(table, capacity, address):
    """Where a word is, or would be, in an open hash table of (address, vector) pairs."""
    index = (((address >> 1) ^ (address >> OWNER_SHIFT)) * 0x9E3779B1 >> 8) & (capacity - 1)
    while load64(table, 2 * index) != 0 and load64(table, 2 * index) != address:
        index = (index + 1) & (capacity - 1)
    return table + index * 16


@native
def find_word(block, address):
    """The vector of a word, 0 where nobody has released to it."""
    if load64(block, B_WORD_COUNT) == 0:
        return 0
    return load64(place_of(load64(block, B_WORDS), load64(block, B_WORD_CAPACITY), address), 1)


@native
def word_vector(block, address):
    """The vector of a word, made where it has none."""
    vector = find_word(block, address)
    if vector != 0:
        return vector
    count = load64(block, B_WORD_COUNT)
    if 2 * (count + 1) > load64(block, B_WORD_CAPACITY) and not more_words(block):
        return new_vector(block)
    place = place_of(load64(block, B_WORDS), load64(block, B_WORD_CAPACITY), address)
    vector = new_vector(block)
    store64(place, 0, address)
    store64(place, 1, vector)
    store64(block, B_WORD_COUNT, count + 1)
    return vector


@native
def more_words(block):
    """Twice the room in the table; False where there is no memory."""
    old = load64(block, B_WORDS)
    had = load64(block, B_WORD_CAPACITY)
    capacity = max(WORDS_AT_FIRST, 2 * had)
    table = allocate(capacity * 16)
    if table == 0:
        exhausted(block)
        return False
    for index in range(had):
        address = load64(old, 2 * index)
        if address != 0:
            place = place_of(table, capacity, address)
            store64(place, 0, address)
            store64(place, 1, load64(old, 2 * index + 1))
    give_back(old)
    store64(block, B_WORDS, table)
    store64(block, B_WORD_CAPACITY, capacity)
    return True


@native
def rt_order_word(block, thread, address, what, order):
    """A strong access to the word at a windowed address: `what` WORD_*, `order` ORDER_* flags."""
    if not checks(block):
        return 0
    between_blocks = order & ORDER_DEVICE and is_global(address) and checks_global(block)
    released, seen = own_keys(thread, address)
    if what != WORD_STORE and what != WORD_REDUCE:
        if between_blocks:
            read_from_blocks(block, thread, address, order & ORDER_ACQUIRE)
        vector = find_word(block, address)
        if vector != 0:
            if order & ORDER_ACQUIRE:
                acquire(block, thread, vector)
            see(block, thread, vector)
            join_vector(block, word_vector(block, seen), vector)
        if order & ORDER_ACQUIRE:
            vector = find_word(block, seen)
            if vector != 0:
                acquire(block, thread, vector)
    if what != WORD_LOAD:
        if what == WORD_STORE:
            vector = find_word(block, address)
            if vector != 0:
                clear_vector(block, vector)
            drop_hands(block, address)
        if between_blocks:
            release_to_blocks(block, thread, address, order & ORDER_RELEASE)
        if order & ORDER_RELEASE:
            release(block, thread, word_vector(block, released))
        vector = find_word(block, released)
        if vector != 0:
            join_vector(block, word_vector(block, address), vector)
        if load64(thread, T_FENCED) != 0:
            join_vector(block, word_vector(block, address), load64(thread, T_FENCED))
    return 0


@native
def own_keys(thread, address):
    """The keys of what a thread has released to a word, and of what its reads of it saw."""
    owner = 2 * load64(thread, T_THREAD) + 1
    return address | (owner << OWNER_SHIFT), address | ((owner + 1) << OWNER_SHIFT)


@native
def see(block, thread, vector):
    """A relaxed read: what it saw counts from the thread's next fence on."""
    if load64(thread, T_SEEN) == 0:
        seen = new_vector(block)
        store64(thread, T_SEEN, seen)
        copy_vector(block, seen, vector)
    else:
        join_vector(block, load64(thread, T_SEEN), vector)


@native
def rt_order_fence(block, thread, device):
    """A fence: acquires what relaxed reads saw, and releases for later strong writes; with `device`
    its scope holds other blocks."""
    if not checks(block):
        return 0
    if load64(thread, T_SEEN) != 0:
        acquire(block, thread, load64(thread, T_SEEN))
    if device != 0 and checks_global(block):
        fence_for_blocks(block, thread)
    if load64(thread, T_FENCED) == 0:
        store64(thread, T_FENCED, new_vector(block))
    release(block, thread, load64(thread, T_FENCED))
    return 0


@native
def rt_order_proxies(block, thread):
    """fence.proxy.async."""
    proxy_fence(block, thread)
    return 0
