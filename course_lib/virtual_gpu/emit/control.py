"""Branches, ends, faults, and the few functions that a kernel may call."""

from __future__ import annotations

from course_lib.ptx.parse import Address, Arguments, Instruction, Operand, Symbol
from course_lib.virtual_gpu import abi
from course_lib.virtual_gpu.emit.builder import Builder
from course_lib.virtual_gpu.emit.memory import nothing
from course_lib.virtual_gpu.emit.row import Row
from course_lib.virtual_gpu.flow import branch_blocks


def branch(e: Builder, i: Instruction) -> None:
    """bra, with a predicate perhaps."""
    target = branch_blocks(e.kernel, i)[0]
    if i.predicate:
        taken = e.new_label("taken")
        e.branch_if(i, taken, f"b{e.block + 1}")
        e.label(taken)
    e.flush()
    e.jump(target)


def branch_indexed(e: Builder, i: Instruction) -> None:
    """brx.idx: an index beyond the table is a fault.  Every target costs fuel: some go back."""
    targets = branch_blocks(e.kernel, i)
    if i.predicate:
        taken = e.new_label("taken")
        e.branch_if(i, taken, f"b{e.block + 1}")
        e.label(taken)
    index = e.value(i.operands[0], 32)
    e.flush()
    wild = e.new_label("wild")
    hops = {block: e.new_label("hop") for block in dict.fromkeys(targets)}
    cases = " ".join(f"i32 {k}, label %{hops[block]}" for k, block in enumerate(targets))
    e.emit(f"switch i32 {index}, label %{wild} [ {cases} ]")
    pending = set(e.pending)
    for block, hop in hops.items():
        e.label(hop)
        e.pending = set(pending)
        e.jump(block)
    e.label(wild)
    e.fail_unless("false", abi.F_BRANCH, e.resize(index, 32, 64), 0, 0, 0)
    e.emit("unreachable")


def leave(e: Builder, i: Instruction) -> None:
    """exit, and ret of the kernel."""
    e.flush()
    if i.predicate:
        e.branch_if(i, "exit", f"b{e.block + 1}")
    else:
        e.emit("br label %exit")


def trap(e: Builder, i: Instruction) -> None:
    e.fail_unless("false", abi.F_TRAP, "0", 0, 0, 0)


def _parameter(e: Builder, operand: Operand, bits: int) -> str:
    """The value of a call's parameter: those lie in local memory."""
    if not isinstance(operand, Symbol):
        return e.value(operand, bits)
    host, _, _ = e.pointer(Address(operand), bits // 8, "param", abi.ACCESS_READ)
    return e.t(f"load i{bits}, ptr {host}, align 1, !tbaa !14")


def print_formatted(e: Builder, i: Instruction) -> None:
    """vprintf(format, arguments) -> int."""
    _, results, arguments = i.operands
    assert isinstance(results, Arguments) and isinstance(arguments, Arguments)
    text, values = (_parameter(e, operand, 64) for operand in arguments.elements)
    printed = e.runtime("rt_printf", [text, values, str(e.site)])
    if results.elements:
        result = results.elements[0]
        if isinstance(result, Symbol):
            host, _, _ = e.pointer(Address(result), 4, "param", abi.ACCESS_WRITE)
            e.emit(f"store i32 {e.resize(printed, 64, 32)}, ptr {host}, align 1, !tbaa !14")
        else:
            e.set(result, printed, 64)


def assertion_failed(e: Builder, i: Instruction) -> None:
    """__assertfail(message, file, line, function, character size)."""
    arguments = i.operands[2]
    assert isinstance(arguments, Arguments)
    message, file, line, function = (
        _parameter(e, operand, bits)
        for operand, bits in zip(arguments.elements, (64, 64, 32, 64), strict=False)
    )
    e.store_thread(abi.T_A5, function)
    e.fail_unless("false", abi.F_ASSERT, message, file, e.resize(line, 32, 64), 0)


TABLE: dict[str, Row] = {
    "bra": Row(branch, defines=0, cost="control", operations=0, ends_block=True),
    "brx": Row(branch_indexed, defines=0, cost="control", operations=0, ends_block=True),
    "ret": Row(leave, defines=0, cost="control", operations=0, ends_block=True),
    "exit": Row(leave, defines=0, cost="control", operations=0, ends_block=True),
    "trap": Row(trap, defines=0, cost="control", operations=0),
    "brkpt": Row(trap, defines=0, cost="control", operations=0),
    "call.vprintf": Row(print_formatted, defines=0, cost="special", operations=0),
    "call.__assertfail": Row(assertion_failed, defines=0, cost="control", operations=0),
    "griddepcontrol": Row(nothing, defines=0, cost="control", operations=0),
    "pmevent": Row(nothing, defines=0, cost="control", operations=0),
}
