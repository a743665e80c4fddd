"""The virtual clock: bandwidth queues, cache tags and latencies of one SM.

Requests come out of order in time, because lanes and warps are simulated one after another. So a
queue is no single "busy until" but a ring of time buckets with a capacity each: a request takes
room from the first bucket at or after its own time that has any. `Machine` holds the figures.
"""

from __future__ import annotations

from course_lib.virtual_gpu.abi import (
    B_STALLS,
    T_CLOCK,
    T_LANE,
    T_SITE,
    T_STALL,
    T_WARP,
)
from course_lib.virtual_gpu.raw import fill_bytes, load64, native, store64
from course_lib.virtual_gpu.records import (
    B_CORE,
    B_LINEAR,
    BUCKET_CYCLES,
    COALESCE_CYCLES,
    K_BURST_CYCLES,
    K_COMPULSORY,
    K_COPY_LATENCY,
    K_CROWD_DELAY,
    K_FETCHED,
    K_FORMER_BYTES,
    K_ISSUE_QUEUES,
    K_L1_LATENCY,
    K_L2_LATENCY,
    K_LANDINGS,
    K_LANDINGS_CAPACITY,
    K_LANDINGS_COUNT,
    K_LATENCY,
    K_LINES,
    K_MEMORY_QUEUE,
    K_SECTORS,
    K_SHARE_QUEUE,
    K_SHARED_QUEUE,
    K_WINDOW,
    K_WINDOW_BYTES,
    K_WINDOW_CAPACITY,
    LINE_BITS,
    LINES,
    LOG_SLOTS,
    Q_CAPACITY,
    Q_SKIP,
    Q_TAGS,
    Q_USED,
    QUEUE_BYTES,
    RING_BUCKETS,
    S_ISSUED,
    S_READY,
    S_SLOTS,
    S_TAG,
    SECTOR_BITS,
    SECTORS,
    WINDOW_BITS,
)

SECTOR_BYTES = 1 << SECTOR_BITS
MOST_BUSY = 95  # per cent: beyond it the share itself limits


@native
def clear_queue(queue):
    """Forget everything that the queue has promised."""
    fill_bytes(load64(queue, Q_TAGS), 255, RING_BUCKETS * 8)


@native
def clear_core_clock(core):
    """A fresh SM: empty queues and cold caches."""
    clear_queue(load64(core, K_MEMORY_QUEUE))
    clear_queue(load64(core, K_SHARED_QUEUE))
    clear_queue(load64(core, K_SHARE_QUEUE))
    for slot in (K_FETCHED, K_WINDOW, K_WINDOW_BYTES, K_FORMER_BYTES):
        store64(core, slot, 0)
    for partition in range(4):
        clear_queue(load64(core, K_ISSUE_QUEUES) + partition * QUEUE_BYTES)
    fill_bytes(load64(core, K_SECTORS), 255, SECTORS * S_SLOTS * 8)
    fill_bytes(load64(core, K_LINES), 255, LINES * 8)


@native
def open_bucket(queue, bucket):
    """The first bucket at or after `bucket` with room; full ones on the way are skipped at once."""
    tags = load64(queue, Q_TAGS)
    skip = load64(queue, Q_SKIP)
    found = bucket
    while True:
        place = found % RING_BUCKETS
        if load64(tags, place) != found:
            store64(tags, place, found)
            store64(load64(queue, Q_USED), place, 0)
            store64(skip, place, found)
        following = load64(skip, place)
        if following == found:
            break
        found = following
    # Path compression: whoever asks for `bucket` again gets there in one step.
    while bucket != found:
        place = bucket % RING_BUCKETS
        if load64(tags, place) != bucket:
            break
        following = load64(skip, place)
        store64(skip, place, found)
        bucket = following
    return found


