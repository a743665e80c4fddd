"""The events of a run and what orders them directly, from docs/memory_model.md.

A node is a point in the run; an edge leads from what comes before. An access has a node where it
begins and one where it is complete; they differ for asynchronous ones, whose completion has no edge
from the thread that issued them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fuzz.programs import Program, Statement
from fuzz.text import LOGS, value_of

FOLLOWED_PHASES = 8
"""The checker tells phases apart for so long (docs/memory_model.md, assumption 6)."""

Log = Mapping[tuple[int, int], tuple[int, int]]
"""(statement, thread) to (ticket, value)."""

READS = ("read", "strong read", "load flag", "poll flag", "bulk store", "wgmma")
STRONG = ("atomic", "strong read", "strong write", "load flag", "poll flag", "store flag",
          "swap flag")  # fmt: skip
ACCESSES = (*READS, *STRONG, "write", "copy", "bulk load")
ON_MBARRIERS = ("arrive phase", "drop phase", "wait phase", "test phase", "expect", "complete",
                "expect arrive", "early arrive", "copies arrive", "bulk load")  # fmt: skip
RELEASES = ("release", "acq_rel")
ACQUIRES = ("acquire", "acq_rel")


@dataclass(frozen=True)
class Access:
    """`node`: where it begins; `end_node`: where it is complete."""

    statement: int
    node: int
    end_node: int
    offset: int
    end: int
    writes: bool
    strong: bool
    proxy: bool


@dataclass(frozen=True)
class Wait:
    """A wait that succeeded while `over` phases were over. It names `token`, or else a parity."""

    mbarrier: int
    parity: int
    token: int | None
    over: int

    def learned(self, known: int) -> int:
        """Phases that must be over, for a thread that knows of `known`."""
        if self.token is not None:
            return max(known, self.token + 1)
        return known if known & 1 != self.parity else known + 1


@dataclass
class Flag:
    """What one thread's strong accesses to one flag mean for later ones."""

    released: list[int] = field(default_factory=list)  # nodes of its releases so far
    seen: list[int] = field(default_factory=list)  # nodes that its reads would synchronise with


@dataclass
class Graph:
    """`edges`: for each node the nodes directly before it."""

    program: Program
    edges: list[list[int]] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    proxy_fences: set[int] = field(default_factory=set)
    last: dict[int, list[int]] = field(default_factory=dict)  # by thread
    copies: dict[int, list[list[int]]] = field(default_factory=dict)  # by thread: groups
    bulks: dict[int, list[list[int]]] = field(default_factory=dict)
    products: list[list[int]] = field(default_factory=lambda: [[]])
    phases: dict[tuple[int, int], int] = field(default_factory=dict)  # (mbarrier, phase) to node
    waits: dict[int, Wait] = field(default_factory=dict)  # by the node after it
    flags: dict[tuple[int, int], Flag] = field(default_factory=dict)  # (flag, thread)
    fences: dict[int, int] = field(default_factory=dict)  # a thread's last fence
    seen: dict[int, list[int]] = field(default_factory=dict)  # for a thread's next fence
    writes: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    """By value: a node for whom a read of it synchronises with, and the value read before it."""

    def node(self, *sources: int) -> int:
        self.edges.append(list(sources))
        return len(self.edges) - 1

    def step(self, thread: int) -> int:
        """The thread's next node."""
        node = self.node(*self.last[thread])
        self.last[thread] = [node]
        return node

    def access(self, statement: int, thread: int, asynchronous: bool, span: tuple[int, int]) -> int:
        """An access by a thread; returns the node where it is complete."""
        s = self.program.statements[statement]
        mbarrier = span[0] >= self.program.data and s.kind in (*ON_MBARRIERS, "init")
        node = self.step(thread)
        end = self.node() if asynchronous else node
        strong = s.kind in STRONG or (mbarrier and s.kind != "init")
        proxy = s.kind in ("bulk load", "bulk store", "wgmma") and not mbarrier
        writes = mbarrier or s.kind not in READS
        self.accesses.append(
            Access(statement, node, end, span[0], span[0] + span[1], writes, strong, proxy)
        )
        return end

    def phase(self, mbarrier: int, phase: int) -> int:
        """The node of a phase's completion, which comes after that of the phase before it."""
        if (mbarrier, phase) not in self.phases:
            before = [self.phase(mbarrier, phase - 1)] if phase else []
            self.phases[mbarrier, phase] = self.node(*before)
        return self.phases[mbarrier, phase]


