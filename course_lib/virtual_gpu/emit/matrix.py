"""Tensor cores: mma, wmma, ldmatrix, stmatrix and wgmma.

The instructions of a warp leave their registers in a payload of the thread record and yield; the
run-time computes when the whole warp has come. wgmma is a call: see ``virtual_gpu/wgmma.py``.
"""

from __future__ import annotations

import re

from course_lib.ptx.parse import Address, Immediate, Instruction, Negated, Operand, Register, Vector
from course_lib.virtual_gpu import abi
from course_lib.virtual_gpu.emit.builder import Builder
from course_lib.virtual_gpu.emit.memory import space_word
from course_lib.virtual_gpu.emit.row import Row
from course_lib.virtual_gpu.flow import FlatKernel

# --- payload and accumulators ---------------------------------------------------------------------


def accumulators(kernel: FlatKernel) -> list[str]:
    """Registers that may hold accumulators in flight: those of wgmma, and what moves copy them to.

    Whichever way control flows; a register too many costs a comparison at each wait.
    """
    found: dict[str, None] = {}
    moves: dict[str, list[str]] = {}
    for item in kernel.code:
        if not isinstance(item, Instruction):
            continue
        if is_wgmma(item):
            found.update(dict.fromkeys(_names(item.operands[0])))
        elif is_move(item):
            target, source = item.operands
            assert isinstance(target, Register) and isinstance(source, Register)
            moves.setdefault(source.name, []).append(target.name)
    work = list(found)
    while work:
        for copy in moves.get(work.pop(), ()):
            if copy not in found:
                found[copy] = None
                work.append(copy)
    return list(found)


def is_wgmma(item: Instruction) -> bool:
    return item.opcode.startswith("wgmma.mma_async")


def is_move(item: Instruction) -> bool:
    """A copy of a 32-bit register, as compilers make them."""
    return (
        item.family == "mov"
        and len(item.operands) == 2
        and all(isinstance(operand, Register) for operand in item.operands)
        and item.opcode.rpartition(".")[2] in ("b32", "u32", "s32", "f32")
    )


