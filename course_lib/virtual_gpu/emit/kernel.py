"""Joins what the emitters write into one kernel's ``i32 step(ptr thread, ptr block)``."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.ptx.parse import BITS, Instruction, Label, Module
from course_lib.virtual_gpu import abi
from course_lib.virtual_gpu.emit import matrix, row_of
from course_lib.virtual_gpu.emit.builder import FLOATS, METADATA, Builder
from course_lib.virtual_gpu.emit.memory import space_word
from course_lib.virtual_gpu.emit.row import Row
from course_lib.virtual_gpu.flow import (
    CARRY,
    FlatKernel,
    Unsupported,
    analyse,
    flatten,
    uses_and_definitions,
)

_LOADS = ("ld", "ldu", "atom")
_POINTERS = {
    "shared": abi.B_SHARED,
    "parameters": abi.B_PARAMETERS,
    "table": abi.B_TABLE,
    "valid": abi.B_VALID,
    "local_base": abi.B_LOCAL,
}
_NUMBERS = {"shared_bytes": abi.B_SHARED_BYTES, "windows": abi.B_TABLE_COUNT}
_TIMED_POINTERS = {
    "stalls": abi.B_STALLS, "counters": abi.B_COUNTERS, "accesses": abi.B_ACCESSES,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Translation:
    """LLVM IR text of one kernel, and how large a thread's record must be."""

    ir: str
    thread_slots: int
    kernel: FlatKernel


def prepare(module: Module, name: str) -> FlatKernel:
    """Inlines and analyses a kernel: what the fast and the timed build share."""
    kernel = flatten(module, name)
    analyse(kernel)
    return kernel


def translate(kernel: FlatKernel, timed: bool, checked: int = 0) -> Translation:
    """Writes the IR.  Raises ``Unsupported`` with the name of an opcode that has no row."""
    builder = Builder(kernel, timed, checked)
    _reserve_for_matrices(builder)
    in_flight = _registers_in_flight(kernel) if timed else []
    for number, block in enumerate(kernel.blocks):
        builder.label(f"b{number}")
        builder.block = number
        builder.pending = set(kernel.names_in(in_flight[number])) if timed else set()
        _emit_block(builder, number, block.start, block.end)
    body, builder.lines = builder.lines, []
    _emit_entry(builder, body)
    declarations = "\n".join(builder.declared[name] for name in sorted(builder.declared))
    helpers = builder.helper_text()
    if "@llvm.fabs.f64(" in helpers and "llvm.fabs.f64" in builder.declared:
        declarations = declarations.replace(builder.declared["llvm.fabs.f64"], "")
    ir = "\n".join([*builder.lines, declarations, helpers, METADATA, ""])
    return Translation(ir, builder.live_base + builder.live_slots, kernel)


