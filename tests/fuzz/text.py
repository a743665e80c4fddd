"""Programs as PTX. Statement k is at line k + 1 of the "cell".

What a run decides (the value that a flag's read got, whether a wait succeeded, the order of the
operations on an mbarrier) goes to a log in global memory: for each statement that LOGS names and
each thread a ticket, 0 where it was not executed, and a value (of a test that succeeded the ticket
of what came after its beginning). Tickets are plain global accesses,
which order nothing; they are a total order because the virtual GPU runs one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from fuzz.programs import Program, Statement

SYNC_AREA = 64
"""Bytes behind the data: two flags, then mbarriers from 16 on."""
POLLS = 40
"""Reads of a flag after which a poll gives up."""
LOGS = frozenset(
    ("load flag", "store flag", "swap flag", "poll flag", "expect", "complete", "arrive phase",
     "drop phase", "test phase", "init")
)  # fmt: skip


def log_slots(program: Program) -> dict[int, int]:
    """Row of the log by statement."""
    logged = [n for n, s in enumerate(program.statements) if s.kind in LOGS]
    return {number: row for row, number in enumerate(logged)}


def to_ptx(program: Program) -> str:
    """The kernel `fuzz(x, log)`; log[0] is the next ticket less one."""
    rows = log_slots(program)
    body = []
    for number, statement in enumerate(program.statements):
        body.append(f"\t.loc 1 {number + 1} 1")
        row = rows.get(number, -1)
        body += [f"\t{line}" for line in _lines(program, statement, number, row)]
    text = "\n".join(body)
    return f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry fuzz(.param .u64 x, .param .u64 log)
{{
	.reg .pred %p<5>;
	.reg .b32 %r<32>;
	.reg .b16 %h<3>;
	.reg .f32 %f<8>;
	.reg .b64 %rd<12>;
	.shared .align 128 .b8 data[{program.data + SYNC_AREA}];
	ld.param.u64 %rd1, [x];
	cvta.to.global.u64 %rd2, %rd1;
	ld.param.u64 %rd3, [log];
	cvta.to.global.u64 %rd4, %rd3;
	mov.u32 %r1, %tid.x;
	shr.u32 %r2, %r1, 5;
	and.b32 %r3, %r1, 31;
	mov.u32 %r9, 0;
	mov.u16 %h1, 0;
	mov.u64 %rd5, 0;
{text}
	ret;
}}
.file 1 "cell"
"""


def _lines(program: Program, statement: Statement, number: int, row: int) -> list[str]:
    guard = [
        f"shr.u32 %r4, {statement.warps}, %r2;",
        f"shr.u32 %r5, {statement.lanes}, %r3;",
        "and.b32 %r4, %r4, %r5;",
        "and.b32 %r4, %r4, 1;",
        "setp.eq.u32 %p1, %r4, 0;",
        f"@%p1 bra L{number};",
    ]
    unique = []
    if statement.kind in ("store flag", "swap flag"):
        unique = [f"add.u32 %r14, %r1, {value_of(number, 0)};"]
    write = WRITERS[statement.kind]
    after = _log(row, program.warps * 32) if row >= 0 else []
    return [*guard, *unique, *write(statement, number), *after, f"L{number}:"]


def value_of(number: int, thread: int) -> int:
    """What a thread stores to a flag at a statement: never the same twice, and never 0."""
    return (number + 1) * 1024 + thread


def _log(row: int, threads: int) -> list[str]:
    return [
        f"mad.lo.u32 %r15, %r1, 8, {8 + row * threads * 8};", "cvt.u64.u32 %rd6, %r15;",
        "add.u64 %rd6, %rd4, %rd6;", "ld.global.u32 %r15, [%rd4];", "add.u32 %r15, %r15, 1;",
        "st.global.u32 [%rd4], %r15;", "st.global.u32 [%rd6], %r15;",
        "st.global.u32 [%rd6+4], %r13;",
    ]  # fmt: skip


# --- accesses -----------------------------------------------------------------------------------


def _place(s: Statement) -> str:
    return f"[data+{s.offset}]"


def _plain(s: Statement, number: int) -> list[str]:
    letters = {1: ("u8", "%h1"), 2: ("u16", "%h1"), 4: ("u32", "%r9")}
    if s.bytes == 16:
        register, kind = "{%r9, %r10, %r11, %r12}", "v4.u32"
    else:
        kind, register = letters[s.bytes]
    if s.kind == "read":
        return [f"ld.shared.{kind} {register}, {_place(s)};"]
    return [f"st.shared.{kind} {_place(s)}, {register};"]


def _copy(s: Statement, number: int) -> list[str]:
    return [f"cp.async.ca.shared.global {_place(s)}, [%rd2], {s.bytes};"]


def _arrive(s: Statement, number: int) -> list[str]:
    return [
        f"shr.u32 %r4, {s.others}, %r2;", "and.b32 %r4, %r4, 1;", "setp.ne.u32 %p2, %r4, 0;",
        f"@%p2 bar.sync {s.number}, 64;", f"@!%p2 bar.arrive {s.number}, 64;",
    ]  # fmt: skip


# --- flags --------------------------------------------------------------------------------------


def _word(order: str) -> str:
    return "volatile" if order == "volatile" else f"{order}.cta"


def _store_flag(s: Statement, number: int) -> list[str]:
    return [f"st.{_word(s.order)}.shared.u32 {_place(s)}, %r14;"]


def _load_flag(s: Statement, number: int) -> list[str]:
    return [f"ld.{_word(s.order)}.shared.u32 %r13, {_place(s)};"]


def _swap_flag(s: Statement, number: int) -> list[str]:
    return [f"atom.{s.order}.cta.shared.exch.b32 %r13, {_place(s)}, %r14;"]