def payload_slots(kernel: FlatKernel, registers: int) -> int:
    """64-bit slots of the thread record that matrix instructions need; 0 where there are none."""
    families = {item.family for item in kernel.code if isinstance(item, Instruction)}
    words = 0
    if families & {"mma", "wmma", "ldmatrix", "stmatrix"}:
        words = abi.MATRIX_WORDS
    if "wgmma" in families:
        words = max(words, 128 + 4, registers)
    return -(-words // 2)


def _names(operand: Operand) -> list[str]:
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    return [element.name for element in elements if isinstance(element, Register)]


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _word(e: Builder, index: int) -> str:
    """Pointer to a 32-bit word of the payload."""
    return e.t(f"getelementptr i32, ptr {e.thread_slot(abi.T_LIVE)}, i64 {index}")


def _put(e: Builder, index: int, value: str) -> None:
    e.emit(f"store i32 {value}, ptr {_word(e, index)}, align 4, !tbaa !10")


def _get(e: Builder, index: int) -> str:
    return e.t(f"load i32, ptr {_word(e, index)}, align 4, !tbaa !10")


def _payload(e: Builder) -> str:
    return e.t(f"ptrtoint ptr {e.thread_slot(abi.T_LIVE)} to i64")


# --- instructions of a warp -----------------------------------------------------------------------


def _leave(e: Builder, kind: int, form: int, results: tuple[Operand, ...]) -> None:
    """Yield to the run-time, which fills the results."""
    e.store_thread(abi.T_A0, kind)
    e.store_thread(abi.T_A1, form)
    e.store_thread(abi.T_A5, _payload(e))
    first = 2 * abi.T_LIVE + abi.MATRIX_RESULTS
    e.yield_to(
        abi.Y_MATRIX,
        e.block + 1,
        [],
        [(register, first + k) for k, register in enumerate(results)],
    )


def _form(e: Builder, i: Instruction, kinds: tuple[str, ...]) -> int:
    """Flags of the types (D, A, B, C) of a product; refuses others by name."""
    of_d, of_a, of_b, of_c = kinds
    halves = of_a == of_b and of_a in ("f16", "bf16")
    sums = {of_d, of_c} <= {"f32", "f16"} and (of_a == "f16" or {of_d, of_c} == {"f32"})
    if not halves or not sums:
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    form = abi.FORM_BFLOAT if of_a == "bf16" else 0
    form |= abi.FORM_HALF_SUM if of_c == "f16" else 0
    return form | (abi.FORM_HALF_RESULT if of_d == "f16" else 0)


def mma(e: Builder, i: Instruction) -> None:
    """mma.sync.aligned.m16n8k16 and .m16n8k8 of f16 or bf16."""
    match = re.fullmatch(
        r"mma\.sync\.aligned\.m16n8k(16|8)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.(\w+)", i.opcode
    )
    if match is None:
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    form = _form(e, i, match.groups()[1:])
    form |= abi.FORM_K8 if match.group(1) == "8" else 0
    words = [word for operand in i.operands[1:4] for word in _elements(operand)]
    for k, word in enumerate(words):
        _put(e, k, e.value(word, 32))
    _leave(e, abi.MATRIX_MMA, form, _elements(i.operands[0]))


def wmma_product(e: Builder, i: Instruction) -> None:
    """wmma.mma.sync.aligned.(layouts).m16n16k16.(D).(C) of f16."""
    match = re.fullmatch(
        r"wmma\.mma\.sync\.aligned\.\w+\.\w+\.m16n16k16\.(f32|f16)\.(f32|f16)", i.opcode
    )
    if match is None:
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    form = _form(e, i, (match.group(1), "f16", "f16", match.group(2)))
    words = [word for operand in i.operands[1:4] for word in _elements(operand)]
    for k, word in enumerate(words):
        _put(e, k, e.value(word, 32))
    _leave(e, abi.MATRIX_WMMA, form, _elements(i.operands[0]))


def matrix_rows(e: Builder, i: Instruction) -> None:
    """ldmatrix and stmatrix .m8n8 .x1/.x2/.x4 {.trans} .shared.b16."""
    loads = i.family == "ldmatrix"
    count = next((n for word, n in (("x1", 1), ("x2", 2), ("x4", 4)) if word in i.modifiers), 0)
    if "m8n8" not in i.modifiers or i.modifiers[-1] != "b16" or count == 0:
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    values, address = (i.operands[0], i.operands[1]) if loads else (i.operands[1], i.operands[0])
    if not isinstance(address, Address):
        raise e.unsupported(f"{i.opcode} without an address")
    if not loads:
        for k, word in enumerate(_elements(values)):
            _put(e, k, e.value(word, 32))
    e.store_thread(abi.T_A2, int("trans" in i.modifiers))
    e.store_thread(abi.T_A3, e.offset_32(address))
    kind = abi.MATRIX_LOAD if loads else abi.MATRIX_STORE
    _leave(e, kind, count, _elements(values) if loads else ())


# --- wmma: loads and stores, each lane its own ----------------------------------------------------


def _lane_part(e: Builder, shift: int, mask: int) -> str:
    lane = e.load_thread(abi.T_LANE)
    shifted = e.t(f"lshr i64 {lane}, {shift}")
    return e.t(f"and i64 {shifted}, {mask}")


def _places(e: Builder, i: Instruction, matrix: str, size: int) -> tuple[list[str], str]:
    """(byte offset of each of a lane's elements, or of the first alone where they lie in a row).

    The second value is "row" where they lie in a row.
    """
    leading = e.resize(e.value(i.operands[-1], 32), 32, 64) if len(i.operands) > 2 else "16"
    across = "col" if matrix == "b" else "row"
    if matrix in "ab":
        line, first, count = _lane_part(e, 0, 15), "0", 16
    else:
        line, first, count = _lane_part(e, 1, 15), e.t(f"shl i64 {_lane_part(e, 0, 1)}, 3"), 8
    if across in i.modifiers:
        at = e.t(f"add i64 {e.t(f'mul i64 {line}, {leading}')}, {first}")
        return [e.t(f"mul i64 {at}, {size}")], "row"
    found = []
    for k in range(count):
        row = e.t(f"add i64 {first}, {k}")
        at = e.t(f"add i64 {e.t(f'mul i64 {row}, {leading}')}, {line}")
        found.append(e.t(f"mul i64 {at}, {size}"))
    return found, "column"


def _host(e: Builder, address: Address, declared: str, delta: str, size: int, access: int) -> str:
    """Host pointer of `size` bytes at an address plus a computed offset, checked and tracked."""
    space = e.space_of(address, declared)
    if space == "shared":
        offset = e.t(f"add i64 {e.offset_32(address)}, {delta}")
        e.check_offset(offset, size, size, "shared", access)
        e.track_shared(offset, size, access)
        e.check_shared(offset, size, access)
        return e.t(f"getelementptr i8, ptr %shared, i64 {offset}")
    if space not in ("global", ""):
        raise e.unsupported(f"wmma on {space} memory")
    value = e.t(f"add i64 {e.address_64(address)}, {delta}")
    host = e.check_window(value, size, size, access, space == "")
    e.check_global(value, size, access)
    return e.generic_pointer(value, host, size, access) if space == "" else host


def _wmma_shape(e: Builder, i: Instruction, matrix: str) -> str:
    kind = i.modifiers[-1]
    known = ("f16",) if matrix in "ab" else ("f16", "f32")
    if "m16n16k16" not in i.modifiers or kind not in known:
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    return kind


def wmma_load(e: Builder, i: Instruction) -> None:
    """wmma.load.{a,b,c}: 16 halves of a row of A or column of B, or 8 elements of a row of C."""
    matrix = i.modifiers[1]
    kind = _wmma_shape(e, i, matrix)
    registers, address = _elements(i.operands[0]), i.operands[1]
    assert isinstance(address, Address)
    size = 4 if kind == "f32" else 2
    places, along = _places(e, i, matrix, size)
    words: list[str] = []
    if along == "row":
        for k in range(0, 4 * len(registers), 16):
            delta = e.t(f"add i64 {places[0]}, {k}")
            host = _host(e, address, space_word(i), delta, 16, abi.ACCESS_READ)
            for part in range(4):
                at = e.t(f"getelementptr i32, ptr {host}, i64 {part}")
                words.append(e.t(f"load i32, ptr {at}, align 4"))
    else:
        values = []
        for place in places:
            host = _host(e, address, space_word(i), place, size, abi.ACCESS_READ)
            values.append(e.resize(e.t(f"load i{8 * size}, ptr {host}"), 8 * size, 32))
        words = (
            values
            if size == 4
            else [_packed(e, *values[k : k + 2]) for k in range(0, len(values), 2)]
        )
    for register, word in zip(registers, words, strict=True):
        e.set(register, word, 32)


def _packed(e: Builder, low: str, high: str) -> str:
    return e.t(f"or i32 {low}, {e.t(f'shl i32 {high}, 16')}")


def wmma_store(e: Builder, i: Instruction) -> None:
    """wmma.store.d."""
    kind = _wmma_shape(e, i, "d")
    address = i.operands[0]
    assert isinstance(address, Address)
    words = [e.value(word, 32) for word in _elements(i.operands[1])]
    size = 4 if kind == "f32" else 2
    places, along = _places(e, i, "d", size)
    if along == "row":
        for k in range(0, len(words), 4):
            delta = e.t(f"add i64 {places[0]}, {4 * k}")
            host = _host(e, address, space_word(i), delta, 16, abi.ACCESS_WRITE)
            for part, word in enumerate(words[k : k + 4]):
                at = e.t(f"getelementptr i32, ptr {host}, i64 {part}")
                e.emit(f"store i32 {word}, ptr {at}, align 4")
        return
    for k, place in enumerate(places):
        host = _host(e, address, space_word(i), place, size, abi.ACCESS_WRITE)
        value = words[k] if size == 4 else e.t(f"lshr i32 {words[k // 2]}, {16 * (k % 2)}")
        e.emit(f"store i{8 * size} {e.resize(value, 32, 8 * size)}, ptr {host}")


# --- wgmma ----------------------------------------------------------------------------------------

_WGMMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(f16|bf16)\.\2")


def _constant(e: Builder, operand: Operand) -> int:
    if isinstance(operand, Negated) and isinstance(operand.operand, Immediate):
        return -operand.operand.value
    if not isinstance(operand, Immediate):
        raise e.unsupported("wgmma with a modifier that is no constant")
    return operand.value


def _negative(value: int) -> bool:
    return value in (-1, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)


def wgmma(e: Builder, i: Instruction) -> None:
    """wgmma.mma_async m64nNk16: accumulators go in flight; A from shared memory or registers."""
    match = _WGMMA.fullmatch(i.opcode)
    if match is None:
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    n = int(match.group(1))
    sums, a, b = _elements(i.operands[0]), i.operands[1], i.operands[2]
    if not 8 <= n <= 256 or n % 8 or len(sums) != n // 2:
        raise e.unsupported(f"{i.opcode} with {len(sums)} accumulators")
    if e.checked:
        _check_fence(e, sums)
    for k, register in enumerate(sums):
        _put(e, k, e.value(register, 32))
    held = isinstance(a, Vector)
    if held:
        for k, word in enumerate(_elements(a)):
            _put(e, n // 2 + k, e.value(word, 32))
    shape = _wgmma_shape(e, i, n, match.group(2), held)
    left = "0" if held else e.value(a, 64)
    first = e.runtime("rt_wgmma", [_payload(e), left, e.value(b, 64), shape, str(e.site)])
    _retry_unless(e, e.t(f"icmp ne i64 {first}, -1"))
    issued = e.t(f"icmp sge i64 {first}, 0")
    code = e.t(f"sub i64 0, {first}")
    e.fail_unless(issued, code, left, e.value(b, 64), 0, 0)  # type: ignore[arg-type]
    mark = e.t(f"or i32 {e.resize(first, 64, 32)}, {abi.IN_FLIGHT << abi.IN_FLIGHT_SHIFT}")
    for k, register in enumerate(sums):
        e.set(register, e.t(f"add i32 {mark}, {k}"), 32)
    e.flush()
    e.emit(f"br label %b{e.block + 1}")


def _wgmma_shape(e: Builder, i: Instruction, n: int, kind: str, held: bool) -> str:
    """n and flags; scale-d may be a predicate."""
    scale, *rest = i.operands[3:]
    constants = [_constant(e, operand) for operand in rest]
    signs, transposed = constants[:2], constants[2:]
    flags = n | (abi.WGMMA_BFLOAT if kind == "bf16" else 0) | (abi.WGMMA_A_HELD if held else 0)
    if sum(_negative(sign) for sign in signs) == 1:
        flags |= abi.WGMMA_NEGATIVE
    if transposed and not held:
        flags |= abi.WGMMA_A_ACROSS if transposed[0] else 0
    if transposed:
        flags |= abi.WGMMA_B_ACROSS if transposed[-1] else 0
    if isinstance(scale, Immediate):
        return str(flags | (abi.WGMMA_ADD if scale.value else 0))
    adds = e.value(scale, 1)
    return e.t(f"select i1 {adds}, i64 {flags | abi.WGMMA_ADD}, i64 {flags}")


def _retry_unless(e: Builder, ready: str) -> None:
    """Yield, and execute this instruction again, where others have to come first."""
    go, blocked = e.new_label("go"), e.new_label("blocked")
    e.emit(f"br i1 {ready}, label %{go}, label %{blocked}, !prof !0")
    e.label(blocked)
    e.yield_to(abi.Y_WGMMA, e.block)
    e.label(go)


def wgmma_fence(e: Builder, i: Instruction) -> None:
    """wgmma.fence: what was done to accumulators before comes before the wgmma that follow."""
    if e.checked and e.watched:
        for index in range(len(e.watched)):
            e.emit(f"store i8 0, ptr {e.touched_flag(index)}")


def _check_fence(e: Builder, sums: tuple[Operand, ...]) -> None:
    """Accumulators that were read or changed, by more than a move, since the last fence."""
    together = "0"
    for name in (r.name for r in sums if isinstance(r, Register)):
        flag = e.t(f"load i8, ptr {e.touched_flag(e.watched[name])}")
        together = e.t(f"or i8 {together}, {flag}")
    good, bad = e.new_label("fenced"), e.new_label("unfenced")
    e.emit(f"br i1 {e.t(f'icmp eq i8 {together}, 0')}, label %{good}, label %{bad}, !prof !0")
    e.label(bad)
    e.runtime("rt_accumulator", ["2", "0", str(e.site)], False)
    e.emit(f"br label %{good}")
    e.label(good)


def wgmma_commit(e: Builder, i: Instruction) -> None:
    e.runtime("rt_wgmma_commit", [])


def wgmma_wait(e: Builder, i: Instruction) -> None:
    """wgmma.wait_group: results of complete groups come into their registers."""
    allowed = max(_constant(e, i.operands[0]), 0)
    ready = e.runtime("rt_wgmma_wait", [str(allowed), str(e.site)])
    _retry_unless(e, e.t(f"icmp ne i64 {ready}, 0"))
    live = [name for name in e.kernel.live_registers(e.block + 1) if name in e.watched]
    if live:
        for k, name in enumerate(live):
            _put(e, k, e.t(f"load i32, ptr {e.slot(name)}"))
        e.runtime("rt_wgmma_resolve", [_payload(e), str(len(live))], False)
        for k, name in enumerate(live):
            e.emit(f"store i32 {_get(e, k)}, ptr {e.slot(name)}")
    e.flush()
    e.emit(f"br label %b{e.block + 1}")


TABLE: dict[str, Row] = {
    "mma": Row(mma, cost="warp", operations=0, yields=True),
    "ldmatrix": Row(matrix_rows, cost="memory", operations=0, yields=True),
    "stmatrix": Row(matrix_rows, defines=0, cost="memory", operations=0, yields=True),
    "wmma.mma": Row(wmma_product, cost="warp", operations=0, yields=True),
    "wmma.load": Row(wmma_load, cost="memory", operations=0),
    "wmma.store": Row(wmma_store, defines=0, cost="memory", operations=0),
    # Its accumulators are read too, so none of its operands counts as written alone.
    "wgmma.mma_async": Row(wgmma, defines=0, cost="warp", operations=0, yields=True),
    "wgmma.fence": Row(wgmma_fence, defines=0, cost="control", operations=0),
    "wgmma.commit_group": Row(wgmma_commit, defines=0, cost="control", operations=0),
    "wgmma.wait_group": Row(wgmma_wait, defines=0, cost="control", operations=0, yields=True),
}
