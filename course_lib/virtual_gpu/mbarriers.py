"""mbarriers: arrivals, transaction bytes, phases, and who waits for them (PTX ISA, mbarrier).

A phase completes when as many threads have arrived as the barrier was initialised with and every
byte that `expect_tx` announced has landed. The 8 bytes in shared memory hold a value that nobody
may look into; the state lies in a record of the block.
"""

from __future__ import annotations

from course_lib.virtual_gpu import happens_before
from course_lib.virtual_gpu.abi import B_SHARED, B_SHARED_BYTES, B_VALID, T_CLOCK, T_THREAD
from course_lib.virtual_gpu.happens_before import COLUMN_MBARRIER
from course_lib.virtual_gpu.raw import fill_bytes, load64, native, store64
from course_lib.virtual_gpu.records import (
    B_CORE,
    B_IDLE_POLLS,
    B_MBARRIER_CAPACITY,
    B_MBARRIER_COUNT,
    B_MBARRIER_EVENTS,
    B_MBARRIER_INDEX,
    B_MBARRIERS,
    B_PARKED,
    K_CHECK,
    K_MBARRIER_CYCLES,
    KEPT_PHASES,
    M_ALIVE,
    M_CLOCK,
    M_COLUMN,
    M_COMPLETED,
    M_COUNTED,
    M_CURRENT,
    M_EXPECTED,
    M_FLYING,
    M_INIT_THREAD,
    M_LAST_SITE,
    M_NEXT_EXPECTED,
    M_OFFSET,
    M_PENDING,
    M_PHASE,
    M_PROMISED,
    M_READY,
    M_SITE,
    M_TX,
    MB_BAD_COUNT,
    MB_FULL,
    MB_MISALIGNED,
    MB_NONE,
    MB_OUTSIDE,
    MB_TOO_MANY_ARRIVALS,
    MB_TX_RANGE,
    MBARRIER_BYTES,
    TOKEN_BITS,
)

DROP = 1  # flags of an arrival
RELAXED = 2
LARGEST_COUNT = (1 << 20) - 1  # PTX ISA: the range of the arrival count and of tx-count


@native
def clear_mbarriers(block):
    """A new block moves in: no mbarrier is initialised."""
    store64(block, B_MBARRIER_COUNT, 0)
    store64(block, B_MBARRIER_EVENTS, 0)
    store64(block, B_PARKED, 0)
    store64(block, B_IDLE_POLLS, 0)
    index = load64(block, B_MBARRIER_INDEX)
    if index != 0:
        fill_bytes(index, 0, load64(block, B_SHARED_BYTES) & ~7)


@native
def record_at(block, number):
    """Address of a record by its number."""
    return load64(block, B_MBARRIERS) + number * MBARRIER_BYTES


@native
def find(block, offset):
    """Number of the living mbarrier at an offset of shared memory, or a negative answer."""
    if offset & 7:
        return MB_MISALIGNED
    if offset < 0 or offset + 8 > load64(block, B_SHARED_BYTES):
        return MB_OUTSIDE
    index = load64(block, B_MBARRIER_INDEX)
    if index == 0:  # a kernel that initialises none
        return MB_NONE
    number = load64(index, offset >> 3) - 1
    if number < 0 or load64(record_at(block, number), M_ALIVE) == 0:
        return MB_NONE
    return number


@native
def use(block, thread, offset, site):
    """`find`, and the checker learns that this thread works on the mbarrier.

    Operations on an mbarrier never race with each other, but they do with an initialisation that
    is not visible to this thread yet, and with plain writes to its eight bytes.
    """
    number = find(block, offset)
    if number >= 0 and load64(load64(block, B_CORE), K_CHECK):
        flags = happens_before.WRITES | happens_before.ATOMIC
        happens_before.plain_access(block, thread, offset, 8, site, flags)
    return number


@native
def changed(block):
    """Something happened that may let somebody go on."""
    store64(block, B_MBARRIER_EVENTS, load64(block, B_MBARRIER_EVENTS) + 1)
    store64(block, B_IDLE_POLLS, 0)


@native
def completed_vector(record, phases):
    """The vector of the first `phases` phases, one of the last KEPT_PHASES."""
    return load64(record, M_COMPLETED) + phases % KEPT_PHASES


