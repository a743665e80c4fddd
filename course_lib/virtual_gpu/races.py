"""What the checker hands on of a race: plain facts, one record for each cause."""

from __future__ import annotations

from dataclasses import dataclass

ACCESS_KINDS = (
    "read", "write", "atomic", "copy", "bulk copy", "bulk store", "wgmma read", "accumulator",
)  # fmt: skip
"""How shared memory is accessed; "copy" is cp.async."""

MISSING = ("wait", "visibility", "order", "phase", "group", "proxy", "proxy-read", "fence")
"""What would have ordered the two accesses:

wait        a cp.async copy that its issuer never waited for
visibility  waited for by its issuer, but no barrier leads from there to the other thread
order       no chain of barriers
phase       an mbarrier's phase was not waited for
group       a group of bulk copies or wgmma was not waited for
proxy       ordered, but without fence.proxy.async
fence       an accumulator, read or changed, is taken by wgmma without wgmma.fence
proxy-read  the lower kind: generic reads, then a bulk copy, ordered but without fence.proxy.async
"""


@dataclass(frozen=True)
class RawAccess:
    """One of the two accesses.

    ``site`` indexes ``Module.sites``. ``source`` is the windowed global address of the bytes that a
    copy brings; for a read, of the bytes that lay there, when the last writer was a copy. ``group``
    is the cp.async, bulk or wgmma group, or the mbarrier's phase, of an asynchronous access.
    """

    thread: int
    warp: int
    site: int
    kind: str
    source: int | None = None
    group: int | None = None


@dataclass(frozen=True)
class RawRace:
    """Two accesses that no ordering joins, the first found of ``count`` pairs with this cause.

    ``block`` is the linear block index; ``offset`` and ``bytes`` lie in its shared memory;
    ``first`` and ``second`` are in the order of the run. ``fill`` numbers the writes of those bytes
    from 1, for a race of a read and a write: 1 says that nothing was there to be overwritten.
    ``found_reads``: some reads of what lay there came before that write.
    """

    block: int
    offset: int
    bytes: int
    first: RawAccess
    second: RawAccess
    missing: str
    count: int = 1
    fill: int = 0
    found_reads: bool = False
