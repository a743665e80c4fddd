"""Random straight-line programs of one block: accesses, barriers and cp.async (patterns.py has the
rest).

Every statement is one line of PTX with a guard: the warps and lanes that execute it. Every thread
runs its statements in the order of the text, and none waits for anything later in the text, so no
program can hang.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

BYTES = 32
"""Shared memory of a program."""
FULL = 0xFFFFFFFF


@dataclass(frozen=True)
class Statement:
    """`kind` is a key of text.WRITERS; `number`: groups allowed, a barrier's number, or a count.

    `order`: of a strong access, fence, arrival or wait; `mbarrier`: its offset in shared memory;
    `phase`: the phase that a pattern is certain of, -1 where only the run shows it.
    """

    kind: str
    warps: int
    lanes: int
    offset: int = 0
    bytes: int = 4
    number: int = 0
    others: int = 0  # arrive: the warps that wait there
    order: str = ""
    mbarrier: int = 0
    phase: int = -1

    def threads(self) -> list[int]:
        """Linear indices of the threads that execute it."""
        return [
            warp * 32 + lane
            for warp in range(self.warps.bit_length())
            if self.warps >> warp & 1
            for lane in range(32)
            if self.lanes >> lane & 1
        ]


@dataclass(frozen=True)
class Program:
    """Statements for blocks of `warps` warps."""

    warps: int
    statements: tuple[Statement, ...]
    data: int = BYTES  # bytes of shared memory that plain accesses, copies and wgmma use


def plain_program(seed: int) -> Program:
    """The program of a seed. Every second one has many barriers, so that most of it is ordered."""
    source = random.Random(seed)
    warps = source.choice((2, 3))
    calm = seed % 2 == 0
    statements: list[Statement] = []
    alive = FULL
    for _ in range(source.randint(6, 18)):
        named = sum(s.kind in ("pair", "arrive") for s in statements)
        statements.append(_statement(source, warps, alive, named))
        if statements[-1].kind == "exit":
            alive &= ~statements[-1].lanes
        last = statements[-1]
        if calm and last.kind in ("write", "strong write", "copy"):  # by one thread
            one = Statement(last.kind, last.warps & -last.warps, last.lanes & -last.lanes,
                            last.offset, last.bytes)  # fmt: skip
            statements[-1] = one
        if calm and source.random() < 0.95:
            if statements[-1].kind == "copy":
                statements.append(Statement("commit", (1 << warps) - 1, alive))
                statements.append(Statement("wait", (1 << warps) - 1, alive))
            statements.append(Statement("barrier", (1 << warps) - 1, alive))
    return Program(warps, tuple(statements))


def _statement(source: random.Random, warps: int, alive: int, named: int) -> Statement:
    everyone = (1 << warps) - 1
    kinds = ("read", "write", "atomic", "strong read", "strong write", "copy", "commit", "wait",
             "barrier", "pair", "arrive", "syncwarp", "exit")  # fmt: skip
    weights = (8, 6, 2, 1, 1, 5, 4, 4, 3, 1, 2, 3, 0.4)
    kind = source.choices(kinds, weights)[0]
    some = source.randint(1, everyone)
    lanes = source.choice((1, 2, 1 << 31, 3, 0xFFFF, FULL)) & alive or alive & -alive
    if kind == "exit":
        lanes = source.choice((1 << 30, 0x0F000000)) & alive & ~1
        return Statement(kind, everyone, lanes) if lanes else Statement("barrier", everyone, alive)
    if kind == "barrier":
        return Statement(kind, everyone, alive)
    if kind in ("pair", "arrive"):
        # Each its own barrier: a warp that runs ahead may meet the next one's warps.
        number = named + 1
        if number > 15:
            return Statement("barrier", everyone, alive)
        first = source.randrange(warps)
        second = (first + source.randint(1, warps - 1)) % warps
        if kind == "pair":
            return Statement(kind, 1 << first | 1 << second, alive, number=number)
        return Statement(kind, 1 << first | 1 << second, alive, number=number, others=1 << second)
    if kind in ("commit", "wait"):
        return Statement(kind, everyone, alive, number=source.choice((0, 0, 1, 2)))
    if kind == "syncwarp":
        return Statement(kind, some, lanes)
    if kind == "copy":
        size = source.choice((4, 8, 16))
    elif kind in ("read", "write"):
        size = source.choice((1, 2, 4, 4, 4, 16))
    else:
        size = 4
    offset = source.randrange(0, BYTES, size)
    if kind == "read":
        return Statement(kind, some, lanes, offset, size)
    return Statement(kind, some, lanes & -lanes if source.random() < 0.7 else lanes, offset, size)
