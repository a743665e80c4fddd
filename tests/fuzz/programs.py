"""Random straight-line programs of one block, as PTX text and as statements for the oracle.

Every statement is one line of PTX with a guard: the warps and lanes that execute it. Statements run
in the order of the text in every thread, so the text's order is a topological order of the graph.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

BYTES = 32
"""Shared memory of a program."""
FULL = 0xFFFFFFFF


@dataclass(frozen=True)
class Statement:
    """`kind`: read, write, atomic, strong read, strong write, copy, commit, wait, barrier, pair,
    arrive, syncwarp or exit; `number`: groups allowed, or the barrier's number."""

    kind: str
    warps: int
    lanes: int
    offset: int = 0
    bytes: int = 4
    number: int = 0
    others: int = 0  # arrive: the warps that wait there

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


def random_program(seed: int) -> Program:
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


def to_ptx(program: Program) -> str:
    """The kernel `fuzz(x)`; statement k is at line k + 1 of the "cell"."""
    body = []
    for number, statement in enumerate(program.statements):
        body.append(f"\t.loc 1 {number + 1} 1")
        body += [f"\t{line}" for line in _lines(statement, number)]
    text = "\n".join(body)
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry fuzz(.param .u64 x)
{{
	.reg .pred %p<4>;
	.reg .b32 %r<16>;
	.reg .b16 %h<3>;
	.reg .b64 %rd<4>;
	.shared .align 16 .b8 data[{BYTES}];
	ld.param.u64 %rd1, [x];
	cvta.to.global.u64 %rd2, %rd1;
	mov.u32 %r1, %tid.x;
	shr.u32 %r2, %r1, 5;
	and.b32 %r3, %r1, 31;
	mov.u32 %r9, 0;
	mov.u16 %h1, 0;
{text}
	ret;
}}
.file 1 "cell"
"""


def _lines(statement: Statement, number: int) -> list[str]:
    guard = [
        f"shr.u32 %r4, {statement.warps}, %r2;",
        f"shr.u32 %r5, {statement.lanes}, %r3;",
        "and.b32 %r4, %r4, %r5;",
        "and.b32 %r4, %r4, 1;",
        "setp.eq.u32 %p1, %r4, 0;",
        f"@%p1 bra L{number};",
    ]
    return [*guard, *_instructions(statement), f"L{number}:"]


def _instructions(s: Statement) -> list[str]:
    place = f"[data+{s.offset}]"
    letters = {1: ("u8", "%h1"), 2: ("u16", "%h1"), 4: ("u32", "%r9")}
    if s.kind in ("read", "write"):
        what = "ld" if s.kind == "read" else "st"
        if s.bytes == 16:
            operands = ["{%r9, %r10, %r11, %r12}", place]
            kind = "v4.u32"
        else:
            kind, register = letters[s.bytes]
            operands = [register, place]
        if what == "st":
            operands.reverse()
        return [f"{what}.shared.{kind} {', '.join(operands)};"]
    if s.kind == "atomic":
        return [f"atom.shared.add.u32 %r13, {place}, 1;"]
    if s.kind == "strong read":
        return [f"ld.volatile.shared.u32 %r9, {place};"]
    if s.kind == "strong write":
        return [f"st.volatile.shared.u32 {place}, %r9;"]
    if s.kind == "copy":
        return [f"cp.async.ca.shared.global {place}, [%rd2], {s.bytes};"]
    if s.kind == "commit":
        return ["cp.async.commit_group;"]
    if s.kind == "wait":
        return [f"cp.async.wait_group {s.number};"]
    if s.kind == "barrier":
        return ["bar.sync 0;"]
    if s.kind == "pair":
        return [f"bar.sync {s.number}, 64;"]
    if s.kind == "arrive":
        waiters = s.others
        return [
            f"shr.u32 %r4, {waiters}, %r2;", "and.b32 %r4, %r4, 1;", "setp.ne.u32 %p2, %r4, 0;",
            f"@%p2 bar.sync {s.number}, 64;", f"@!%p2 bar.arrive {s.number}, 64;",
        ]  # fmt: skip
    if s.kind == "syncwarp":
        return [f"bar.warp.sync {s.lanes};"]
    return ["ret;"]
