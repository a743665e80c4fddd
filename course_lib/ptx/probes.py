"""Clock stamps: rewrites a kernel's PTX so that it tells when each step of its pipeline happened.

The learner's kernel stays as it is.  Lane 0 of every warp of a few chosen blocks writes a 16-byte
record at each interesting instruction, and :func:`decode` turns the records into a table.

Which instructions, and whether the clock is read before (0) or after (1) them:

========  ======  ==============================================================================
kind      phases  instructions
========  ======  ==============================================================================
copy      0       first ``cp.async`` or bulk copy of a run; shared and global address
commit    1       ``commit_group``
wait      0, 1    ``wait_group``, ``wait_all``; a *successful* ``mbarrier.try_wait``/``test_wait``,
                  whose phase 0 is the first try, so that a spinning wait is one interval
barrier   0, 1    ``bar.sync`` and its relatives
arrive    0       ``mbarrier.arrive``, ``bar.arrive``
load      0       first ``ld.global`` of a run; global address
store     0, 1    first ``st.shared`` of a run; shared address.  It needs its data, so the time from
                  0 to 1 is the wait for the global load that feeds it
read      0       first ``ld.shared``, ``ldmatrix`` or ``wmma.load`` of a run; shared address
exit      0       ``ret`` of the kernel
========  ======  ==============================================================================

A *run* is what the source writes as one loop or line: accesses of one kind from one source line
with no commit, wait or barrier between them.  Runs are told apart where possible when the text is
rewritten; where a run spans several basic blocks (an inner loop, a guard per copy) one bit per run
remembers at run time that its first access is stamped.

A stamp is the clock, a store, and bump and clamp of the pointer's low half (the buffer must not
cross a 4 GiB line, which :func:`allocate` sees to).  Where next to nothing is executed between the
end of a wait or barrier and the next stamp, one record serves both, and decoding writes out both:
a record's store holds its registers until the memory pipeline takes it, so a stamp right behind
another would measure that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from course_lib.ptx.probe_records import (
    EVENT,
    HEADER_MARK,
    RECORD_BYTES,
    Decoded,
    address_of,
    allocate,
    decode,
    locate,
)
from course_lib.ptx.probe_sites import PHASES, ProbeSite, cell_lines, choose, kind_of, notes
from course_lib.ptx.probe_writer import Registers, Writer
from course_lib.ptx.rewriting import PROBE_BEGIN, PROBE_END
from course_lib.ptx.statements import find_entry

__all__ = [
    "EVENT",
    "EXTRA_PARAMETERS",
    "HEADER_MARK",
    "PHASES",
    "PROBE_BEGIN",
    "PROBE_END",
    "RECORD_BYTES",
    "Decoded",
    "ProbeSite",
    "ProbedPtx",
    "address_of",
    "allocate",
    "decode",
    "kind_of",
    "launch_arguments",
    "locate",
    "stamp",
]

#: u64 buffer, u32 capacity, u32 slots, u32 stride, after the kernel's own
EXTRA_PARAMETERS = 4


@dataclass(frozen=True)
class ProbedPtx:
    """Stamped PTX and what is needed to read its records."""

    text: str
    kernel_name: str
    sites: tuple[ProbeSite, ...]
    #: (site, phase) -> the (site, phase) just before it that has no record of its own: next to
    #: nothing is executed between the two, so one clock reading serves both
    aliases: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  #: what is not stamped, in words

    def site(self, index: int) -> ProbeSite:
        """The site with this index (they are numbered from 1)."""
        return self.sites[index - 1]


def stamp(ptx_text: str, module: Any, kernel_name: str) -> ProbedPtx:
    """Adds clock stamps to one kernel.

    ``module`` is the parsed ``ptx_text`` (for the source line of each instruction); None leaves
    every site without a line.  The stamped kernel takes four parameters more
    (:func:`launch_arguments`).  Raises ``KeyError`` where there is no such kernel.
    """
    entry = find_entry(ptx_text, kernel_name)
    lines = cell_lines(module, kernel_name)
    plans = choose(entry, lines)
    writer = Writer(entry, Registers.unused_in(ptx_text), plans)
    text = writer.rewrite(ptx_text)
    sites = tuple(plan.site for plan in plans)
    return ProbedPtx(text, kernel_name, sites, writer.aliases, notes(entry, module))


def launch_arguments(buffer_address: int, capacity: int, slots: int, stride: int) -> tuple:
    """The stamped kernel's extra arguments, to follow its own.

    Stamped are the blocks with linear index ``0, stride, 2*stride, …``, ``slots`` of them;
    ``capacity`` is in records per warp, header included.
    """
    return (
        np.uint64(buffer_address),
        np.uint32(capacity),
        np.uint32(slots),
        np.uint32(stride),
    )
