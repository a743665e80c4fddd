"""mbarrier.*: the run-time does the work, and negative answers of it are faults.

A wait yields always: the scheduler tests the phase, and holds the thread back until it is over.
"""

from __future__ import annotations

from course_lib.ptx.parse import Address, Instruction, Operand, Register
from course_lib.virtual_gpu import abi
from course_lib.virtual_gpu.emit.builder import Builder
from course_lib.virtual_gpu.emit.memory import space_word
from course_lib.virtual_gpu.emit.row import Row

DROP, RELAXED = 1, 2


def shared_offset(e: Builder, i: Instruction, operand: Operand) -> str:
    """An address in shared memory, given as such or as a generic one, as an i64 offset.

    What a generic address of another space becomes lies far outside, and the run-time says so.
    """
    if not isinstance(operand, Address):
        raise e.unsupported(f"{i.opcode} without an address")
    if e.space_of(operand, space_word(i)) == "shared":
        return e.offset_32(operand)
    return e.t(f"sub i64 {e.address_64(operand)}, {abi.WINDOW_SHARED << abi.WINDOW_SHIFT}")


def answered(
    e: Builder, answer: str, code: int, offset: str, size: str = "0", address: str = "0"
) -> str:
    """The answer of the run-time where it is none of its refusals; else the thread ends here.

    What a report needs lies in A1 to A4: shared offset, answer, bytes and global address.
    """
    ok = e.t(f"icmp sge i64 {answer}, 0")
    e.fail_unless(ok, code, offset, answer, size, address)
    return answer


def call(e: Builder, name: str, offset: str, *arguments: str) -> str:
    answer = e.runtime(name, [offset, *arguments, str(e.site)])
    return answered(e, answer, abi.F_MBARRIER, offset)


def initialise(e: Builder, i: Instruction) -> None:
    count = e.resize(e.value(i.operands[1], 32), 32, 64)
    call(e, "rt_mbarrier_init", shared_offset(e, i, i.operands[0]), count)


def invalidate(e: Builder, i: Instruction) -> None:
    call(e, "rt_mbarrier_inval", shared_offset(e, i, i.operands[0]))


def arrive(e: Builder, i: Instruction) -> None:
    """mbarrier.arrive and arrive_drop, with .expect_tx too: state, [address] {, count or bytes}."""
    operands = list(i.operands)
    state: Operand = Register("_")
    if not isinstance(operands[0], Address):
        state = operands.pop(0)
    offset = shared_offset(e, i, operands[0])
    extra = e.resize(e.value(operands[1], 32), 32, 64) if len(operands) > 1 else "1"
    if "expect_tx" in i.modifiers:
        call(e, "rt_mbarrier_tx", offset, extra)
        extra = "1"
    flags = RELAXED if "relaxed" in i.modifiers else 0
    flags |= DROP if i.opcode.startswith("mbarrier.arrive_drop") else 0
    token = call(e, "rt_mbarrier_arrive", offset, extra, str(flags))
    e.set(state, token, 64)


def transactions(e: Builder, i: Instruction) -> None:
    """mbarrier.expect_tx and complete_tx without an arrival."""
    offset = shared_offset(e, i, i.operands[0])
    count = e.resize(e.value(i.operands[1], 32), 32, 64)
    if i.opcode.startswith("mbarrier.complete_tx"):
        count = e.t(f"sub i64 0, {count}")
    call(e, "rt_mbarrier_tx", offset, count)


def wait(e: Builder, i: Instruction) -> None:
    """mbarrier.test_wait and try_wait: done, [address], state or parity {, time limit}."""
    by_parity = "parity" in i.modifiers
    bits = 32 if by_parity else 64
    operand = e.resize(e.value(i.operands[2], bits), bits, 64)
    e.store_thread(abi.T_A0, shared_offset(e, i, i.operands[1]))
    e.store_thread(abi.T_A1, operand)
    e.store_thread(abi.T_A2, int(by_parity))
    e.store_thread(abi.T_A3, int(i.opcode.startswith("mbarrier.try_wait")))
    e.store_thread(abi.T_A4, int("relaxed" in i.modifiers))
    e.yield_to(abi.Y_MBARRIER, e.block + 1, [(i.operands[0], abi.T_R0, 1)])


def pending_count(e: Builder, i: Instruction) -> None:
    token = e.value(i.operands[1], 64)
    e.set(i.operands[0], e.t(f"and i64 {token}, {(1 << 24) - 1}"), 64)


def _row(emit, defines: int = 0, yields: bool = False) -> Row:
    return Row(emit, defines=defines, cost="warp", operations=0, yields=yields)


TABLE: dict[str, Row] = {
    "mbarrier.init": _row(initialise),
    "mbarrier.inval": _row(invalidate),
    "mbarrier.arrive": Row(arrive, defines="memory", cost="warp", operations=0),
    "mbarrier.arrive_drop": Row(arrive, defines="memory", cost="warp", operations=0),
    "mbarrier.expect_tx": _row(transactions),
    "mbarrier.complete_tx": _row(transactions),
    "mbarrier.test_wait": _row(wait, 1, yields=True),
    "mbarrier.try_wait": _row(wait, 1, yields=True),
    "mbarrier.pending_count": _row(pending_count, 1),
}
