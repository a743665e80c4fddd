"""cp.async and its groups, bulk copies and tensor copies."""

from __future__ import annotations

from course_lib.ptx.parse import Address, Immediate, Instruction, Operand, Register, Vector
from course_lib.virtual_gpu import abi
from course_lib.virtual_gpu.emit.builder import Builder
from course_lib.virtual_gpu.emit.mbarriers import answered, shared_offset
from course_lib.virtual_gpu.emit.memory import nothing
from course_lib.virtual_gpu.emit.row import Row
from course_lib.virtual_gpu.flow import Unsupported


def copy(e: Builder, i: Instruction) -> None:
    """cp.async.ca / .cg [shared], [global], bytes {, source bytes | ignore-src} {, policy}.

    Only ``source bytes`` are read, so only they are checked; the rest becomes zero.
    """
    target, source = i.operands[0], i.operands[1]
    size = i.operands[2]
    if not isinstance(target, Address) or not isinstance(source, Address):
        raise e.unsupported("cp.async without two addresses")
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16):
        raise e.unsupported("cp.async of a size other than 4, 8 or 16 bytes")
    count = size.value
    if "cg" in i.modifiers and count != 16:
        raise e.unsupported("cp.async.cg copies 16 bytes only")
    offset = e.offset_32(target)
    e.check_offset(offset, count, count, "shared", abi.ACCESS_COPY)
    address = e.address_64(source)
    read = _source_bytes(e, i, count)
    if read.isdigit() and int(read) == count:
        host = e.check_window(address, count, count, abi.ACCESS_READ)
    else:
        host = _checked_part(e, address, read, count)
    pointer = e.t(f"ptrtoint ptr {host} to i64")
    e.runtime("rt_copy_async", [offset, pointer, str(count), read, str(e.site), address])
    e.count(abi.C_COPY_BYTES, count)


def _source_bytes(e: Builder, i: Instruction, count: int) -> str:
    """How many bytes are read: a constant, src-size, or 0 where ignore-src holds."""
    if "L2::cache_hint" in i.opcode:
        extra: tuple[Operand, ...] = i.operands[3:-1]
    else:
        extra = i.operands[3:]
    if not extra:
        return str(count)
    operand = extra[0]
    if isinstance(operand, Immediate):
        return str(min(operand.value & 0xFFFFFFFF, count))
    if isinstance(operand, Register) and e.types.get(operand.name) == "pred":
        ignored = e.value(operand, 1)
        return e.t(f"select i1 {ignored}, i64 0, i64 {count}")
    value = e.resize(e.value(operand, 32), 32, 64)
    return e.intrinsic("llvm.umin.i64", "i64", [("i64", value), ("i64", str(count))])


def _checked_part(e: Builder, address: str, read: str, count: int) -> str:
    """Checks ``read`` (up to ``count``) bytes; nothing is checked where none is read.

    The table entry of window 0 has no bytes, so an ignored source is sent to the shared window.
    """
    none = e.t(f"icmp eq i64 {read}, 0")
    offset = e.t(f"and i64 {address}, {abi.WINDOW_MASK}")
    entry = e.table_entry(address, generic=False)
    host = e.t(f"load ptr, ptr {entry}, !invariant.load !1")
    bound = e.t(f"load i64, ptr {e.t(f'getelementptr i64, ptr {entry}, i64 1')}")
    ok = e.t(f"icmp ule i64 {e.t(f'add i64 {offset}, {read}')}, {bound}")
    ok = e.aligned(ok, address, count)
    ok = e.t(f"or i1 {ok}, {none}")
    e.fail_unless(ok, abi.F_GLOBAL, address, count, count, abi.ACCESS_READ)
    here = e.t(f"getelementptr i8, ptr {host}, i64 {offset}")
    return e.t(f"select i1 {none}, ptr %shared, ptr {here}")


def commit(e: Builder, i: Instruction) -> None:
    e.runtime("rt_copy_commit", [])


def wait_group(e: Builder, i: Instruction) -> None:
    allowed = i.operands[0]
    if not isinstance(allowed, Immediate):
        raise e.unsupported("cp.async.wait_group without a constant")
    marks = (getattr(item, "opcode", "") for item in e.kernel.code)
    if allowed.value > 0 and any(opcode.startswith("cp.async.mbarrier") for opcode in marks):
        raise e.unsupported("cp.async.mbarrier.arrive beside a cp.async.wait_group above 0")
    e.runtime("rt_copy_wait", [str(max(allowed.value, 0)), str(e.site)])


def wait_all(e: Builder, i: Instruction) -> None:
    """Also waits for copies that no group holds yet: they are put into one."""
    e.runtime("rt_copy_commit", [])
    e.runtime("rt_copy_wait", ["0", str(e.site)])


def arrive(e: Builder, i: Instruction) -> None:
    """cp.async.mbarrier.arrive[.noinc]: arrives when this thread's earlier copies land."""
    offset = shared_offset(e, i, i.operands[0])
    answer = e.runtime("rt_copy_arrive", [offset, str(int("noinc" in i.modifiers)), str(e.site)])
    answered(e, answer, abi.F_MBARRIER, offset)


_LOAD, _STORE, _TENSOR_LOAD, _TENSOR_STORE = range(4)


