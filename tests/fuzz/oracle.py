"""Which statements of a program race, by brute force: reachability in the explicit graph of events.

Independent of the checker's algorithms: no clocks, no shadow memory. Every event has the set of
events that happen before it as a bit mask; every pair of conflicting accesses is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fuzz.programs import Program, Statement

READS = ("read", "strong read")
ACCESSES = ("read", "write", "atomic", "strong read", "strong write", "copy")
STRONG = ("atomic", "strong read", "strong write")


@dataclass
class Event:
    """An access by one thread; `before`: the events that it can be reached from."""

    statement: int
    bit: int
    before: int


@dataclass
class Graph:
    """What is known so far, in the order of the text."""

    before: dict[int, int] = field(default_factory=dict)  # by thread
    copies: dict[int, list[list[int]]] = field(default_factory=dict)  # by thread: groups of bits
    events: list[Event] = field(default_factory=list)


def racy_pairs(program: Program) -> set[tuple[int, int]]:
    """Pairs of statements (the lower first) with two unordered conflicting accesses."""
    graph = Graph()
    threads = program.warps * 32
    exited: set[int] = set()
    for thread in range(threads):
        graph.before[thread] = 0
        graph.copies[thread] = [[]]
    for number, statement in enumerate(program.statements):
        active = [t for t in statement.threads() if t not in exited]
        if statement.kind == "exit":
            exited.update(active)
        else:
            _add(graph, number, statement, active)
    return _unordered(program, graph.events)


def _add(graph: Graph, number: int, statement: Statement, active: list[int]) -> None:
    kind = statement.kind
    if kind in ACCESSES:
        for thread in active:
            bit = 1 << len(graph.events)
            graph.events.append(Event(number, bit, graph.before[thread]))
            if kind == "copy":
                graph.copies[thread][-1].append(bit)
            else:
                graph.before[thread] |= bit
    elif kind == "commit":
        for thread in active:
            graph.copies[thread].append([])
    elif kind == "wait":
        for thread in active:
            groups = graph.copies[thread]
            for group in groups[: len(groups) - 1 - statement.number]:
                for bit in group:
                    graph.before[thread] |= bit
    elif kind in ("barrier", "pair"):
        _join(graph, active, active)
    elif kind == "syncwarp":
        for warp in {thread // 32 for thread in active}:
            lanes = [thread for thread in active if thread // 32 == warp]
            _join(graph, lanes, lanes)
    elif kind == "arrive":
        _join(graph, active, [t for t in active if statement.others >> t // 32 & 1])


def _join(graph: Graph, arriving: list[int], waiting: list[int]) -> None:
    """Everything before the arrivals happens before what those who wait do next."""
    joined = 0
    for thread in arriving:
        joined |= graph.before[thread]
    for thread in waiting:
        graph.before[thread] = joined


def _unordered(program: Program, events: list[Event]) -> set[tuple[int, int]]:
    found = set()
    for index, second in enumerate(events):
        for first in events[:index]:
            one, two = (program.statements[e.statement] for e in (first, second))
            apart = one.offset + one.bytes <= two.offset or two.offset + two.bytes <= one.offset
            if apart or (one.kind in READS and two.kind in READS):
                continue
            if one.kind in STRONG and two.kind in STRONG:
                continue
            if not second.before & first.bit:
                found.add((first.statement, second.statement))
    return found


def cells_of(program: Program, pairs: set[tuple[int, int]]) -> set[int]:
    """The bytes of shared memory in which pairs of statements overlap."""
    found: set[int] = set()
    for pair in pairs:
        one, two = (program.statements[number] for number in pair)
        start = max(one.offset, two.offset)
        found.update(range(start, min(one.offset + one.bytes, two.offset + two.bytes)))
    return found