@native
def occupy(queue, now, units, sharers):
    """Take `units` of the queue's capacity from cycle `now` on; the cycle when the last is served.

    With `sharers` above 1, no bucket gives more than its fair share to this request.
    """
    capacity = load64(queue, Q_CAPACITY)
    share = max(1, capacity // sharers)
    bucket = now // BUCKET_CYCLES
    while True:
        bucket = open_bucket(queue, bucket)
        place = bucket % RING_BUCKETS
        used = load64(load64(queue, Q_USED), place)
        taken = min(min(capacity - used, units), share)
        used += taken
        units -= taken
        store64(load64(queue, Q_USED), place, used)
        if used >= capacity:
            store64(load64(queue, Q_SKIP), place, bucket + 1)
        if units <= 0:
            return max(now, bucket * BUCKET_CYCLES + used * BUCKET_CYCLES // capacity)
        bucket += 1


@native
def issue(core, warp, start, cycles, sharers):
    """Issue `cycles` of instructions of a warp from `start` on; the cycle when they are through.

    `sharers` warps take turns at the warp's scheduler, as the hardware's do instruction by
    instruction, although the simulation runs one of them far ahead of the others.
    """
    queue = load64(core, K_ISSUE_QUEUES) + (warp & 3) * QUEUE_BYTES
    return max(start + cycles, occupy(queue, start, cycles, sharers))


@native
def take_share(core, count, now):
    """Take bytes of the SM's share of HBM; the cycle at which the share had that much.

    All SMs together have less bandwidth than one can take alone. Other SMs are quiet at other
    times, so an SM may use what it left unused in the last `burst_cycles`.
    """
    since = max(0, now - load64(core, K_BURST_CYCLES))
    return occupy(load64(core, K_SHARE_QUEUE), since, count * 256, 1)


@native
def crowd_delay(core, count, now):
    """How much longer a request takes because all SMs ask HBM at once, at random to each other.

    A queue whose service is busy a share u of the time delays by D u / (1 - u); the other SMs run
    the same kernel, so u is what this SM asked for in its latest two windows. D is measured.
    """
    window = now >> WINDOW_BITS
    latest = load64(core, K_WINDOW)
    if window > latest:
        former = load64(core, K_WINDOW_BYTES) if window == latest + 1 else 0
        store64(core, K_FORMER_BYTES, former)
        store64(core, K_WINDOW_BYTES, 0)
        store64(core, K_WINDOW, window)
        latest = window
    inside = load64(core, K_WINDOW_BYTES) + count
    store64(core, K_WINDOW_BYTES, inside)
    span = 1 << WINDOW_BITS
    passed = min(max(now - latest * span, 0), span - 1)
    recent = inside + load64(core, K_FORMER_BYTES) * (span - passed) // span
    capacity = load64(core, K_WINDOW_CAPACITY)
    busy = min(recent, capacity * MOST_BUSY // 100)
    return load64(core, K_CROWD_DELAY) * busy // (capacity - busy)


@native
def second_level_latency(core, address):
    """Latency of a sector that the first level lacks: of L2 if it was fetched before."""
    line = address >> LINE_BITS
    lines = load64(core, K_LINES)
    place = line % LINES
    if load64(lines, place) == line:
        return load64(core, K_L2_LATENCY)
    store64(lines, place, line)
    return load64(core, K_LATENCY)


@native
def fetch_sector(core, sector, now, cached):
    """The cycle at which a 32-byte sector arrives; lanes that ask together share one request.

    `cached`: the first level may serve it at any later time too (plain loads, not cp.async.cg).
    """
    entry = load64(core, K_SECTORS) + (sector % SECTORS) * S_SLOTS * 8
    if load64(entry, S_TAG) == sector:
        age = now - load64(entry, S_ISSUED)
        if cached or (-COALESCE_CYCLES < age < COALESCE_CYCLES):
            return max(load64(entry, S_READY), now + load64(core, K_L1_LATENCY))
    latency = second_level_latency(core, sector << SECTOR_BITS)
    ready = occupy(load64(core, K_MEMORY_QUEUE), now, SECTOR_BYTES * 256, 1)
    if latency != load64(core, K_L2_LATENCY):
        # The line's other sectors will hit L2, so the whole line is charged here.
        # Beyond its part of all arrays, other SMs have brought into L2 what this one reads.
        fetched = load64(core, K_FETCHED)
        if fetched < load64(core, K_COMPULSORY):
            store64(core, K_FETCHED, fetched + (1 << LINE_BITS))
            ready = max(ready, take_share(core, 1 << LINE_BITS, now))
            ready += crowd_delay(core, 1 << LINE_BITS, now)
        if not cached:
            latency += load64(core, K_COPY_LATENCY)
    ready += latency
    store64(entry, S_TAG, sector)
    store64(entry, S_ISSUED, now)
    store64(entry, S_READY, ready)
    return ready


@native
def fetch(core, address, count, now, cached):
    """The cycle at which `count` bytes of global memory at a windowed address have arrived."""
    ready = now
    first = address >> SECTOR_BITS
    last = (address + max(count, 1) - 1) >> SECTOR_BITS
    for sector in range(first, last + 1):
        ready = max(ready, fetch_sector(core, sector, now, cached))
    return ready


@native
def advance_to(block, thread, clock):
    """A thread waits until `clock`, between two turns: the cycles go to the line it waits at."""
    waited = clock - load64(thread, T_CLOCK)
    if waited <= 0:
        return 0
    store64(thread, T_CLOCK, clock)
    charge(block, load64(thread, T_SITE), waited)
    return waited


@native
def stall_until(block, thread, clock):
    """The same in the middle of a turn: the turn's other cycles are what it issued."""
    waited = advance_to(block, thread, clock)
    store64(thread, T_STALL, load64(thread, T_STALL) + waited)


@native
def charge(block, site, waited):
    """Add waited cycles of one lane to a site."""
    stalls = load64(block, B_STALLS)
    if stalls != 0:
        store64(stalls, site, load64(stalls, site) + waited)


@native
def log_landing(block, thread, target, address, site, issued, landed):
    """Remember when a copy of lane 0 was issued and when its bytes arrived."""
    core = load64(block, B_CORE)
    log = load64(core, K_LANDINGS)
    if log == 0 or load64(thread, T_LANE) != 0:
        return
    count = load64(core, K_LANDINGS_COUNT)
    store64(core, K_LANDINGS_COUNT, count + 1)
    if count >= load64(core, K_LANDINGS_CAPACITY):
        return
    entry = log + count * LOG_SLOTS * 8
    store64(entry, 0, load64(block, B_LINEAR))
    store64(entry, 1, load64(thread, T_WARP))
    store64(entry, 2, target)
    store64(entry, 3, address)
    store64(entry, 4, site)
    store64(entry, 5, issued)
    store64(entry, 6, landed)


# --- called by translated code (timed build) ------------------------------------------------


@native
def rt_global_load(block, thread, address, count, site):
    """Issue a load of global memory; returns the cycle at which its registers are ready."""
    return fetch(load64(block, B_CORE), address, count, load64(thread, T_CLOCK), True)


@native
def rt_global_store(block, thread, address, count, site):
    """A store takes its share of the bandwidth; nobody waits for it."""
    core = load64(block, B_CORE)
    take_share(core, count, load64(thread, T_CLOCK))
    occupy(load64(core, K_MEMORY_QUEUE), load64(thread, T_CLOCK), count * 256, 1)
    return 0
