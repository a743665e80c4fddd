"""Random programs of the orderings that need more than one statement: flags, mbarriers, rings of
copies, named barriers in turns, wgmma. Each pattern leaves an ordering out now and then.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from fuzz.programs import BYTES, FULL, Program, Statement, plain_program

LINKED = 0.85
"""How often a pattern has each of its orderings."""


@dataclass
class Draft:
    """A program that grows."""

    source: random.Random
    warps: int
    data: int = BYTES
    statements: list[Statement] = field(default_factory=list)
    mbarriers: int = 0
    names: int = 0

    def add(self, kind: str, warps: int, lanes: int, **more: object) -> None:
        self.statements.append(Statement(kind, warps, lanes, **more))  # type: ignore[arg-type]

    def everyone(self, kind: str, **more: object) -> None:
        self.add(kind, (1 << self.warps) - 1, FULL, **more)

    def often(self) -> bool:
        return self.source.random() < LINKED

    def thread(self) -> tuple[int, int]:
        """Guard of some thread."""
        return 1 << self.source.randrange(self.warps), self.source.choice((1, 2, 1 << 31))

    def two_threads(self) -> tuple[tuple[int, int], tuple[int, int]]:
        first = self.thread()
        second = self.thread()
        while second == first:
            second = self.thread()
        return first, second

    def new_mbarrier(self, count: int) -> int:
        """Initialised by one thread, and known to all after a barrier."""
        place = self.data + 16 + 8 * self.mbarriers
        self.mbarriers += 1
        self.add("init", 1, 1, mbarrier=place, number=count)
        return place

    def place(self, size: int) -> int:
        """Where an access of this size may lie."""
        return self.source.randrange(0, self.data, size)

    def noise(self) -> None:
        """An access, or a barrier of everyone."""
        kind = self.source.choice(("read", "read", "write", "barrier", "barrier", "barrier"))
        if kind == "barrier":
            self.everyone(kind)
        else:
            self.add(kind, *self.thread(), offset=self.place(4))

    def access(self, guard: tuple[int, int], offset: int, size: int) -> None:
        kind = self.source.choice(("read", "read", "write"))
        small = self.source.choice((4, size if size in (4, 16) else 16))
        start = offset + self.source.randrange(0, size, small)
        self.add(kind, *guard, offset=start, bytes=small)


# --- flags --------------------------------------------------------------------------------------


def flags(draft: Draft) -> None:
    """Data handed on through a flag: release and acquire, fences, read-modify-writes between."""
    source = draft.source
    for place in (draft.data, draft.data + 4):
        draft.add("write", 1, 1, offset=place)
    draft.everyone("barrier")
    for _ in range(source.randint(1, 3)):
        flag = draft.data + source.choice((0, 0, 4))
        writer, reader = draft.two_threads()
        offset = draft.place(4)
        draft.access(writer, offset, 4)
        _publish(draft, writer, flag)
        for _ in range(source.choice((0, 0, 1, 2))):
            order = source.choice(("relaxed", "relaxed", "acquire", "release", "acq_rel"))
            draft.add("swap flag", *draft.thread(), offset=flag, order=order)
            if source.random() < 0.3:
                draft.add("store flag", *draft.thread(), offset=flag, order="relaxed")
        _learn(draft, reader, flag)
        draft.access(reader, offset, 4)
        if source.random() < 0.3:
            draft.noise()


def _publish(draft: Draft, guard: tuple[int, int], flag: int) -> None:
    source = draft.source
    style = source.choice(("release", "fence", "swap", "twice", "weak"))
    if style in ("release", "twice"):
        draft.add("store flag", *guard, offset=flag, order="release")
        if style == "twice":  # a release, then a strong write by the same thread
            if source.random() < 0.3:
                draft.access(guard, draft.place(4), 4)
            draft.add("store flag", *guard, offset=flag, order="relaxed")
        return
    if style == "fence":
        draft.add("fence", *guard, order=source.choice(("sc", "acq_rel")))
        if source.random() < 0.2:
            draft.access(guard, draft.place(4), 4)
    if style == "swap":
        order = source.choice(("release", "acq_rel"))
        draft.add("swap flag", *guard, offset=flag, order=order)
    else:
        order = source.choice(("relaxed", "volatile"))
        draft.add("store flag", *guard, offset=flag, order=order)


def _learn(draft: Draft, guard: tuple[int, int], flag: int) -> None:
    source = draft.source
    style = source.choice(("acquire", "fence", "swap", "twice", "weak"))
    kind = "poll flag" if draft.often() else "load flag"
    order = "acquire" if style == "acquire" else source.choice(("relaxed", "volatile"))
    draft.add(kind, *guard, offset=flag, order=order)
    if style == "fence":
        draft.add("fence", *guard, order=source.choice(("sc", "acq_rel")))
    elif style == "swap":
        draft.add("swap flag", *guard, offset=flag, order=source.choice(("acquire", "acq_rel")))
    elif style == "twice":  # a strong read, then an acquire by the same thread
        draft.add("load flag", *guard, offset=flag, order="acquire")


# --- mbarriers by themselves --------------------------------------------------------------------


def phases(draft: Draft) -> None:
    """One mbarrier, arrivals and tests at random: only the run shows which phase each belongs to.

    One arrival at a time, and what is expected is completed at once, so none is too many.
    """
    source = draft.source
    place = draft.new_mbarrier(source.choice((1, 2, 3)))
    draft.everyone("barrier")
    drops = 0
    for _ in range(source.randint(3, 9)):
        guard = draft.thread()
        kind = source.choice(("arrive phase",) * 3 + ("test phase",) * 3 + ("tx", "drop phase"))
        order = "" if draft.often() else "relaxed"
        if source.random() < 0.6:
            draft.access(guard, draft.place(4), 4)
        if kind == "tx":
            draft.add("expect", *guard, mbarrier=place, number=16)
            draft.add("complete", *guard, mbarrier=place, number=16)
        elif kind == "test phase":
            parity = source.choice((-1, 0, 0, 1))
            draft.add(kind, *guard, mbarrier=place, number=parity, order=order)
            draft.access(guard, draft.place(4), 4)
        elif kind == "arrive phase":
            draft.add(kind, *guard, mbarrier=place, order=order, number=1)
        elif not drops and draft.statements[0].number > 1:
            drops += 1
            draft.add(kind, *guard, mbarrier=place)


# --- rings --------------------------------------------------------------------------------------


def ring(draft: Draft) -> None:
    """Producers fill a place and consumers use it, round by round; a full and an empty mbarrier.

    A relaxed arrival or wait keeps the rounds apart and orders nothing. Nobody comes to a round
    before everyone has left the last but one, so statements know their phase.
    """
    source = draft.source
    producers = sorted({draft.thread() for _ in range(source.choice((1, 1, 2)))})
    consumers = sorted({draft.thread() for _ in range(source.choice((1, 2)))})
    style = source.choice(("bulk", "bulk", "copies", "write"))
    counts = [_arrivals(draft, style, number) for number in range(len(producers))]
    full = draft.new_mbarrier(sum(counts))
    empty = draft.new_mbarrier(len(consumers))
    draft.everyone("barrier")
    size = source.choice((16, 16, 32)) if style == "bulk" else source.choice((4, 8, 16))
    offset = source.randrange(0, draft.data - size + 1, 16)
    for phase in range(source.choice((1, 2, 3))):
        for number, guard in enumerate(producers):
            if phase:
                _wait(draft, guard, empty, phase - 1)
            _fill(draft, guard, full, phase, style, number, counts[number], offset, size)
        if source.random() < 0.2:
            draft.noise()
        for guard in consumers:
            _wait(draft, guard, full, phase)
            _use(draft, guard, offset, size)
            order = "" if draft.often() else "relaxed"
            draft.add("arrive phase", *guard, mbarrier=empty, phase=phase, order=order, number=1)
        if source.random() < 0.2:
            draft.noise()
    if source.random() < 0.3:
        draft.everyone("barrier")
        draft.access(draft.thread(), offset, size)


def _arrivals(draft: Draft, style: str, number: int) -> int:
    return draft.source.choice((1, 1, 2, 3)) if style == "write" else 1


def _wait(draft: Draft, guard: tuple[int, int], mbarrier: int, phase: int) -> None:
    order = "" if draft.often() else "relaxed"
    draft.add("wait phase", *guard, mbarrier=mbarrier, phase=phase, order=order)


def _fill(
    draft: Draft, guard: tuple[int, int], full: int, phase: int, style: str, number: int,
    count: int, offset: int, size: int,
) -> None:  # fmt: skip
    source = draft.source
    if style == "bulk" and number == 0:
        if draft.often():
            draft.add("proxy fence", *guard)
        load = Statement("bulk load", *guard, offset=offset, bytes=size, mbarrier=full, phase=phase)
        late = source.random() < 0.3
        if late:  # the bytes are expected after the copy has been issued: legal
            draft.statements.append(load)
        draft.add("expect arrive", *guard, mbarrier=full, phase=phase, number=size)
        if not late:
            draft.statements.append(load)
    elif style == "copies" and number == 0:
        draft.add("copy", *guard, offset=offset, bytes=size)
        if source.random() < 0.3:
            draft.add("commit", *guard)
        counted = source.random() < 0.6
        more = ".noinc" if counted else ""
        draft.add("copies arrive", *guard, mbarrier=full, phase=phase, order=more)
        if source.random() < 0.2:
            draft.add("wait", *guard, number=0)
        if not counted:
            draft.add("arrive phase", *guard, mbarrier=full, phase=phase, number=1)
    else:
        if draft.often():
            draft.add("write", *guard, offset=offset, bytes=4)
        order = "" if draft.often() else "relaxed"
        if count == 3:
            draft.add("early arrive", *guard, mbarrier=full, phase=phase, number=2)
            count = 1
        draft.add("arrive phase", *guard, mbarrier=full, phase=phase, order=order, number=count)


def _use(draft: Draft, guard: tuple[int, int], offset: int, size: int) -> None:
    source = draft.source
    style = source.choice(("access", "access", "store", "warp"))
    if style == "store" and size % 16 == 0:
        if source.random() < 0.5:
            draft.add("write", *guard, offset=offset, bytes=4)
        if draft.often():
            draft.add("proxy fence", *guard)
        store(draft, guard, offset)
    elif style == "warp":
        warp = guard[0]
        if draft.often():
            draft.add("syncwarp", warp, FULL)
        draft.add("read", warp, source.choice((3, 0xFFFF, FULL)), offset=offset)
        if draft.often():
            draft.add("syncwarp", warp, FULL)
    else:
        draft.access(guard, offset, size)
    if source.random() < 0.5:
        draft.add("proxy fence", *guard)


def store(draft: Draft, guard: tuple[int, int], offset: int) -> None:
    """Bulk stores in groups, and a wait that may leave some pending."""
    source = draft.source
    for _ in range(source.choice((1, 1, 2))):
        draft.add("bulk store", *guard, offset=offset, bytes=16)
        if draft.often():
            draft.add("bulk commit", *guard)
    if draft.often():
        order = source.choice((".read", ""))
        draft.add("bulk wait", *guard, order=order, number=source.choice((0, 0, 0, 1)))


def stores(draft: Draft) -> None:
    """Written, read by a bulk store, written again."""
    writer, issuer = draft.two_threads()
    for _ in range(draft.source.choice((1, 2))):
        offset = draft.source.choice((0, 16))
        draft.access(writer, offset, 16)
        fencing = draft.source.choice((writer, issuer, None))
        if fencing == writer:
            draft.add("proxy fence", *writer)
        if draft.often():
            draft.everyone("barrier")
        if fencing == issuer:
            draft.add("proxy fence", *issuer)
        store(draft, issuer, offset)
        if draft.often():
            draft.everyone("barrier")


# --- named barriers -----------------------------------------------------------------------------


def turns(draft: Draft) -> None:
    """A warp hands data to another with bar.arrive, and gets the place back with a second one."""
    source = draft.source
    if draft.names >= 12:
        return
    first = source.randrange(draft.warps)
    second = (first + source.randint(1, draft.warps - 1)) % draft.warps
    full, empty = draft.names + 1, draft.names + 2
    draft.names += 2
    offset = draft.place(4)
    for _ in range(source.choice((1, 2, 3))):
        both = 1 << first | 1 << second
        lane = source.choice((1, 2, FULL)) if source.random() < 0.3 else 1
        draft.add("write", 1 << first, lane, offset=offset)
        draft.add("arrive", both, FULL, number=full, others=1 << second)
        draft.add("read", 1 << second, source.choice((1, 0xFF, FULL)), offset=offset)
        if source.random() < 0.1:
            draft.add("read", 1 << first, 1, offset=draft.place(4))
        draft.add("arrive", both, FULL, number=empty, others=1 << first)
        if source.random() < 0.1:
            draft.add("write", 1 << second, 1, offset=draft.place(4))


# --- wgmma --------------------------------------------------------------------------------------


def tensor_cores(draft: Draft) -> None:
    """Four warps: B is written, read by wgmma, waited for by some of the warps, written again."""
    source = draft.source
    for _ in range(source.choice((1, 2))):
        offset = source.choice((0, 256))
        writer = draft.thread()
        draft.add("write", *writer, offset=offset + 16 * source.randrange(16), bytes=16)
        if draft.often():
            draft.add("proxy fence", *writer)
        if draft.often():
            draft.everyone("barrier")
        for _ in range(source.choice((1, 1, 2))):
            draft.everyone("wgmma", offset=offset, bytes=256)
            if draft.often():
                draft.everyone("wgmma commit")
        if draft.often():
            waiting = 0xF if draft.often() else source.randint(1, 15)
            draft.add("wgmma wait", waiting, FULL, number=source.choice((0, 0, 0, 1)))
        if draft.often():
            draft.everyone("barrier")
        draft.access(draft.thread(), offset, 256)


PATTERNS = (flags, phases, ring, ring, stores, turns, tensor_cores)


def random_program(seed: int) -> Program:
    """Every fourth program is a plain one; the others are patterns one after another."""
    if seed % 4 == 0:
        return plain_program(seed // 4)
    source = random.Random(seed)
    pattern = PATTERNS[seed % len(PATTERNS)]
    if pattern is tensor_cores:
        draft = Draft(source, 4, 512)
    else:
        draft = Draft(source, source.choice((2, 3)))
    pattern(draft)
    others = [p for p in (turns, stores, ring) if pattern is not tensor_cores]
    if others and source.random() < 0.4:
        if source.random() < 0.7:
            draft.everyone("barrier")
        source.choice(others)(draft)
    return Program(draft.warps, tuple(draft.statements), draft.data)
