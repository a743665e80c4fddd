"""Loads, stores and atomics on every state space."""

from __future__ import annotations

from course_lib.ptx.parse import BITS, Address, Instruction, Operand, Register, Vector
from course_lib.virtual_gpu import abi, shadow
from course_lib.virtual_gpu.emit.builder import Builder, is_float, is_signed
from course_lib.virtual_gpu.emit.integer import kind_of
from course_lib.virtual_gpu.emit.row import Row
from course_lib.virtual_gpu.flow import Unsupported

_SPACES = ("shared", "global", "local", "param", "const")


def space_word(i: Instruction) -> str:
    """The state space in an opcode ("shared::cta" is shared); empty for generic."""
    for word in i.modifiers:
        space = word.partition("::")[0]
        if space in _SPACES:
            return space
    return ""


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _address(e: Builder, operand: Operand) -> Address:
    if not isinstance(operand, Address):
        raise e.unsupported("an access without an address")
    return operand


def memory_kind(i: Instruction) -> str:
    """The type of an access, which has whole bytes."""
    kind = kind_of(i)
    if BITS[kind] < 8:
        raise Unsupported(f"{i.opcode}: predicates cannot be in memory", i.site)
    return kind


def _volatile(i: Instruction) -> str:
    """What other blocks may change meanwhile must be read again each time."""
    words = i.modifiers
    return "volatile " if any(w in words for w in ("volatile", "relaxed", "acquire")) else ""


def is_strong(i: Instruction) -> bool:
    """Volatile, relaxed, acquire and release accesses are strong (PTX ISA, memory model)."""
    return any(word in shadow.STRONG for word in i.modifiers)


def _data_only(e: Builder, i: Instruction) -> bool:
    """Is it a volatile access in a kernel that decides nothing by one? Then it signals nothing."""
    return e.volatile_is_data and "volatile" in i.modifiers


def holds_blocks(i: Instruction) -> bool:
    """Does the scope of a strong access or fence hold other blocks? Ours has clusters of one."""
    return not any(word in ("cta", "cluster") for word in i.modifiers)


def _strong_flags(e: Builder, i: Instruction, flags: int) -> int:
    """Flags of a strong access; between blocks its scope matters too."""
    device = e.checked == abi.CHECK_GLOBAL and holds_blocks(i)
    return flags | (shadow.DEVICE_SCOPE if device else 0)


def order_word(e: Builder, i: Instruction, space: str, address: str, what: str) -> None:
    """Checked build: a strong access may order threads through its word."""
    if not e.orders_words or e.free or space not in ("shared", "global", ""):
        return
    words = i.modifiers
    order = 0
    if "acquire" in words or "acq_rel" in words:
        order |= abi.ORDER_ACQUIRE
    if "release" in words or "acq_rel" in words:
        order |= abi.ORDER_RELEASE
    if holds_blocks(i):
        order |= abi.ORDER_DEVICE
    if space == "shared":
        address = e.t(f"or i64 {address}, {abi.WINDOW_SHARED << abi.WINDOW_SHIFT}")
    e.runtime("rt_order_word", [address, what, str(order)], False)


def fence(e: Builder, i: Instruction) -> None:
    """fence and membar: no effect on the result of a run, but on what it orders.

    Every scope holds the block, so each fence orders its threads. fence.mbarrier_init orders the
    initialisation alone, fence.proxy of other proxies nothing, that of the async proxy the memory
    that it names.
    """
    if not e.checked or e.free or "mbarrier_init" in i.modifiers:
        return
    if "proxy" not in i.modifiers:
        e.runtime("rt_order_fence", [str(int(holds_blocks(i)))], False)
    elif any(w.startswith("async") for w in i.modifiers):
        other = "shared" if e.checked == abi.CHECK_GLOBAL else "global"
        if not any(w.startswith(other) for w in i.modifiers):
            e.runtime("rt_order_proxies", [], False)


def _vector_width(e: Builder, i: Instruction, elements: tuple[Operand, ...]) -> int:
    for word, count in (("v2", 2), ("v4", 4), ("v8", 8)):
        if word in i.modifiers:
            if len(elements) != count:
                raise e.unsupported(f"{i.opcode} with {len(elements)} elements")
            return count
    if len(elements) != 1:
        raise e.unsupported(f"{i.opcode} of a vector")
    return 1


