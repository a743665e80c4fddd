"""Races by brute force: reachability in the explicit graph of a run's events.

Written from docs/memory_model.md, and independent of the checker's algorithms: no clocks, no shadow
memory. `graph.py` turns a program and what its run decided into events and edges; here every pair
of conflicting accesses to every byte is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fuzz.graph import Access, Graph

RACE, REMARK = "race", "remark"


@dataclass(frozen=True)
class Pair:
    """Statements (the lower first) with unordered conflicting accesses, and what it is."""

    first: int
    second: int
    kind: str


def racy_bytes(graph: Graph) -> Mapping[Pair, set[int]]:
    """For each pair the bytes of shared memory in which it races."""
    found: dict[Pair, set[int]] = {}
    by_cover: dict[tuple[tuple[int, int], ...], list[int]] = {}
    spans = {(a.statement, a.offset): a for a in graph.accesses}
    for byte in range(max((a.end for a in graph.accesses), default=0)):
        cover = tuple(span for span, a in spans.items() if a.offset <= byte < a.end)
        by_cover.setdefault(cover, []).append(byte)
    for cover, places in by_cover.items():
        accesses = [a for a in graph.accesses if (a.statement, a.offset) in cover]
        for pair in unordered(graph, accesses):
            found.setdefault(pair, set()).update(places)
    return found


def unordered(graph: Graph, accesses: list[Access]) -> set[Pair]:
    """Pairs of accesses to one place that no path joins in either direction.

    An asynchronous access begins where it is issued, and whoever sees it complete knows no more of
    its issuer than this access; but what came before it in this place comes before what follows.
    """
    links = {a.end_node: a.node for a in accesses if a.end_node != a.node}
    mine = {a.end_node: 1 << number for number, a in enumerate(accesses)}
    before, fenced = reachability(graph, links, mine)
    found = set()
    for number, first in enumerate(accesses):
        for other in range(number):
            second = accesses[other]
            if not conflict(first, second):
                continue
            one, two = (
                min(first.statement, second.statement),
                max(first.statement, second.statement),
            )
            if before[first.node] >> other & 1:
                early, late, known = second, first, fenced[first.node] >> other & 1
            elif before[second.node] >> number & 1:
                early, late, known = first, second, fenced[second.node] >> number & 1
            else:
                found.add(Pair(one, two, RACE))
                continue
            if late.proxy and not early.proxy and not known:
                remark = late.writes and not early.writes
                found.add(Pair(one, two, REMARK if remark else RACE))
    return found


def conflict(first: Access, second: Access) -> bool:
    """Do two accesses to one place race where nothing orders them?"""
    if first is second or not (first.writes or second.writes):
        return False
    return not (first.strong and second.strong)


def reachability(
    graph: Graph, links: Mapping[int, int], mine: Mapping[int, int]
) -> tuple[list[int], list[int]]:
    """For each node the accesses that it can be reached from, as a mask: by any path, and by one
    that holds a proxy fence. `mine` has the bit of the access that is complete at a node."""
    count = len(graph.edges)
    before, fenced = [0] * count, [0] * count
    done = bytearray(count)
    for root in range(count):
        stack = [root]
        while stack:
            node = stack[-1]
            sources = graph.edges[node]
            if node in links:
                sources = [*sources, links[node]]
            waiting = [source for source in sources if not done[source]]
            if waiting and not done[node]:
                stack += waiting
                continue
            stack.pop()
            if done[node]:
                continue
            done[node] = 1
            for source in sources:
                before[node] |= before[source] | mine.get(source, 0)
                fenced[node] |= fenced[source]
            if node in graph.proxy_fences:
                fenced[node] |= before[node]
    return before, fenced