def _poll_flag(s: Statement, number: int) -> list[str]:
    return [
        "mov.u32 %r16, 0;", f"Q{number}:", *_load_flag(s, number), "add.u32 %r16, %r16, 1;",
        f"setp.ge.u32 %p2, %r16, {POLLS};", f"@%p2 bra R{number};", "setp.eq.u32 %p2, %r13, 0;",
        f"@%p2 bra Q{number};", f"R{number}:",
    ]  # fmt: skip


# --- mbarriers ----------------------------------------------------------------------------------


def _object(s: Statement) -> str:
    return f"[data+{s.mbarrier}]"


def _weak(s: Statement) -> str:
    return ".relaxed.cta" if s.order == "relaxed" else ""


def _arrive_phase(s: Statement, number: int) -> list[str]:
    count = f", {s.number}" if s.number > 1 else ""
    return [f"mbarrier.arrive{_weak(s)}.shared::cta.b64 %rd5, {_object(s)}{count};"]


def _wait_phase(s: Statement, number: int) -> list[str]:
    return [
        f"W{number}:",
        f"mbarrier.try_wait.parity{_weak(s)}.shared::cta.b64 %p2, {_object(s)}, {s.phase & 1};",
        f"@!%p2 bra W{number};",
    ]


def _test_phase(s: Statement, number: int) -> list[str]:
    if s.number < 0:
        test = f"mbarrier.test_wait{_weak(s)}.shared::cta.b64 %p2, {_object(s)}, %rd5;"
    else:
        test = f"mbarrier.test_wait.parity{_weak(s)}.shared::cta.b64 %p2, {_object(s)}, {s.number};"
    return [
        "ld.global.u32 %r18, [%rd4];", "add.u32 %r18, %r18, 1;", test,
        "selp.u32 %r13, %r18, 0, %p2;",
    ]  # fmt: skip


def _copies_arrive(s: Statement, number: int) -> list[str]:
    return [f"cp.async.mbarrier.arrive{s.order}.shared.b64 {_object(s)};"]


def _bulk_load(s: Statement, number: int) -> list[str]:
    opcode = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    return [f"{opcode} {_place(s)}, [%rd2], {s.bytes}, {_object(s)};"]


def _bulk_store(s: Statement, number: int) -> list[str]:
    return [f"cp.async.bulk.global.shared::cta.bulk_group [%rd2+512], {_place(s)}, {s.bytes};"]


# --- wgmma --------------------------------------------------------------------------------------


def _wgmma(s: Statement, number: int) -> list[str]:
    """m64n8k16: B is 256 bytes in a row, A comes from registers."""
    return [
        "mov.u32 %r17, data;", f"add.u32 %r17, %r17, {s.offset};", "shr.u32 %r17, %r17, 4;",
        "cvt.u64.u32 %rd7, %r17;", f"or.b64 %rd7, %rd7, {8 << 16 | 16 << 32};",
        "wgmma.fence.sync.aligned;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, "
        "{%r20, %r21, %r22, %r23}, %rd7, 1, 1, 1, 0;",
    ]  # fmt: skip


def _fixed(template: str) -> Callable[[Statement, int], list[str]]:
    """A statement that is one line, with the numbers of the statement in it."""
    return lambda s, number: [
        template.format(place=_place(s), object=_object(s), weak=_weak(s), s=s)
    ]


WRITERS: dict[str, Callable[[Statement, int], list[str]]] = {
    "read": _plain,
    "write": _plain,
    "atomic": _fixed("atom.shared.add.u32 %r13, {place}, 1;"),
    "strong read": _fixed("ld.relaxed.cta.shared.u32 %r9, {place};"),
    "strong write": _fixed("st.relaxed.cta.shared.u32 {place}, %r9;"),
    "copy": _copy,
    "commit": _fixed("cp.async.commit_group;"),
    "wait": _fixed("cp.async.wait_group {s.number};"),
    "barrier": _fixed("bar.sync 0;"),
    "pair": _fixed("bar.sync {s.number}, 64;"),
    "arrive": _arrive,
    "syncwarp": _fixed("bar.warp.sync {s.lanes};"),
    "exit": _fixed("ret;"),
    "store flag": _store_flag,
    "load flag": _load_flag,
    "swap flag": _swap_flag,
    "poll flag": _poll_flag,
    "fence": _fixed("fence.{s.order}.cta;"),
    "init": _fixed("mbarrier.init.shared.b64 {object}, {s.number};"),
    "arrive phase": _arrive_phase,
    "drop phase": _fixed("mbarrier.arrive_drop.shared.b64 %rd5, {object};"),
    "wait phase": _wait_phase,
    "test phase": _test_phase,
    "expect": _fixed("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {object}, {s.number};"),
    "complete": _fixed("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 {object}, {s.number};"),
    "expect arrive": _fixed("mbarrier.arrive.expect_tx.shared.b64 %rd5, {object}, {s.number};"),
    "early arrive": _fixed("mbarrier.arrive.noComplete.shared.b64 %rd5, {object}, {s.number};"),
    "copies arrive": _copies_arrive,
    "bulk load": _bulk_load,
    "bulk store": _bulk_store,
    "bulk commit": _fixed("cp.async.bulk.commit_group;"),
    "bulk wait": _fixed("cp.async.bulk.wait_group{s.order} {s.number};"),
    "proxy fence": _fixed("fence.proxy.async;"),
    "wgmma": _wgmma,
    "wgmma commit": _fixed("wgmma.commit_group.sync.aligned;"),
    "wgmma wait": _fixed("wgmma.wait_group.sync.aligned {s.number};"),
}
"""The PTX of each kind of statement."""