def load(e: Builder, i: Instruction) -> None:
    """ld: registers that a global or shared load fills are in flight for a while (timed build)."""
    kind = memory_kind(i)
    size = BITS[kind] // 8
    elements = _elements(i.operands[0])
    count = _vector_width(e, i, elements)
    strong = is_strong(i) and not _data_only(e, i)
    e.access_flags = _strong_flags(e, i, shadow.STRONG_READ) if strong else 0
    host, space, address = e.pointer(
        _address(e, i.operands[1]), size * count, space_word(i), abi.ACCESS_READ
    )
    e.access_flags = 0
    if strong:
        order_word(e, i, space, address, str(abi.WORD_LOAD))
    ready = _load_ready(e, space, address, size * count)
    values = []
    for k in range(count):
        at = e.t(f"getelementptr i8, ptr {host}, i64 {k * size}") if k else host
        alignment = size if space in ("shared", "local") else 1
        values.append(
            e.t(
                f"load {_volatile(i)}i{8 * size}, ptr {at}, align {alignment}"
                + (", !invariant.load !1" if space == "param" else e.alias(space))
            )
        )
    for element, value in zip(elements, values, strict=False):
        e.set(element, value, 8 * size, is_signed(kind))
    if ready:
        e.loaded(elements, ready)


def _load_ready(e: Builder, space: str, address: str, size: int) -> str:
    """The cycle when a load's value is there; empty where it is at once."""
    if not e.timed or e.free:
        return ""
    if space == "shared":
        e.count(abi.C_SHARED_LOAD_BYTES, size)
        e.note_shared(address, size)
        e.flush()
        clock = e.t("load i64, ptr %clk")
        return e.t(f"add i64 {clock}, %shared_latency")
    if space == "global":
        e.count(abi.C_GLOBAL_LOAD_BYTES, size)
        return e.runtime("rt_global_load", [address, str(size), str(e.site)])
    if space == "":
        e.flush()
        return e.runtime("rt_global_load", [address, str(size), str(e.site)])
    return ""


def store(e: Builder, i: Instruction) -> None:
    kind = memory_kind(i)
    size = BITS[kind] // 8
    elements = _elements(i.operands[1])
    count = _vector_width(e, i, elements)
    values = [e.value(element, 8 * size) for element in elements]
    declared = space_word(i)
    strong = is_strong(i) and not _data_only(e, i)
    e.access_flags = _strong_flags(e, i, shadow.STRONG_WRITE) if strong else 0
    host, space, address = e.pointer(
        _address(e, i.operands[0]), size * count, declared, abi.ACCESS_WRITE
    )
    e.access_flags = 0
    if strong:
        order_word(e, i, space, address, str(abi.WORD_STORE))
    for k, value in enumerate(values):
        at = e.t(f"getelementptr i8, ptr {host}, i64 {k * size}") if k else host
        alignment = size if space in ("shared", "local") else 1
        e.emit(f"store i{8 * size} {value}, ptr {at}, align {alignment}{e.alias(space)}")
    if not e.timed or e.free:
        return
    if space == "shared":
        e.count(abi.C_SHARED_STORE_BYTES, size * count)
        e.note_shared(address, size * count)
    elif space in ("global", ""):
        e.count(abi.C_GLOBAL_STORE_BYTES, size * count)
        e.runtime("rt_global_store", [address, str(size * count), str(e.site)])


_ATOMIC = {
    "add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg", "min": "umin",
    "max": "umax", "inc": "uinc_wrap", "dec": "udec_wrap",
}  # fmt: skip