def _is_load(e: Builder, i: Instruction) -> bool:
    """From global to shared memory? The order of the two spaces in the opcode says so."""
    if "multicast::cluster" in i.modifiers:
        raise e.unsupported(f"{i.opcode}: multicast needs a cluster, and the virtual GPU has none")
    target, source = i.opcode.find(".shared"), i.opcode.find(".global")
    if target < 0 or source < 0:
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    return target < source


def bulk_copy(e: Builder, i: Instruction) -> None:
    """cp.async.bulk: [shared], [global], bytes, [mbarrier] or [global], [shared], bytes."""
    if any(word in i.modifiers for word in ("cp_mask", "ignore_oob")):
        raise e.unsupported(f"{i.opcode} is not on the virtual GPU yet")
    load = _is_load(e, i)
    size = e.resize(e.value(i.operands[2], 32), 32, 64)
    near, far = (0, 1) if load else (1, 0)
    offset = _offset(e, i, near)
    address = _global(e, i, far)
    if load:
        mbarrier = _offset(e, i, 3)
        e.store_thread(abi.T_A5, mbarrier)
        answer = e.runtime("rt_bulk_load", [offset, address, size, mbarrier, str(e.site)])
    else:
        answer = e.runtime("rt_bulk_store", [address, offset, size, str(e.site)])
    answered(e, answer, abi.F_BULK, offset, size, address)


def _offset(e: Builder, i: Instruction, index: int) -> str:
    operand = i.operands[index]
    if not isinstance(operand, Address):
        raise e.unsupported(f"{i.opcode} without an address")
    return e.offset_32(operand)


def _global(e: Builder, i: Instruction, index: int) -> str:
    operand = i.operands[index]
    if not isinstance(operand, Address):
        raise e.unsupported(f"{i.opcode} without an address")
    return e.address_64(operand)


def tensor_copy(e: Builder, i: Instruction) -> None:
    """cp.async.bulk.tensor.{1,2,3}d, tile mode: [shared], [map, {x, y, z}], [mbarrier], or back."""
    rank = next((int(w[0]) for w in i.modifiers if w in ("1d", "2d", "3d")), 0)
    if not rank or any("im2col" in word or "gather" in word for word in i.modifiers):
        raise e.unsupported(f"{i.opcode}: only tile mode with 1 to 3 dimensions is there")
    load = _is_load(e, i)
    offset = _offset(e, i, 0 if load else 1)
    tensor = i.operands[1 if load else 0]
    map_, coordinates = _map_operand(e, tensor, rank)
    host = e.check_window(map_, 128, 64, abi.ACCESS_READ, generic=True)
    pointer = e.t(f"ptrtoint ptr {host} to i64")
    mbarrier = _offset(e, i, 2) if load else "0"
    e.store_thread(abi.T_A5, mbarrier)
    kind = _TENSOR_LOAD if load else _TENSOR_STORE
    answer = e.runtime(
        "rt_tensor_copy", [offset, pointer, mbarrier, *coordinates, str(kind), str(e.site)]
    )
    answered(e, answer, abi.F_BULK, offset)


def _map_operand(e: Builder, operand: Operand, rank: int) -> tuple[str, list[str]]:
    """[map, {x, y}] as a generic address and three coordinates; those that are missing are 0."""
    if not isinstance(operand, Address) or not operand.coordinates:
        raise e.unsupported("a tensor copy without coordinates")
    first = operand.coordinates[0]
    parts = first.elements if isinstance(first, Vector) else operand.coordinates
    given = [e.resize(e.value(part, 32), 32, 64, signed=True) for part in parts]
    if len(given) != rank:
        raise e.unsupported(f"a tensor copy of {rank} dimensions with {len(given)} coordinates")
    return e.address_64(operand), (given + ["0", "0"])[:3]


def bulk_commit(e: Builder, i: Instruction) -> None:
    e.runtime("rt_bulk_commit", [])


def bulk_wait(e: Builder, i: Instruction) -> None:
    allowed = i.operands[0]
    if not isinstance(allowed, Immediate):
        raise e.unsupported(f"{i.opcode} without a constant")
    read = str(int("read" in i.modifiers))
    e.runtime("rt_bulk_wait", [str(max(allowed.value, 0)), read, str(e.site)])


def later(e: Builder, i: Instruction) -> None:
    """What the virtual GPU does not have."""
    raise Unsupported(f"{i.opcode} is not on the virtual GPU yet", i.site)


TABLE: dict[str, Row] = {
    "cp.async": Row(copy, defines=0, cost="memory", operations=0),
    "cp.async.commit_group": Row(commit, defines=0, cost="control", operations=0),
    "cp.async.wait_group": Row(wait_group, defines=0, cost="control", operations=0),
    "cp.async.wait_all": Row(wait_all, defines=0, cost="control", operations=0),
    "cp.async.mbarrier.arrive": Row(arrive, defines=0, cost="warp", operations=0),
    "cp.async.bulk": Row(bulk_copy, defines=0, cost="memory", operations=0),
    "cp.async.bulk.tensor": Row(tensor_copy, defines=0, cost="memory", operations=0),
    "cp.async.bulk.commit_group": Row(bulk_commit, defines=0, cost="control", operations=0),
    "cp.async.bulk.wait_group": Row(bulk_wait, defines=0, cost="control", operations=0),
    "cp.async.bulk.prefetch": Row(nothing, defines=0, cost="memory", operations=0),
    "cp.reduce": Row(later, defines=0),
}