@native
def complete_if_due(block, record):
    """Complete the phase where no arrival and no byte is missing.

    Where copies are still on their way, fewer bytes were announced than issued, and which copies
    made up the announced ones is the engine's choice: this phase then says of none that it has
    landed (its column is not marked), and a later one does once all have.
    """
    if load64(record, M_PENDING) != 0 or load64(record, M_TX) != 0:
        return 0
    phase = load64(record, M_PHASE) + 1
    store64(record, M_PHASE, phase)
    store64(record, M_EXPECTED, load64(record, M_NEXT_EXPECTED))
    store64(record, M_PENDING, load64(record, M_EXPECTED))
    store64(record, M_READY, load64(record, M_CLOCK))
    store64(record, M_PROMISED, 0)
    if load64(load64(block, B_CORE), K_CHECK):
        current = load64(record, M_CURRENT)
        completed = completed_vector(record, phase)
        happens_before.copy_vector(block, completed, completed_vector(record, phase - 1))
        happens_before.join_vector(block, completed, current)
        happens_before.mark_vector(block, completed, load64(record, M_COUNTED), phase)
        if load64(record, M_FLYING) == 0:
            happens_before.mark_vector(block, completed, load64(record, M_COLUMN), phase)
        happens_before.clear_vector(block, current)
    changed(block)
    return 0


@native
def land_bytes_of(block, number, count, clock):
    """`count` bytes of a copy have landed: complete_tx by the engine itself."""
    record = record_at(block, number)
    store64(record, M_TX, load64(record, M_TX) - count)
    store64(record, M_FLYING, load64(record, M_FLYING) - count)
    store64(record, M_CLOCK, max(load64(record, M_CLOCK), clock))
    complete_if_due(block, record)


@native
def expect_one_more(block, number):
    """One more arrival is pending in this phase."""
    record = record_at(block, number)
    store64(record, M_PENDING, load64(record, M_PENDING) + 1)


@native
def arrive_for_copies(block, thread, offset, groups, clock):
    """The arrival of a thread's landed copies: it orders them, and nothing else of the thread."""
    number = find(block, offset)
    if number < 0:
        return number
    record = record_at(block, number)
    if load64(record, M_PENDING) < 1:
        return MB_TOO_MANY_ARRIVALS
    if load64(load64(block, B_CORE), K_CHECK):
        column = happens_before.copy_column(block, thread)
        happens_before.mark_vector(block, load64(record, M_CURRENT), column, groups)
    store64(record, M_PENDING, load64(record, M_PENDING) - 1)
    store64(record, M_CLOCK, max(load64(record, M_CLOCK), clock))
    complete_if_due(block, record)
    return 0


# --- called by translated code --------------------------------------------------------------


@native
def rt_mbarrier_init(block, thread, offset, count, site):
    """mbarrier.init: phase 0 begins, `count` arrivals pending."""
    if offset & 7:
        return MB_MISALIGNED
    if offset < 0 or offset + 8 > load64(block, B_SHARED_BYTES):
        return MB_OUTSIDE
    if count < 1 or count > LARGEST_COUNT:
        return MB_BAD_COUNT
    index = load64(block, B_MBARRIER_INDEX)
    number = load64(index, offset >> 3) - 1
    fresh = number < 0
    if fresh:
        number = load64(block, B_MBARRIER_COUNT)
        if number >= load64(block, B_MBARRIER_CAPACITY):
            return MB_FULL
        store64(block, B_MBARRIER_COUNT, number + 1)
        store64(index, offset >> 3, number + 1)
    record = record_at(block, number)
    if fresh:  # copies that an earlier initialisation left on their way still count
        store64(record, M_FLYING, 0)
    checked = load64(load64(block, B_CORE), K_CHECK) != 0
    if checked:
        happens_before.plain_access(block, thread, offset, 8, site, happens_before.WRITES)
        _new_clocks(block, thread, record, number, fresh)
    for slot, value in (
        (M_OFFSET, offset), (M_EXPECTED, count), (M_PENDING, count), (M_TX, 0), (M_PHASE, 0),
        (M_NEXT_EXPECTED, count), (M_CLOCK, 0), (M_READY, 0), (M_SITE, site), (M_ALIVE, 1),
        (M_PROMISED, 0), (M_LAST_SITE, site),
    ):  # fmt: skip
        store64(record, slot, value)
    store64(record, M_INIT_THREAD, load64(thread, T_THREAD))
    fill_bytes(load64(block, B_SHARED) + offset, 0, 8)
    fill_bytes(load64(block, B_VALID) + offset, 1, 8)
    changed(block)
    return 0


