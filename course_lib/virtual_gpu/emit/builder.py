"""Writes LLVM IR text: values, registers, checked addresses, yields, costs.

Emitters call these methods; nothing here knows an opcode.  PTX registers are ``alloca`` slots that
LLVM promotes to values, which spares us SSA form.  Values are strings: a name or a constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Union

from course_lib.ptx.parse import (
    BITS,
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Special,
    Symbol,
    Vector,
)
from course_lib.virtual_gpu import abi, shadow
from course_lib.virtual_gpu.dependence import decides_by_flags
from course_lib.virtual_gpu.emit import helpers
from course_lib.virtual_gpu.flow import FlatKernel, Unsupported
from course_lib.virtual_gpu.shadow import orders_by_words

#: LLVM type in which a floating type is computed: half types in float, rounded when stored.
FLOAT_TYPE = {"f32": "float", "f64": "double", "f16": "float", "bf16": "float", "tf32": "float"}
FLOATS = frozenset(("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "tf32"))

_TID = {"%tid.x": abi.T_TID_X, "%tid.y": abi.T_TID_Y, "%tid.z": abi.T_TID_Z}
_THREAD_SLOTS = {**_TID, "%laneid": abi.T_LANE, "%warpid": abi.T_WARP}
_BLOCK_SLOTS = {
    f"%{name}.{axis}": slot + k
    for name, slot in (("ntid", abi.B_NTID_X), ("ctaid", abi.B_CTAID_X), ("nctaid", abi.B_NCTAID_X))
    for k, axis in enumerate("xyz")
} | {"%smid": abi.B_SM, "%nsmid": abi.B_SM_COUNT}
# Without clusters a block is its own cluster.
_CONSTANTS = {
    "%clusterid.x": 0, "%clusterid.y": 0, "%clusterid.z": 0, "%cluster_ctarank": 0,
    "%cluster_ctaid.x": 0, "%cluster_ctaid.y": 0, "%cluster_ctaid.z": 0, "%gridid": 0,
    "%cluster_nctarank": 1, "%cluster_nctaid.x": 1, "%cluster_nctaid.y": 1,
    "%cluster_nctaid.z": 1, "%is_explicit_cluster": 0, "%tid.w": 0, "%ntid.w": 1, "%ctaid.w": 0,
    "%nctaid.w": 1, "%reserved_smem_offset_begin": 0, "%reserved_smem_offset_end": 0,
    "%reserved_smem_offset_cap": 0, "%reserved_smem_offset_0": 0, "%reserved_smem_offset_1": 0,
    "%nwarpid": 64,
}  # fmt: skip
_CLOCKS = {
    "%clock64": 0, "%clock": 0, "%globaltimer": 0, "%globaltimer_lo": 0,
    "%clock_hi": 32, "%globaltimer_hi": 32,
}  # fmt: skip

# Memory that cannot alias, told to LLVM by type: metadata nodes in jit's module tail.
_ALIAS = {"record": 10, "valid": 11, "shared": 12, "global": 13, "local": 14}
METADATA = """!0 = !{!"branch_weights", i32 100000, i32 1}
!1 = !{}
!2 = !{!"memory"}
!3 = !{!"record", !2}
!4 = !{!"valid", !2}
!5 = !{!"shared", !2}
!6 = !{!"global", !2}
!7 = !{!"local", !2}
!10 = !{!3, !3, i64 0}
!11 = !{!4, !4, i64 0}
!12 = !{!5, !5, i64 0}
!13 = !{!6, !6, i64 0}
!14 = !{!7, !7, i64 0}"""


def is_float(kind: str) -> bool:
    return kind in FLOATS


def is_signed(kind: str) -> bool:
    return kind[0] == "s"


class Builder:
    """The state of one translation."""

    def __init__(self, kernel: FlatKernel, timed: bool, checked: int = 0) -> None:
        self.kernel, self.timed, self.checked = kernel, timed, checked
        #: checked build: strong accesses order threads where something acquires or releases
        self.orders_words = bool(checked) and orders_by_words(kernel)
        #: checked build: volatile accesses are checked like ordinary ones
        self.volatile_is_data = checked == abi.CHECK_SHARED and not decides_by_flags(kernel)
        self.access_flags = 0  #: checked build: flags of a strong access that is being emitted
        self.types = kernel.registers
        self.lines: list[str] = []
        self.counter = 0
        self.declared: dict[str, str] = {}
        self.helpers: set[str] = set()
        self.block = 0
        self.site = 0
        self.resume_labels: list[str] = []
        self.live_slots = 0
        self.cost = [0, 0, 0]  # cycles since the last flush, by pipe (abi.ISSUE_COST)
        self.counts: dict[int, int] = {}
        #: timed build: registers that may still be in flight from a load, here
        self.pending: set[str] = set()
        self.free = False  #: inside a clock stamp: costs nothing, counts nothing
        self.pending_anywhere: set[str] = set()
        #: registers that may hold accumulators of a wgmma, numbered
        self.watched: dict[str, int] = {}
        self.copying = False  #: inside a move or a wgmma: no use of an accumulator
        self.live_base = abi.T_LIVE  #: where live registers are saved; before it, payload and flags
        self.flags_at = abi.T_LIVE

    # -- text ------------------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def t(self, expression: str) -> str:
        """A new temporary with this value."""
        self.counter += 1
        name = f"%t{self.counter}"
        self.lines.append(f"  {name} = {expression}")
        return name

    def new_label(self, hint: str) -> str:
        self.counter += 1
        return f"{hint}{self.counter}"

    def label(self, name: str) -> None:
        self.lines.append(name + ":")

    def unsupported(self, why: str) -> Unsupported:
        return Unsupported(why, self.site)

    def intrinsic(self, name: str, result: str, arguments: Sequence[tuple[str, str]]) -> str:
        kinds = ", ".join(kind for kind, _ in arguments)
        self.declared[name] = f"declare {result} @{name}({kinds})"
        values = ", ".join(f"{kind} {value}" for kind, value in arguments)
        return self.t(f"call {result} @{name}({values})")

    def helper(self, name: str, result: str, arguments: Sequence[tuple[str, str]]) -> str:
        """Calls a small always-inlined function of ``helpers.py``."""
        self.helpers.add(name)
        values = ", ".join(f"{kind} {value}" for kind, value in arguments)
        return self.t(f"call {result} @{name}({values})")

    # -- records ---------------------------------------------------------------------------------

    def thread_slot(self, slot: int) -> str:
        return self.t(f"getelementptr i64, ptr %T, i64 {slot}")

    def load_thread(self, slot: int, kind: str = "i64") -> str:
        return self.t(f"load {kind}, ptr {self.thread_slot(slot)}, align 8, !tbaa !10")

    def store_thread(self, slot: int, value: Union[str, int], kind: str = "i64") -> None:
        self.emit(f"store {kind} {value}, ptr {self.thread_slot(slot)}, align 8, !tbaa !10")

    def load_block(self, slot: int, kind: str = "i64") -> str:
        pointer = self.t(f"getelementptr i64, ptr %B, i64 {slot}")
        return self.t(f"load {kind}, ptr {pointer}, align 8, !invariant.load !1")

    # -- values ----------------------------------------------------------------------------------

    def resize(self, value: str, have: int, want: int, signed: bool = False) -> str:
        if have == want:
            return value
        if have > want:
            return self.t(f"trunc i{have} {value} to i{want}")
        return self.t(f"{'sext' if signed else 'zext'} i{have} {value} to i{want}")

    def register_bits(self, name: str) -> int:
        return BITS[self.types[name]]

    def slot(self, name: str) -> str:
        return '%"r.' + name + '"'

    def value(self, operand: Operand, bits: int, signed: bool = False) -> str:
        """The operand as an integer of ``bits`` bits."""
        if isinstance(operand, Register):
            return self.register(operand.name, bits, signed)
        if isinstance(operand, Immediate):
            return self.constant(operand, bits)
        if isinstance(operand, Special):
            return self.special(operand.name, bits)
        if isinstance(operand, Symbol):
            return str(self.symbol_address(operand) & ((1 << bits) - 1))
        if isinstance(operand, Negated):
            inner = self.value(operand.operand, bits, signed)
            if bits == 1:
                return self.t(f"xor i1 {inner}, true")
            return self.t(f"sub i{bits} 0, {inner}")
        if isinstance(operand, Vector) and len(operand.elements) == 1:
            return self.value(operand.elements[0], bits, signed)
        raise self.unsupported(f"an operand of this kind ({type(operand).__name__})")

    def constant(self, operand: Immediate, bits: int) -> str:
        value = operand.value & ((1 << bits) - 1)
        if bits == 1:
            return "true" if operand.value else "false"
        return str(value)

    def register(self, name: str, bits: int, signed: bool = False) -> str:
        if name == "_":
            return "0" if bits > 1 else "false"
        have = self.register_bits(name)
        self.await_register(name)
        value = self.t(f"load i{have}, ptr {self.slot(name)}")
        self.touch(name, value)
        return self.resize(value, have, bits, signed)

    def symbol_address(self, symbol: Symbol) -> int:
        """Shared and local variables are offsets; the others windowed addresses."""
        placed = self.kernel.symbols.get(symbol.name)
        if placed is None:
            raise self.unsupported(f"no variable called {symbol.name}")
        offset = placed.offset + symbol.offset
        window = {"param": abi.WINDOW_PARAMETERS, "global": abi.WINDOW_GLOBALS}.get(placed.space)
        return offset if window is None else (window << abi.WINDOW_SHIFT) + offset

    def special(self, name: str, bits: int) -> str:
        """A special register."""
        if name in _THREAD_SLOTS:
            return self.resize(self.load_thread(_THREAD_SLOTS[name]), 64, bits)
        if name in _BLOCK_SLOTS:
            return self.resize(self.load_block(_BLOCK_SLOTS[name]), 64, bits)
        if name in _CONSTANTS:
            return str(_CONSTANTS[name])
        if name in _CLOCKS:
            self.flush()
            clock = self.t("load i64, ptr %clk")
            if _CLOCKS[name]:
                clock = self.t(f"lshr i64 {clock}, {_CLOCKS[name]}")
            return self.resize(clock, 64, bits)
        if name.startswith("%lanemask_"):
            return self.resize(self.lane_mask(name.rpartition("_")[2]), 32, bits)
        if name == "%dynamic_smem_size":
            size = self.t(f"sub i64 %shared_bytes, {self.kernel.dynamic_offset}")
            size = self.intrinsic("llvm.smax.i64", "i64", [("i64", size), ("i64", "0")])
            return self.resize(size, 64, bits)
        if name in ("%total_smem_size", "%aggr_smem_size"):
            return self.resize("%shared_bytes", 64, bits)
        raise self.unsupported(f"the special register {name} is not on the virtual GPU yet")

    def lane_mask(self, which: str) -> str:
        lane = self.resize(self.load_thread(abi.T_LANE), 64, 32)
        one = self.t(f"shl i32 1, {lane}")
        below = self.t(f"sub i32 {one}, 1")
        upto = self.t(f"or i32 {one}, {below}")
        if which in ("gt", "ge"):
            return self.t(f"xor i32 {upto if which == 'gt' else below}, -1")
        return {"eq": one, "lt": below, "le": upto}[which]

    def float_value(self, operand: Operand, kind: str) -> str:
        """The operand as a floating value of type ``FLOAT_TYPE[kind]``."""
        if kind in ("f16", "bf16"):
            return self.widen(self.value(operand, 16), kind)
        bits = BITS[kind]
        if isinstance(operand, Immediate):
            operand = self.float_constant(operand, bits)
        return self.t(f"bitcast i{bits} {self.value(operand, bits)} to {FLOAT_TYPE[kind]}")

    def float_constant(self, operand: Immediate, bits: int) -> Immediate:
        """A float immediate in the width that the instruction wants."""
        if operand.float_bits in (0, bits):
            return operand
        import struct

        source, target = ("<f", "<d") if operand.float_bits == 32 else ("<d", "<f")
        raw = operand.value.to_bytes(operand.float_bits // 8, "little")
        try:
            packed = struct.pack(target, struct.unpack(source, raw)[0])
        except OverflowError:
            raise self.unsupported("a double constant that does not fit a float") from None
        return Immediate(int.from_bytes(packed, "little"), bits)

    def widen(self, half: str, kind: str) -> str:
        """16 bits of f16 or bf16 -> float."""
        if kind == "f16":
            return self.t(f"fpext half {self.t(f'bitcast i16 {half} to half')} to float")
        shifted = self.t(f"shl i32 {self.resize(half, 16, 32)}, 16")
        return self.t(f"bitcast i32 {shifted} to float")

    def narrow(self, value: str, kind: str) -> str:
        """float -> 16 bits of f16 or bf16, to nearest even."""
        if kind == "f16":
            return self.t(f"bitcast half {self.t(f'fptrunc float {value} to half')} to i16")
        return self.helper("float_to_bf16", "i16", [("float", value)])

    def set(self, operand: Operand, value: str, bits: int, signed: bool = False) -> None:
        """Writes an integer value to a register, resized to its width."""
        if not isinstance(operand, Register):
            raise self.unsupported("a destination that is not a register")
        if operand.name == "_":
            return
        have = self.register_bits(operand.name)
        self.forget(operand.name)
        self.touch(operand.name, None)
        resized = self.resize(value, bits, have, signed)
        self.emit(f"store i{have} {resized}, ptr {self.slot(operand.name)}")

    def set_float(self, operand: Operand, value: str, kind: str) -> None:
        if kind in ("f16", "bf16"):
            self.set(operand, self.narrow(value, kind), 16)
            return
        bits = BITS[kind]
        self.set(operand, self.t(f"bitcast {FLOAT_TYPE[kind]} {value} to i{bits}"), bits)

    # -- cost and scoreboard (timed build) -------------------------------------------------------

    def count(self, counter: int, amount: int) -> None:
        if self.timed and amount and not self.free:
            self.counts[counter] = self.counts.get(counter, 0) + amount

    def flush(self) -> None:
        """Adds what was collected since the last flush to the clock and the counters."""
        if not self.timed:
            return
        if any(self.cost):
            clock = self.t("load i64, ptr %clk")
            self.emit(f"store i64 {self.t(f'add i64 {clock}, {max(self.cost)}')}, ptr %clk")
            self.cost = [0, 0, 0]
        for counter, amount in self.counts.items():
            pointer = self.t(f"getelementptr i64, ptr %counters, i64 {counter}")
            old = self.t(f"load i64, ptr {pointer}, !tbaa !10")
            self.emit(f"store i64 {self.t(f'add i64 {old}, {amount}')}, ptr {pointer}, !tbaa !10")
        self.counts.clear()

    def ready_slot(self, name: str) -> str:
        self.pending_anywhere.add(name)
        return '%"ready.' + name + '"'

    def await_register(self, name: str) -> None:
        """Moves the clock to where a loaded register is there, and notes the stall."""
        if not self.timed or name not in self.pending:
            return
        self.pending.discard(name)
        self.flush()
        ready = self.t(f"load i64, ptr {self.ready_slot(name)}")
        self.wait_until(ready)

    def wait_until(self, ready: str) -> None:
        clock = self.t("load i64, ptr %clk")
        later = self.intrinsic("llvm.smax.i64", "i64", [("i64", clock), ("i64", ready)])
        waited = self.t(f"sub i64 {later}, {clock}")
        self.emit(f"store i64 {later}, ptr %clk")
        pointer = self.t(f"getelementptr i64, ptr %stalls, i64 {self.site}")
        total = self.t(f"add i64 {self.t(f'load i64, ptr {pointer}, !tbaa !10')}, {waited}")
        self.emit(f"store i64 {total}, ptr {pointer}, !tbaa !10")
        stall = self.t(f"add i64 {self.load_thread(abi.T_STALL)}, {waited}")
        self.store_thread(abi.T_STALL, stall)

    def note_shared(self, offset: str, size: int) -> None:
        """Notes an access of this lane for the SM's shared-memory unit."""
        if not self.timed or self.free:
            return
        number = self.load_thread(abi.T_ACCESSES)
        place = self.t(f"and i64 {number}, {abi.ACCESS_LOG - 1}")
        index = self.t(f"add i64 %own_accesses, {place}")
        pointer = self.t(f"getelementptr i64, ptr %accesses, i64 {index}")
        kind = self.site << abi.ACCESS_SITE_SHIFT | size << abi.ACCESS_BYTES_SHIFT
        self.emit(f"store i64 {self.t(f'or i64 {offset}, {kind}')}, ptr {pointer}, !tbaa !10")
        self.store_thread(abi.T_ACCESSES, self.t(f"add i64 {number}, 1"))

    def forget(self, name: str) -> None:
        self.pending.discard(name)

    def loaded(self, operands: Iterable[Operand], ready: str) -> None:
        """Marks registers as in flight until cycle ``ready``."""
        for operand in operands:
            if isinstance(operand, Register) and operand.name != "_":
                self.pending.add(operand.name)
                self.emit(f"store i64 {ready}, ptr {self.ready_slot(operand.name)}")

    # -- faults ----------------------------------------------------------------------------------

    def fail_unless(
        self,
        ok: str,
        code: int,
        address: str,
        size: Union[int, str],
        alignment: Union[int, str],
        access: Union[int, str],
    ) -> None:
        """Leaves with Y_ERROR where ``ok`` is false."""
        good, bad = self.new_label("ok"), self.new_label("bad")
        self.emit(f"br i1 {ok}, label %{good}, label %{bad}, !prof !0")
        self.label(bad)
        slots = ((abi.T_A0, code), (abi.T_A1, address), (abi.T_A2, size), (abi.T_A3, alignment))
        for slot, value in (*slots, (abi.T_A4, access), (abi.T_SITE, self.site)):
            self.store_thread(slot, value)
        self.emit("br label %fault")
        self.label(good)

    # -- memory ----------------------------------------------------------------------------------

    def space_of(self, address: Address, declared: str) -> str:
        """The state space that an access really goes to, given what its opcode says."""
        if isinstance(address.base, Symbol):
            placed = self.kernel.symbols.get(address.base.name)
            if placed is None:
                raise self.unsupported(f"no variable called {address.base.name}")
            if declared in ("", "param") or placed.space == "local":
                return placed.space
        return "global" if declared == "const" else declared

    def offset_32(self, address: Address) -> str:
        """A shared or local address as an i64 offset that cannot wrap."""
        base = address.base
        if isinstance(base, Symbol):
            return str((self.symbol_address(base) + address.offset) & abi.WINDOW_MASK)
        if isinstance(base, Immediate):
            return str((base.value + address.offset) & 0xFFFFFFFF)
        bits = self.register_bits(base.name)
        value = self.resize(self.register(base.name, bits), bits, 64)
        if address.offset:
            value = self.t(f"add i64 {value}, {address.offset}")
        if bits > 32:
            return self.t(f"and i64 {value}, {abi.WINDOW_MASK}")
        return self.t(f"and i64 {value}, 4294967295") if address.offset else value

    def address_64(self, address: Address) -> str:
        """A global or generic address."""
        base = address.base
        if isinstance(base, Symbol):
            return str((self.symbol_address(base) + address.offset) & ((1 << 64) - 1))
        if isinstance(base, Immediate):
            return str((base.value + address.offset) & ((1 << 64) - 1))
        value = self.register(base.name, 64)
        return self.t(f"add i64 {value}, {address.offset}") if address.offset else value

    def check_offset(self, offset: str, size: int, alignment: int, space: str, access: int) -> None:
        limit = "%shared_bytes" if space == "shared" else str(self.kernel.local_bytes)
        known = self.kernel.static_shared if space == "shared" else self.kernel.local_bytes
        if offset.isdigit():
            constant = int(offset)
            if constant + size <= known and constant % alignment == 0:
                return
        ok = self.t(f"icmp ule i64 {self.t(f'add i64 {offset}, {size}')}, {limit}")
        ok = self.aligned(ok, offset, alignment)
        code = abi.F_SHARED if space == "shared" else abi.F_LOCAL
        self.fail_unless(ok, code, offset, size, alignment, access)

    def aligned(self, ok: str, address: str, alignment: int) -> str:
        if alignment <= 1:
            return ok
        low = self.t(f"and i64 {address}, {alignment - 1}")
        return self.t(f"and i1 {ok}, {self.t(f'icmp eq i64 {low}, 0')}")

    def table_entry(self, address: str, generic: bool) -> str:
        """Pointer to the table entry of an address's window; that of null for an unknown one.

        Only a generic access may go to the shared and local windows: the local one has no base of
        its own in the table, because ``%local`` is this thread's.
        """
        window = self.t(f"lshr i64 {address}, {abi.WINDOW_SHIFT}")
        if generic:
            inside = self.t(f"icmp ult i64 {window}, %windows")
        else:
            above = self.t(f"sub i64 {window}, {abi.WINDOW_PARAMETERS}")
            inside = self.t(f"icmp ult i64 {above}, %global_windows")
        index = self.t(f"select i1 {inside}, i64 {window}, i64 0")
        return self.t(f"getelementptr i64, ptr %table, i64 {self.t(f'shl i64 {index}, 1')}")

    def check_window(
        self, address: str, size: int, alignment: int, access: int, generic: bool = False
    ) -> str:
        """Checks a windowed address and returns the host pointer of its byte."""
        offset = self.t(f"and i64 {address}, {abi.WINDOW_MASK}")
        entry = self.table_entry(address, generic)
        host = self.t(f"load ptr, ptr {entry}, !invariant.load !1")
        size_slot = self.t(f"getelementptr i64, ptr {entry}, i64 1")
        bound = self.t(f"load i64, ptr {size_slot}, !invariant.load !1")
        ok = self.t(f"icmp ule i64 {self.t(f'add i64 {offset}, {size}')}, {bound}")
        ok = self.aligned(ok, address, alignment)
        self.fail_unless(ok, abi.F_GLOBAL, address, size, alignment, access)
        return self.t(f"getelementptr i8, ptr {host}, i64 {offset}")

    def pointer(
        self,
        address: Address,
        size: int,
        declared: str,
        access: int,
        alignment: int | None = None,
    ) -> tuple[str, str, str]:
        """Checks an access and returns (host pointer, space, address value).

        The address value is an offset in shared and local memory, else the windowed address.
        Shared bytes are marked as written, or tested, here.
        """
        alignment = alignment or size
        space = self.space_of(address, declared)
        if space == "param":
            return self.parameter_pointer(address, size, alignment, access)
        if space in ("shared", "local"):
            offset = self.offset_32(address)
            self.check_offset(offset, size, alignment, space, access)
            if space == "shared":
                self.track_shared(offset, size, access)
                self.check_shared(offset, size, access)
            return self.t(f"getelementptr i8, ptr %{space}, i64 {offset}"), space, offset
        value = self.address_64(address)
        host = self.check_window(value, size, alignment, access, space == "")
        if space == "":
            host = self.generic_pointer(value, host, size, access)
        self.check_global(value, size, access)
        return host, space, value

    def parameter_pointer(
        self, address: Address, size: int, alignment: int, access: int
    ) -> tuple[str, str, str]:
        """Kernel parameters: constants are checked now; computed addresses are generic."""
        value = self.address_64(address)
        if not value.isdigit():
            if not isinstance(address.base, Register):
                raise self.unsupported("a parameter address of this kind")
            return self.check_window(value, size, alignment, access), "param", value
        offset = int(value) & abi.WINDOW_MASK
        if offset + size > self.kernel.parameter_bytes or access != abi.ACCESS_READ:
            raise self.unsupported("an access outside the kernel's parameters")
        return self.t(f"getelementptr i8, ptr %parameters, i64 {offset}"), "param", value

    def generic_pointer(self, address: str, host: str, size: int, access: int) -> str:
        """A generic address may be local (each thread has its own) or shared (tracked)."""
        window = self.t(f"lshr i64 {address}, {abi.WINDOW_SHIFT}")
        offset = self.t(f"and i64 {address}, {abi.WINDOW_MASK}")
        is_local = self.t(f"icmp eq i64 {window}, {abi.WINDOW_LOCAL}")
        own = self.t(f"getelementptr i8, ptr %local, i64 {offset}")
        host = self.t(f"select i1 {is_local}, ptr {own}, ptr {host}")
        is_shared = self.t(f"icmp eq i64 {window}, {abi.WINDOW_SHARED}")
        track, done = self.new_label("track"), self.new_label("tracked")
        self.emit(f"br i1 {is_shared}, label %{track}, label %{done}")
        self.label(track)
        self.track_shared(offset, size, access)
        self.check_shared(offset, size, access)
        self.emit(f"br label %{done}")
        self.label(done)
        return host

    def track_shared(self, offset: str, size: int, access: int) -> None:
        """Uninitialised shared memory: one byte per byte, set by writes, tested by reads."""
        valid = self.t(f"getelementptr i8, ptr %valid, i64 {offset}")
        ones = int.from_bytes(b"\x01" * size, "little")
        kind = f"i{8 * size}"
        if access != abi.ACCESS_WRITE:
            have = self.t(f"load {kind}, ptr {valid}, align 1, !tbaa !11")
            good, bad = self.new_label("set"), self.new_label("unset")
            all_set = self.t(f"icmp eq {kind} {have}, {ones}")
            self.emit(f"br i1 {all_set}, label %{good}, label %{bad}, !prof !0")
            self.label(bad)
            self.runtime("rt_shared_uninitialised", [offset, str(size), str(self.site)], False)
            self.emit(f"br label %{good}")
            self.label(good)
        if access != abi.ACCESS_READ:
            self.emit(f"store {kind} {ones}, ptr {valid}, align 1, !tbaa !11")

    def check_shared(self, offset: str, size: int, access: int) -> None:
        """Checked build: tells `happens_before` of an access to shared memory."""
        if self.checked != abi.CHECK_SHARED or self.free:
            return
        place = [offset, str(size), str(self.site)]
        if self.access_flags:
            self.runtime("rt_check_atomic", [*place, str(self.access_flags)], False)
        else:
            kind = "read" if access == abi.ACCESS_READ else "write"
            self.runtime(f"rt_check_{kind}", place, False)

    def check_global(self, address: str, size: int, access: int) -> None:
        """Build that checks global memory: tells `global_accesses` of an access to it."""
        if self.checked != abi.CHECK_GLOBAL or self.free:
            return
        flags = self.access_flags or (0 if access == abi.ACCESS_READ else shadow.WRITES)
        self.runtime("rt_check_global", [address, str(size), str(self.site), str(flags)], False)

    @staticmethod
    def alias(space: str) -> str:
        """Metadata that tells LLVM which accesses cannot meet; generic ones may meet all."""
        number = _ALIAS.get(space)
        return f", !tbaa !{number}" if number else ""

    # -- leaving the native function -------------------------------------------------------------

    def runtime(self, name: str, arguments: Sequence[str], synchronise: bool = True) -> str:
        """Calls a function of the run-time; the clock is in the thread record meanwhile."""
        result, count = abi.RUNTIME_FUNCTIONS[name]
        assert count == len(arguments), name
        kinds = ", ".join(["ptr", "ptr", *["i64"] * count])
        self.declared[name] = f"declare {result} @{name}({kinds}) nounwind"
        clock = self.timed and synchronise
        if clock:
            self.flush()
            self.store_thread(abi.T_CLOCK, self.t("load i64, ptr %clk"))
        text = f"call {result} @{name}(ptr %B, ptr %T{''.join(f', i64 {a}' for a in arguments)})"
        value = ""
        if result == "void":
            self.emit(text)
        else:
            value = self.t(text)
        if clock:
            self.emit(f"store i64 {self.load_thread(abi.T_CLOCK)}, ptr %clk")
        return value

    def yield_to(
        self,
        reason: int,
        block: int,
        results: Sequence[tuple[Operand, int, int]] = (),
        words: Sequence[tuple[Operand, int]] = (),
    ) -> None:
        """Saves what is live in ``block``, returns ``reason``, and resumes there.

        ``results``: (register, thread slot, bits) that the run-time has filled by then; ``words``:
        (register, index of a 32-bit word of the thread record).
        """
        self.flush()
        targets = [*(r for r, _, _ in results), *(r for r, _ in words)]
        written = {r.name for r in targets if isinstance(r, Register)}
        live = [name for name in self.kernel.live_registers(block) if name not in written]
        in_flight = [name for name in live if name in self.pending]
        self.live_slots = max(self.live_slots, self._save_size(live) + len(in_flight))
        ready_base = self.live_base + self._save_size(live)
        for slot, name in self._save_slots(live):
            kind = f"i{self.register_bits(name)}"
            value = self.t(f"load {kind}, ptr {self.slot(name)}")
            self.store_thread(slot, value, kind)
        for k, name in enumerate(in_flight):
            self.store_thread(ready_base + k, self.t(f"load i64, ptr {self.ready_slot(name)}"))
        resume = self.new_label("resume")
        self.resume_labels.append(resume)
        self.store_thread(abi.T_RESUME, len(self.resume_labels))
        self.store_thread(abi.T_SITE, self.site)
        self.leave(reason)
        self.label(resume)
        for slot, name in self._save_slots(live):
            kind = f"i{self.register_bits(name)}"
            self.emit(f"store {kind} {self.load_thread(slot, kind)}, ptr {self.slot(name)}")
        for k, name in enumerate(in_flight):
            value = self.load_thread(ready_base + k)
            self.emit(f"store i64 {value}, ptr {self.ready_slot(name)}")
        for register, slot, bits in results:
            if isinstance(register, Register) and register.name != "_":
                have = self.register_bits(register.name)
                value = self.resize(self.load_thread(slot, f"i{bits}"), bits, have)
                self.emit(f"store i{have} {value}, ptr {self.slot(register.name)}")
        for register, index in words:
            pointer = self.t(f"getelementptr i32, ptr %T, i64 {index}")
            value = self.t(f"load i32, ptr {pointer}, align 4, !tbaa !10")
            if isinstance(register, Register) and register.name != "_":
                have = self.register_bits(register.name)
                resized = self.resize(value, 32, have)
                self.emit(f"store i{have} {resized}, ptr {self.slot(register.name)}")
        self.emit(f"br label %b{block}")

    # -- accumulators of wgmma (checked build) ----------------------------------------------------

    def touched_flag(self, index: int) -> str:
        """Pointer to the byte that says: read or changed since the last wgmma.fence."""
        return self.t(f"getelementptr i8, ptr {self.thread_slot(self.flags_at)}, i64 {index}")

    def touch(self, name: str, value: str | None) -> None:
        """An accumulator is used: ``value`` where it is read, which a mark shows to be early."""
        if not self.checked or self.copying or name not in self.watched:
            return
        self.emit(f"store i8 1, ptr {self.touched_flag(self.watched[name])}")
        if value is None:
            return
        early, done = self.new_label("early"), self.new_label("landed")
        high = self.t(f"lshr i32 {value}, {abi.IN_FLIGHT_SHIFT}")
        marked = self.t(f"icmp eq i32 {high}, {abi.IN_FLIGHT}")
        self.emit(f"br i1 {marked}, label %{early}, label %{done}")
        self.label(early)
        word = self.resize(value, 32, 64)
        self.runtime("rt_accumulator", ["1", word, str(self.site)], False)
        self.emit(f"br label %{done}")
        self.label(done)

    def _save_size(self, live: Sequence[str]) -> int:
        return sum(max(1, self.register_bits(name) // 64) for name in live)

    def _save_slots(self, live: Sequence[str]) -> Iterable[tuple[int, str]]:
        slot = self.live_base
        for name in live:
            yield slot, name
            slot += max(1, self.register_bits(name) // 64)

    def leave(self, reason: int) -> None:
        """Stores the clock and the fuel and returns."""
        if self.timed:
            self.store_thread(abi.T_CLOCK, self.t("load i64, ptr %clk"))
        self.store_thread(abi.T_FUEL, self.t("load i64, ptr %fuel"))
        self.emit(f"ret i32 {reason}")

    def jump(self, target: int) -> None:
        """Goes to another block; backward jumps cost fuel, so that no loop is endless."""
        if target > self.block:
            self.emit(f"br label %b{target}")
            return
        self.flush()
        fuel = self.t(f"sub i64 {self.t('load i64, ptr %fuel')}, 1")
        self.emit(f"store i64 {fuel}, ptr %fuel")
        empty = self.new_label("empty")
        left = self.t(f"icmp sgt i64 {fuel}, 0")
        self.emit(f"br i1 {left}, label %b{target}, label %{empty}, !prof !0")
        self.label(empty)
        pending = set(self.pending)
        self.yield_to(abi.Y_FUEL, target)
        self.pending = pending

    def branch_if(self, instruction: Instruction, taken: str, skipped: str) -> None:
        """Branches on the predicate of an instruction."""
        assert instruction.predicate is not None
        self.flush()
        condition = self.register(instruction.predicate, 1)
        self.flush()
        if instruction.negated:
            taken, skipped = skipped, taken
        self.emit(f"br i1 {condition}, label %{taken}, label %{skipped}")

    # -- helpers for the module text -------------------------------------------------------------

    def helper_text(self) -> str:
        return "\n".join(helpers.TEXT[name] for name in sorted(self.helpers))
