"""Which accesses to shared memory are ordered: vector clocks, shadow cells and race records.

**Columns.** Time has one column for each thread (its *epoch*) and one for each source of
asynchronous completion: a thread's cp.async groups, a thread's bulk groups, an mbarrier's phases, a
warpgroup's wgmma groups. Every access is an *event* (column, value). It happens before whatever
thread u does next exactly when u's clock has reached `value` in that column, or when the column is
u's own epoch. So an access of the thread itself is (thread, epoch); a copy of cp.async group g is
(the thread's copy column, g + 1); a bulk copy is (the mbarrier's column, phase + 1).

**Vectors.** What joins threads (a barrier, an mbarrier's phase, a word that atomics work on) owns a
vector: `release` joins the thread's clock into it and starts the thread's next epoch, `acquire`
joins it into the thread's clock.

**Proxies.** Where the kernel has instructions of the async proxy, each clock has a second half: the
largest value whose path to here holds a `fence.proxy.async`. A generic access orders before one of
the async proxy only through that half (PTX ISA, memory consistency model, proxy-preserved base
causality order).

Every function returns at once where K_CHECK is 0; callers in hot paths test that themselves.
"""

from __future__ import annotations

from course_lib.virtual_gpu.raw import native

# What an access is: flags that are added.
WRITES = 1
ATOMIC = 2
ASYNC_PROXY = 4  # bulk and tensor copies, wgmma

# What a column counts.
COLUMN_THREAD, COLUMN_COPY, COLUMN_BULK, COLUMN_MBARRIER, COLUMN_WGMMA = range(5)

NO_SOURCE = 0


@native
def begin_block(block):
    """Forget everything: a new block moves in."""
    return 0


@native
def new_column(block, kind, owner):
    """A column for completions, `kind` COLUMN_*, `owner` a thread, mbarrier or warpgroup number."""
    return 0


@native
def new_vector(block):
    """An empty vector of a synchronisation object; returns its handle."""
    return 0


@native
def clear_vector(block, vector):
    """Empty it again."""
    return 0


@native
def copy_vector(block, target, source):
    """`target` becomes what `source` is."""
    return 0


@native
def release(block, thread, vector):
    """What `thread` has done so far happens before whoever acquires the vector."""
    return 0


@native
def acquire(block, thread, vector):
    """What the vector holds happens before what `thread` does next."""
    return 0


@native
def join_vector(block, target, source):
    """`target` also holds what `source` holds."""
    return 0


@native
def mark_vector(block, vector, column, value):
    """Whoever acquires the vector has seen `column` reach `value`."""
    return 0


@native
def complete(block, thread, column, value):
    """`thread` has waited until `column` reached `value`."""
    return 0


@native
def proxy_fence(block, thread):
    """fence.proxy.async by one thread."""
    return 0


@native
def access(block, thread, offset, count, site, flags, column, value, source):
    """An access of `count` bytes at `offset` of shared memory, started now by `thread`.

    It is complete when `column` reaches `value`; for a plain access that is the thread's own epoch
    (`plain_access`). `source` is the windowed global address that a copy brings, or NO_SOURCE.
    """
    return 0


@native
def plain_access(block, thread, offset, count, site, flags):
    """An access that is complete when the thread goes on."""
    return 0
