"""What threads do together: barriers, shuffles, votes.  Each of these yields to the scheduler."""

from __future__ import annotations

from course_lib.ptx.parse import BITS, Immediate, Instruction, Operand, Pair, Register
from course_lib.virtual_gpu import abi
from course_lib.virtual_gpu.emit.builder import Builder, is_signed
from course_lib.virtual_gpu.emit.integer import kind_of
from course_lib.virtual_gpu.emit.memory import nothing
from course_lib.virtual_gpu.emit.row import Row


def _argument(e: Builder, slot: int, value: str, bits: int) -> None:
    e.store_thread(slot, e.resize(value, bits, 64))


def _yield(e: Builder, reason: int, results: list[tuple[Operand, int, int]] | None = None) -> None:
    e.yield_to(reason, e.block + 1, results or [])


def barrier(e: Builder, i: Instruction) -> None:
    """bar / barrier: .sync, .arrive, and .red with a predicate over all threads."""
    if "cluster" in i.modifiers:
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    operands, reduces = list(i.operands), "red" in i.modifiers
    target: Operand | None = operands.pop(0) if reduces else None
    operation = abi.REDUCE_NONE
    if reduces:
        operation = next(
            code
            for word, code in (
                ("popc", abi.REDUCE_POPC), ("and", abi.REDUCE_AND), ("or", abi.REDUCE_OR),
            )
            if word in i.modifiers
        )  # fmt: skip
        _argument(e, abi.T_A2, e.value(operands.pop(), 1), 1)
    identifier = e.value(operands[0], 32)
    if isinstance(operands[0], Immediate) and not 0 <= operands[0].value < 16:
        raise e.unsupported(f"barrier {operands[0].value}: a block has barriers 0 to 15")
    if not identifier.isdigit():
        inside = e.t(f"icmp ult i32 {identifier}, 16")
        e.fail_unless(inside, abi.F_BARRIER, e.resize(identifier, 32, 64), 0, 0, 0)
    _argument(e, abi.T_A0, identifier, 32)
    e.store_thread(abi.T_A3, operation)
    if len(operands) > 1:
        _argument(e, abi.T_A1, e.value(operands[1], 32), 32)
    else:
        e.store_thread(abi.T_A1, 0)
    results: list[tuple[Operand, int, int]] = []
    if isinstance(target, Register):
        results = [(target, abi.T_R0, 1 if e.register_bits(target.name) == 1 else 32)]
    _yield(e, abi.Y_ARRIVE if "arrive" in i.modifiers else abi.Y_BARRIER, results)


def warp_barrier(e: Builder, i: Instruction) -> None:
    """bar.warp.sync: __syncwarp."""
    _argument(e, abi.T_A4, e.value(i.operands[0], 32), 32)
    _yield(e, abi.Y_SYNCWARP)


_SHUFFLES = {
    "up": abi.SHUFFLE_UP, "down": abi.SHUFFLE_DOWN, "bfly": abi.SHUFFLE_BFLY,
    "idx": abi.SHUFFLE_IDX,
}  # fmt: skip


def shuffle(e: Builder, i: Instruction) -> None:
    mode = next((code for word, code in _SHUFFLES.items() if word in i.modifiers), None)
    if mode is None or len(i.operands) < 5:
        raise e.unsupported(f"{i.opcode}: only the .sync form is known")
    values = [e.value(operand, 32) for operand in i.operands[1:5]]
    e.store_thread(abi.T_A0, mode)
    for slot, value in zip((abi.T_A1, abi.T_A2, abi.T_A3, abi.T_A4), values, strict=False):
        _argument(e, slot, value, 32)
    _yield(e, abi.Y_SHUFFLE, _two_results(i.operands[0], 32))


def _two_results(target: Operand, bits: int) -> list[tuple[Operand, int, int]]:
    if isinstance(target, Pair):
        return [(target.first, abi.T_R0, bits), (target.second, abi.T_R1, 1)]
    return [(target, abi.T_R0, bits)]


def vote(e: Builder, i: Instruction) -> None:
    modes = {
        "ballot": abi.VOTE_BALLOT, "any": abi.VOTE_ANY, "all": abi.VOTE_ALL, "uni": abi.VOTE_UNI,
    }  # fmt: skip
    mode = next((code for word, code in modes.items() if word in i.modifiers), None)
    if mode is None or "sync" not in i.modifiers:
        raise e.unsupported(f"{i.opcode}: only the .sync form is known")
    predicate, members = e.value(i.operands[1], 1), e.value(i.operands[2], 32)
    bits = 32 if mode == abi.VOTE_BALLOT else 1
    _collective(e, mode, e.resize(predicate, 1, 64), members, [(i.operands[0], abi.T_R0, bits)])


def _collective(
    e: Builder, mode: int, value: str, members: str, results: list[tuple[Operand, int, int]]
) -> None:
    e.store_thread(abi.T_A0, mode)
    e.store_thread(abi.T_A1, value)
    _argument(e, abi.T_A4, members, 32)
    _yield(e, abi.Y_VOTE, results)


def match(e: Builder, i: Instruction) -> None:
    bits = BITS[kind_of(i)]
    mode = abi.MATCH_ANY if "any" in i.modifiers else abi.MATCH_ALL
    value, members = e.value(i.operands[1], bits), e.value(i.operands[2], 32)
    _collective(e, mode, e.resize(value, bits, 64), members, _two_results(i.operands[0], 32))


def active_mask(e: Builder, i: Instruction) -> None:
    _collective(e, abi.ACTIVE_MASK, "1", "0", [(i.operands[0], abi.T_R0, 32)])


def elect(e: Builder, i: Instruction) -> None:
    members = e.value(i.operands[1], 32)
    _collective(e, abi.ELECT, "0", members, _two_results(i.operands[0], 32))


_REDUCTIONS = {
    "add": abi.REDUX_ADD, "min": abi.REDUX_MIN, "max": abi.REDUX_MAX, "and": abi.REDUX_AND,
    "or": abi.REDUX_OR, "xor": abi.REDUX_XOR,
}  # fmt: skip


def reduce(e: Builder, i: Instruction) -> None:
    """redux.sync."""
    mode = next((code for word, code in _REDUCTIONS.items() if word in i.modifiers), None)
    kind = kind_of(i)
    if mode is None or kind not in ("u32", "s32", "b32"):
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    signed = is_signed(kind)
    value = e.resize(e.value(i.operands[1], 32), 32, 64, signed)
    members = e.value(i.operands[2], 32)
    mode += abi.REDUX_SIGNED if signed else 0
    _collective(e, mode, value, members, [(i.operands[0], abi.T_R0, 32)])


def sleep(e: Builder, i: Instruction) -> None:
    _argument(e, abi.T_A0, e.value(i.operands[0], 32), 32)
    _yield(e, abi.Y_SLEEP)


def _row(emit, defines: int = 1) -> Row:
    return Row(emit, defines=defines, cost="warp", operations=0, yields=True)


TABLE: dict[str, Row] = {
    "bar": _row(barrier, 0),
    "bar.red": _row(barrier),
    "bar.cta.red": _row(barrier),
    "bar.warp": _row(warp_barrier, 0),
    "barrier": _row(barrier, 0),
    "barrier.red": _row(barrier),
    "barrier.cta.red": _row(barrier),
    "shfl": _row(shuffle),
    "vote": _row(vote),
    "match": _row(match),
    "activemask": _row(active_mask),
    "elect": _row(elect),
    "redux": _row(reduce),
    "nanosleep": _row(sleep, 0),
    "setmaxnreg": Row(nothing, defines=0, cost="control", operations=0),
}
