"""PTX opcodes to LLVM IR: one table per family, joined here.

A table maps the longest matching dotted prefix of an opcode ("bar.warp" before "bar") to a
``Row``.  To add an opcode, write its emitter and add one row to the table of its family.
"""

from __future__ import annotations

from functools import lru_cache

from course_lib.ptx.parse import Instruction
from course_lib.virtual_gpu.emit import (
    async_copies,
    control,
    convert,
    floating,
    integer,
    matrix,
    mbarriers,
    memory,
    warp,
)
from course_lib.virtual_gpu.emit.builder import FLOATS
from course_lib.virtual_gpu.emit.row import Row
from course_lib.virtual_gpu.flow import Unsupported

TABLE: dict[str, Row] = {
    **integer.TABLE,
    **convert.TABLE,
    **memory.TABLE,
    **async_copies.TABLE,
    **mbarriers.TABLE,
    **warp.TABLE,
    **matrix.TABLE,
    **control.TABLE,
}


@lru_cache(maxsize=4096)
def _find(opcode: str) -> Row | None:
    words = opcode.split(".")
    if words[-1] in FLOATS and words[0] in floating.TABLE:
        return floating.TABLE[words[0]]
    key = opcode
    while key:
        row = TABLE.get(key)
        if row is not None:
            return row
        key = key.rpartition(".")[0]
    return None


def row_of(instruction: Instruction) -> Row:
    """The row of an instruction; ``Unsupported`` names an opcode that has none."""
    row = _find(instruction.opcode)
    if row is None:
        name = instruction.opcode.removeprefix("call.")
        what = f"the function {name}" if name != instruction.opcode else name
        raise Unsupported(f"{what} is not on the virtual GPU yet", instruction.site)
    return row