def build(program: Program, log: Log) -> Graph:
    """The graph of a run. `log`: what the run decided, see `text`."""
    graph = Graph(program)
    for thread in range(program.warps * 32):
        graph.last[thread] = []
        graph.copies[thread] = [[]]
        graph.bulks[thread] = [[]]
    placed, tokens = phases_of(program, log)
    for value in written_values(program):
        graph.writes[value] = (graph.node(), [])
    exited: set[int] = set()
    for number, statement in enumerate(program.statements):
        threads = [t for t in statement.threads() if t not in exited]
        if statement.kind == "exit":
            exited.update(threads)
        else:
            add_statement(graph, number, statement, threads, log, placed, tokens)
    learn(graph)
    return graph


def learn(graph: Graph) -> None:
    """Adds an edge from the latest phase that each wait must have seen: what its thread knows
    of the mbarrier by then follows from the nodes before it."""
    ends = {node: (mbarrier, phase + 1) for (mbarrier, phase), node in graph.phases.items()}
    known: dict[int, dict[int, int]] = {}
    waits = dict(graph.waits)
    todo = list(range(len(graph.edges)))[::-1]
    while todo:
        node = todo[-1]
        ahead = [n for n in graph.edges[node] if n not in known]
        if node in known or ahead:
            todo += ahead if node not in known else []
            if node in known:
                todo.pop()
            continue
        merged: dict[int, int] = {}
        for source in graph.edges[node]:
            for mbarrier, phases in known[source].items():
                merged[mbarrier] = max(phases, merged.get(mbarrier, 0))
        if node in waits:
            wait = waits.pop(node)
            phases = wait.learned(merged.get(wait.mbarrier, 0))
            if wait.over - phases >= FOLLOWED_PHASES:
                raise Undecided
            if phases:
                graph.edges[node].append(graph.phases[wait.mbarrier, phases - 1])
                continue  # once more, with what that phase brings
        if node in ends:
            mbarrier, phases = ends[node]
            merged[mbarrier] = max(phases, merged.get(mbarrier, 0))
        known[node] = merged
        todo.pop()


def written_values(program: Program) -> list[int]:
    return [
        value_of(number, thread)
        for number, statement in enumerate(program.statements)
        if statement.kind in ("store flag", "swap flag")
        for thread in statement.threads()
    ]


