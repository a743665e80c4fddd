"""cp.async and its groups.  Bulk copies, tensor copies and mbarriers belong here as well."""

from __future__ import annotations

from course_lib.ptx.parse import Address, Immediate, Instruction, Operand, Register
from course_lib.virtual_gpu import abi
from course_lib.virtual_gpu.emit.builder import Builder
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
    e.runtime("rt_copy_wait", [str(max(allowed.value, 0)), str(e.site)])


def wait_all(e: Builder, i: Instruction) -> None:
    """Also waits for copies that no group holds yet: they are put into one."""
    e.runtime("rt_copy_commit", [])
    e.runtime("rt_copy_wait", ["0", str(e.site)])


def later(e: Builder, i: Instruction) -> None:
    """What the next part of the virtual GPU brings."""
    raise Unsupported(f"{i.opcode} is not on the virtual GPU yet", i.site)


TABLE: dict[str, Row] = {
    "cp.async": Row(copy, defines=0, cost="memory", operations=0),
    "cp.async.commit_group": Row(commit, defines=0, cost="control", operations=0),
    "cp.async.wait_group": Row(wait_group, defines=0, cost="control", operations=0),
    "cp.async.wait_all": Row(wait_all, defines=0, cost="control", operations=0),
    "cp.async.mbarrier": Row(later, defines=0),
    "cp.async.bulk": Row(later, defines=0),
    "cp.reduce": Row(later, defines=0),
}