@native
def _new_clocks(block, thread, record, number, fresh):
    """Vectors and columns of its own for a new mbarrier; a reused one gets fresh columns."""
    if fresh:
        store64(record, M_CURRENT, happens_before.new_vector(block))
        store64(record, M_COMPLETED, happens_before.new_vector(block))
        for _ in range(KEPT_PHASES - 1):  # vectors made in a row have numbers in a row
            happens_before.new_vector(block)
    happens_before.clear_vector(block, load64(record, M_CURRENT))
    for phase in range(KEPT_PHASES):
        happens_before.clear_vector(block, completed_vector(record, phase))
    store64(record, M_COLUMN, happens_before.new_column(block, COLUMN_MBARRIER, number))
    store64(record, M_COUNTED, happens_before.new_column(block, COLUMN_MBARRIER, number))


@native
def rt_mbarrier_inval(block, thread, offset, site):
    """mbarrier.inval: the eight bytes are plain memory again."""
    number = find(block, offset)
    if number < 0:
        return number
    store64(record_at(block, number), M_ALIVE, 0)
    return 0


@native
def rt_mbarrier_arrive(block, thread, offset, count, flags, site):
    """mbarrier.arrive[_drop] of `count`; the state token is the phase that it belongs to."""
    number = use(block, thread, offset, site)
    if number < 0:
        return number
    record = record_at(block, number)
    pending = load64(record, M_PENDING)
    if count < 1:
        return MB_BAD_COUNT
    if count > pending:
        return MB_TOO_MANY_ARRIVALS
    if load64(load64(block, B_CORE), K_CHECK) and not flags & RELAXED:
        happens_before.release(block, thread, load64(record, M_CURRENT))
    token = (load64(record, M_PHASE) << TOKEN_BITS) | pending
    if flags & DROP:
        store64(record, M_NEXT_EXPECTED, load64(record, M_NEXT_EXPECTED) - count)
    store64(record, M_PENDING, pending - count)
    seen = load64(thread, T_CLOCK) + load64(load64(block, B_CORE), K_MBARRIER_CYCLES)
    store64(record, M_CLOCK, max(load64(record, M_CLOCK), seen))
    store64(record, M_LAST_SITE, site)
    complete_if_due(block, record)
    return token


@native
def rt_mbarrier_tx(block, thread, offset, count, site):
    """expect_tx of `count` bytes; complete_tx is a negative count."""
    number = use(block, thread, offset, site)
    if number < 0:
        return number
    record = record_at(block, number)
    left = load64(record, M_TX) + count
    if left > LARGEST_COUNT or left < -LARGEST_COUNT:
        return MB_TX_RANGE
    store64(record, M_TX, left)
    if count > 0:
        store64(record, M_PROMISED, load64(record, M_PROMISED) + count)
    store64(record, M_CLOCK, max(load64(record, M_CLOCK), load64(thread, T_CLOCK)))
    complete_if_due(block, record)
    return 0


@native
def is_over(record, operand, by_parity):
    """Has the phase that a wait names completed?

    By parity: the phase that runs now has another parity. By token: a later phase runs.
    """
    phase = load64(record, M_PHASE)
    if by_parity:
        return (phase & 1) != (operand & 1)
    return phase > operand >> TOKEN_BITS


@native
def learned_phases(block, thread, record, operand, by_parity):
    """How many phases a wait that succeeds has shown to be over, whatever the schedule.

    A token names its phase. A parity names none: the thread that knows of k phases learns nothing
    where the next phase's parity is another one anyway (the wait may return at once), and of one
    phase more where it is the same. That this run is further on is luck.
    """
    known = happens_before.known(block, thread, load64(record, M_COUNTED))
    if by_parity:
        phases = known if (known & 1) != (operand & 1) else known + 1
    else:
        phases = max(known, (operand >> TOKEN_BITS) + 1)
    return max(phases, load64(record, M_PHASE) - KEPT_PHASES + 1)


@native
def passes(block, thread, offset, operand, by_parity, relaxed, site):
    """1 where a wait succeeds, 0 where it does not yet, or a negative answer."""
    number = use(block, thread, offset, site)
    if number < 0:
        return number
    record = record_at(block, number)
    if not is_over(record, operand, by_parity):
        return 0
    core = load64(block, B_CORE)
    if load64(core, K_CHECK) and not relaxed:
        phases = learned_phases(block, thread, record, operand, by_parity)
        happens_before.acquire(block, thread, completed_vector(record, phases))
    return 1


@native
def ready_clock(block, offset):
    """The cycle at which the last phase of a living mbarrier completed."""
    return load64(record_at(block, find(block, offset)), M_READY)