def atomic(e: Builder, i: Instruction) -> None:
    """atom and red.  Blocks run on several threads of the host, so these are real atomics."""
    kind = memory_kind(i)
    bits = BITS[kind]
    operands = list(i.operands)
    target = operands.pop(0) if i.family == "atom" else Register("_")
    address = _address(e, operands.pop(0))
    operation = next((w for w in i.modifiers if w in (*_ATOMIC, "cas")), "")
    if not operation or any(w in i.modifiers for w in ("v2", "v4", "v8")):
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    if bits == 128:
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    values = [e.value(value, bits) for value in operands[: 2 if operation == "cas" else 1]]
    e.access_flags = _strong_flags(e, i, shadow.UPDATE)
    host, space, windowed = e.pointer(address, bits // 8, space_word(i), abi.ACCESS_ATOMIC)
    e.access_flags = 0
    what = str(abi.WORD_UPDATE if i.family == "atom" else abi.WORD_REDUCE)
    ready = ""
    if space == "shared":
        e.note_shared(windowed, bits // 8)
    elif e.timed:
        e.count(abi.C_GLOBAL_STORE_BYTES, bits // 8)
        ready = e.runtime("rt_global_load", [windowed, str(bits // 8), str(e.site)])
    if kind in ("f16x2", "bf16x2", "f16", "bf16"):
        old = _atomic_halves(e, i, host, values[0], kind, operation)
    elif operation == "cas":
        both = e.t(f"cmpxchg ptr {host}, i{bits} {values[0]}, i{bits} {values[1]} seq_cst seq_cst")
        old = e.t(f"extractvalue {{ i{bits}, i1 }} {both}, 0")
        won = e.t(f"extractvalue {{ i{bits}, i1 }} {both}, 1")
        what = e.t(f"select i1 {won}, i64 {abi.WORD_UPDATE}, i64 {abi.WORD_LOAD}")
    elif is_float(kind):
        old = _atomic_float(e, i, host, values[0], kind, operation)
    else:
        name = _ATOMIC[operation]
        if operation in ("min", "max") and is_signed(kind):
            name = operation
        old = e.t(f"atomicrmw {name} ptr {host}, i{bits} {values[0]} seq_cst")
    order_word(e, i, space, windowed, what)
    e.set(target, old, bits)
    if ready:
        e.loaded((target,), ready)


def _atomic_float(
    e: Builder, i: Instruction, host: str, value: str, kind: str, operation: str
) -> str:
    bits, t = BITS[kind], {"f32": "float", "f64": "double"}[kind]
    if operation == "exch":
        return e.t(f"atomicrmw xchg ptr {host}, i{bits} {value} seq_cst")
    if operation not in ("add", "min", "max"):
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    old = e.t(
        f"atomicrmw f{operation} ptr {host}, {t} {e.t(f'bitcast i{bits} {value} to {t}')} seq_cst"
    )
    return e.t(f"bitcast {t} {old} to i{bits}")


def _atomic_halves(
    e: Builder, i: Instruction, host: str, value: str, kind: str, operation: str
) -> str:
    """Packed or single half additions by compare and swap of the whole word."""
    if operation != "add":
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    bits, half = BITS[kind], kind.removesuffix("x2")
    before, loop, done = (e.new_label(hint) for hint in ("hb", "hl", "hd"))
    e.emit(f"br label %{before}")
    e.label(before)
    first = e.t(f"load i{bits}, ptr {host}, align 1")
    e.emit(f"br label %{loop}")
    e.label(loop)
    e.counter += 2
    old, new_old = f"%t{e.counter - 1}", f"%t{e.counter}"
    e.emit(f"{old} = phi i{bits} [ {first}, %{before} ], [ {new_old}, %{loop} ]")
    total = "0"
    for shift in range(0, bits, 16):
        parts = [
            e.widen(e.t(f"trunc i{bits} {e.t(f'lshr i{bits} {v}, {shift}')} to i16")
                    if bits > 16 else v, half)
            for v in (old, value)
        ]  # fmt: skip
        result = e.narrow(e.t(f"fadd float {parts[0]}, {parts[1]}"), half)
        wide = e.resize(result, 16, bits)
        total = (
            e.t(f"or i{bits} {total}, {e.t(f'shl i{bits} {wide}, {shift}')}") if bits > 16 else wide
        )
    both = e.t(f"cmpxchg ptr {host}, i{bits} {old}, i{bits} {total} seq_cst seq_cst")
    e.emit(f"{new_old} = extractvalue {{ i{bits}, i1 }} {both}, 0")
    won = e.t(f"extractvalue {{ i{bits}, i1 }} {both}, 1")
    e.emit(f"br i1 {won}, label %{done}, label %{loop}")
    e.label(done)
    return old


def nothing(e: Builder, i: Instruction) -> None:
    """Fences, hints and the like: no effect on the result of a run."""


def policy(e: Builder, i: Instruction) -> None:
    """createpolicy: cache hints change no result."""
    e.set(i.operands[0], "0", 64)


TABLE: dict[str, Row] = {
    "ld": Row(load, cost="memory", operations=0),
    "ldu": Row(load, cost="memory", operations=0),
    "st": Row(store, defines=0, cost="memory", operations=0),
    "atom": Row(atomic, cost="memory", operations=0),
    "red": Row(atomic, defines=0, cost="memory", operations=0),
    "fence": Row(fence, defines=0, cost="memory", operations=0),
    "membar": Row(fence, defines=0, cost="memory", operations=0),
    "prefetch": Row(nothing, defines=0, cost="memory", operations=0),
    "prefetchu": Row(nothing, defines=0, cost="memory", operations=0),
    "discard": Row(nothing, defines=0, cost="memory", operations=0),
    "applypriority": Row(nothing, defines=0, cost="memory", operations=0),
    "createpolicy": Row(policy, cost="move", operations=0),
}