def add_statement(
    graph: Graph, number: int, s: Statement, threads: list[int], log: Log,
    placed: Mapping[tuple[int, int], int], tokens: Mapping[tuple[int, int], int],
) -> None:  # fmt: skip
    kind = s.kind
    if kind == "wgmma":
        for thread in threads[::32]:  # a warp's first lane stands for it
            end = graph.access(number, thread, True, (s.offset, s.bytes))
            graph.products[-1].append(end)
    elif kind in ("barrier", "pair"):
        meet(graph, threads, threads)
    elif kind == "arrive":
        meet(graph, threads, [t for t in threads if s.others >> t // 32 & 1])
    elif kind == "syncwarp":
        for warp in {thread // 32 for thread in threads}:
            lanes = [thread for thread in threads if thread // 32 == warp]
            meet(graph, lanes, lanes)
    elif kind == "wgmma commit":
        graph.products.append([])
    else:
        for thread in threads:
            if s.kind not in LOGS or (number, thread) in log:
                value = log.get((number, thread), (0, 0))[1]
                phase = placed.get((number, thread), s.phase)
                token = tokens.get((number, thread))
                add_one(graph, number, s, thread, value, phase, token)


def meet(graph: Graph, arriving: list[int], waiting: list[int]) -> None:
    """Everything before the arrivals happens before what those who wait do next."""
    node = graph.node(*(n for thread in arriving for n in graph.last[thread]))
    for thread in waiting:
        graph.last[thread] = [node]


def add_one(
    graph: Graph, number: int, s: Statement, thread: int, value: int, phase: int,
    token: int | None,
) -> None:  # fmt: skip
    """A statement that each thread executes by itself."""
    kind = s.kind
    if kind in ON_MBARRIERS or kind == "init":
        graph.access(number, thread, False, (s.mbarrier, 8))
    if kind in ACCESSES:
        end = graph.access(
            number, thread, kind in ("copy", "bulk load", "bulk store"), (s.offset, s.bytes)
        )
        if kind == "copy":
            graph.copies[thread][-1].append(end)
        elif kind == "bulk store":
            graph.bulks[thread][-1].append(end)
        elif kind == "bulk load":
            graph.edges[graph.phase(s.mbarrier, phase)].append(end)
        elif kind.endswith("flag"):
            add_flag(graph, s, thread, value, number)
    elif kind == "commit":
        graph.copies[thread].append([])
    elif kind == "bulk commit":
        graph.bulks[thread].append([])
    elif kind in ("wait", "bulk wait", "wgmma wait"):
        groups = {"wait": graph.copies[thread], "bulk wait": graph.bulks[thread]}
        waited = groups.get(kind, graph.products)
        graph.last[thread] += [n for g in waited[: max(0, len(waited) - 1 - s.number)] for n in g]
    elif kind == "copies arrive":
        graph.edges[graph.phase(s.mbarrier, phase)] += [n for g in graph.copies[thread] for n in g]
    elif kind in ("arrive phase", "drop phase", "expect arrive", "early arrive"):
        if s.order != "relaxed":
            graph.edges[graph.phase(s.mbarrier, phase)] += graph.last[thread]
    elif kind in ("wait phase", "test phase"):
        over = kind == "wait phase" or value
        if over and s.order != "relaxed" and phase >= 0:
            graph.phase(s.mbarrier, phase)
            parity = s.number if kind == "test phase" else s.phase & 1
            graph.waits[graph.step(thread)] = Wait(s.mbarrier, parity, token, phase + 1)
    elif kind == "fence":
        graph.last[thread] += graph.seen.pop(thread, [])
        graph.fences[thread] = graph.step(thread)
    elif kind == "proxy fence":
        graph.proxy_fences.add(graph.step(thread))


def add_flag(graph: Graph, s: Statement, thread: int, value: int, number: int) -> None:
    """Release and acquire patterns. A pattern is one operation, or two by the same thread: a
    release or a fence before the write, an acquire or a fence after the read."""
    mine = graph.flags.setdefault((s.offset, thread), Flag())
    source = None
    if s.kind != "store flag" and value:
        source = graph.writes[value][0]
        mine.seen.append(source)
        graph.seen.setdefault(thread, []).append(source)
        if s.order in ACQUIRES:
            graph.last[thread] += mine.seen
    elif s.order in ACQUIRES:
        graph.last[thread] += mine.seen
    if s.kind in ("store flag", "swap flag"):
        written = graph.edges[graph.writes[value_of(number, thread)][0]]
        if s.order in RELEASES:
            mine.released.append(graph.step(thread))
        written += mine.released
        if thread in graph.fences:
            written.append(graph.fences[thread])
        if source is not None:
            written.append(source)


class Undecided(Exception):
    """The log does not say during which phase a test that had to wait succeeded."""


Placed = dict[tuple[int, int], int]


def phases_of(program: Program, log: Log) -> tuple[Placed, Placed]:
    """The phase that each logged operation on an mbarrier belongs to; of a test that succeeded the
    last that was over. And the phase that each test by a token names. From the order of the
    operations alone, by PTX's rules for phases."""
    pending: dict[int, list[int]] = {}  # by mbarrier: missing arrivals, of the next phase, bytes
    begins: dict[int, list[int]] = {}  # by mbarrier: the ticket before the first of each phase
    tokens: dict[int, int] = {}  # by thread: the phase of its latest arrival
    placed: Placed = {}
    named: Placed = {}
    for ticket, (number, thread), value in sorted((t, key, v) for key, (t, v) in log.items()):
        s = program.statements[number]
        if s.kind == "init":
            pending[s.mbarrier], begins[s.mbarrier] = [s.number, s.number, 0], [0]
        if s.phase >= 0 or s.kind not in ON_MBARRIERS:
            continue
        phase = len(begins[s.mbarrier]) - 1
        placed[number, thread] = phase
        if s.kind == "test phase":
            placed[number, thread] = phase - 1
            if value:
                parity = s.number if s.number >= 0 else None
                check_test(begins[s.mbarrier], value, parity, tokens.get(thread, 0))
                if parity is None:
                    named[number, thread] = tokens.get(thread, 0)
            continue
        state = pending[s.mbarrier]
        if s.kind in ("arrive phase", "drop phase"):
            state[0] -= 1
            state[1] -= s.kind == "drop phase"
            tokens[thread] = phase
        state[2] += {"expect": s.number, "complete": -s.number}.get(s.kind, 0)
        if state[0] == 0 and state[2] == 0:
            state[0] = state[1]
            begins[s.mbarrier].append(ticket)
    return placed, named


def check_test(begins: list[int], began: int, parity: int | None, token: int) -> None:
    """A test that began with ticket `began` and succeeded by now may have done so in which phases?
    None: it is wrong; more than one: nobody knows. `parity` None: it names the phase `token`."""
    possible = [
        phase
        for phase in range(len(begins))
        if (phase == len(begins) - 1 or begins[phase + 1] >= began)
        and (phase > token if parity is None else phase & 1 != parity)
    ]
    if not possible:
        raise AssertionError("a test of a phase succeeded too early")
    if possible != [len(begins) - 1]:
        raise Undecided