def _reserve_for_matrices(e: Builder) -> None:
    """Thread record: a payload, then a flag for each accumulator, then the live registers."""
    registers = matrix.accumulators(e.kernel)
    e.watched = {name: k for k, name in enumerate(registers)}
    e.flags_at = abi.T_LIVE + matrix.payload_slots(e.kernel, len(registers))
    e.live_base = e.flags_at + (-(-len(registers) // 8) if e.checked else 0)


def _emit_block(e: Builder, number: int, start: int, end: int) -> None:
    row: Row | None = None
    for item in e.kernel.code[start:end]:
        if isinstance(item, Label):
            continue
        row = row_of(item)
        e.site = item.site
        try:
            _emit_instruction(e, item, row)
        except Unsupported:
            raise
        except (
            LookupError,
            ValueError,
            TypeError,
            AttributeError,
            AssertionError,
            StopIteration,
        ) as error:
            raise Unsupported(
                f"{item.opcode} with these operands is not on the virtual GPU", item.site
            ) from error
    if row is None or not (row.ends_block or row.yields):
        e.flush()
        e.emit(f"br label %b{number + 1}")


def _emit_instruction(e: Builder, item: Instruction, row: Row) -> None:
    e.free = item.probe
    e.copying = item.family in ("mov", "wgmma")
    _charge(e, item, row)
    if row.ends_block or not item.predicate:
        row.emit(e, item)
        return
    done = f"b{e.block + 1}" if row.yields else e.new_label("skip")
    active = e.new_label("active")
    e.branch_if(item, active, done)
    e.label(active)
    before = set(e.pending)
    row.emit(e, item)
    if row.yields:
        return
    e.flush()
    e.pending |= before
    e.emit(f"br label %{done}")
    e.label(done)


def _charge(e: Builder, item: Instruction, row: Row) -> None:
    """Issue cost and counters; instructions of the clock stamps are free."""
    if not e.timed or item.probe:
        return
    kind = item.opcode.rpartition(".")[2]
    floating = kind in FLOATS
    cost = "free" if _is_folded(item) else row.cost
    if cost == "typed":
        cost = "integer"
        if floating:
            cost = {"f64": "float64", "f32": "float32"}.get(kind, "float16")
    if cost == "integer":
        cost = _integer_class(item)
    e.cost = [old + new for old, new in zip(e.cost, abi.ISSUE_COST[cost], strict=True)]
    e.count(abi.C_INSTRUCTIONS, 1)
    elements = 2 if kind.endswith("x2") else 1
    e.count(abi.C_FLOPS if floating else abi.C_INTEGER_OPS, row.operations * elements)


_ADDITIONS = {"add", "sub", "neg"}
_MULTIPLICATIONS = {"mul", "mad", "mul24", "mad24"}
_FOLDED = {"cvt.u64.u32", "cvt.u32.u64", "cvt.s64.s32"}


def _integer_class(item: Instruction) -> str:
    """Which pipe an integer instruction takes."""
    if item.family in _ADDITIONS:
        return "add"
    return "multiply" if item.family in _MULTIPLICATIONS else "integer"


def _is_folded(item: Instruction) -> bool:
    """Moves and widenings of registers become operands of other instructions in the assembler."""
    if item.family == "ld":
        return space_word(item) == "param"
    return item.family in ("mov", "cvta") or item.opcode in _FOLDED


def _registers_in_flight(kernel: FlatKernel) -> list[int]:
    """Per block, a mask of the registers that a load may still be filling where it begins."""
    bit = {name: 1 << k for k, name in enumerate(kernel.register_names)}
    summary = []
    for block in kernel.blocks:
        started = settled = 0
        for item in kernel.code[block.start : block.end]:
            if isinstance(item, Label):
                continue
            uses, definitions = uses_and_definitions(item)
            for name in (*uses, *definitions):
                settled |= bit[name]
                started &= ~bit[name]
            if item.family in _LOADS and space_word(item) not in ("param", "local"):
                for name in definitions:
                    started |= bit[name]
        summary.append((started, ~settled))
    entry = [0] * len(kernel.blocks)
    work = list(range(len(kernel.blocks)))
    while work:
        number = work.pop()
        started, kept = summary[number]
        out = started | (entry[number] & kept)
        for successor in kernel.blocks[number].successors:
            if out & ~entry[successor]:
                entry[successor] |= out
                work.append(successor)
    return entry


def _used_registers(kernel: FlatKernel) -> list[str]:
    used: dict[str, None] = {CARRY: None}
    for item in kernel.code:
        if isinstance(item, Instruction):
            for names in uses_and_definitions(item):
                used.update(dict.fromkeys(names))
    return list(used)


def _emit_entry(e: Builder, body: list[str]) -> None:
    """Stack slots, what stays constant during a launch, and the jump to the resume point."""
    e.lines.append("define i32 @step(ptr noalias %T, ptr noalias %B) nounwind {")
    e.label("entry")
    for name in _used_registers(e.kernel):
        e.emit(f"{e.slot(name)} = alloca i{BITS[e.types[name]]}")
    for name in sorted(e.pending_anywhere):
        e.emit(f"{e.ready_slot(name)} = alloca i64")
        e.emit(f"store i64 0, ptr {e.ready_slot(name)}")
    e.emit("%fuel = alloca i64")
    e.emit(f"store i64 {e.load_thread(abi.T_FUEL)}, ptr %fuel")
    pointers = {**_POINTERS, **(_TIMED_POINTERS if e.timed else {})}
    for name, slot in pointers.items():
        _load_constant(e, name, slot, "ptr")
    numbers = {**_NUMBERS, **({"shared_latency": abi.B_SHARED_LATENCY} if e.timed else {})}
    for name, slot in numbers.items():
        _load_constant(e, name, slot, "i64")
    e.emit(f"%global_windows = sub i64 %windows, {abi.WINDOW_PARAMETERS}")
    if e.timed:
        lane = e.load_thread(abi.T_LANE)
        e.emit(f"%own_accesses = mul i64 {lane}, {abi.ACCESS_LOG}")
    thread = e.load_thread(abi.T_THREAD)
    e.emit(f"%local_offset = mul i64 {thread}, {e.kernel.local_bytes}")
    e.emit("%local = getelementptr i8, ptr %local_base, i64 %local_offset")
    e.emit("%clk = alloca i64")
    e.emit(f"store i64 {e.load_thread(abi.T_CLOCK)}, ptr %clk")
    for name in e.kernel.live_registers(0):  # read before written: zero, never undefined
        e.emit(f"store i{e.register_bits(name)} 0, ptr {e.slot(name)}")
    resume = e.load_thread(abi.T_RESUME)
    cases = " ".join(f"i64 {k + 1}, label %{name}" for k, name in enumerate(e.resume_labels))
    e.emit(f"switch i64 {resume}, label %b0 [ {cases} ]")
    e.lines.extend(body)
    e.label("fault")
    e.leave(abi.Y_ERROR)
    e.label("exit")
    e.leave(abi.Y_EXIT)
    e.lines.append("}")


def _load_constant(e: Builder, name: str, slot: int, kind: str) -> None:
    pointer = e.t(f"getelementptr i64, ptr %B, i64 {slot}")
    e.emit(f"%{name} = load {kind}, ptr {pointer}, align 8, !invariant.load !1")
