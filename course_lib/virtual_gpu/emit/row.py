"""One row of an opcode table: how an opcode is emitted, and what the analyses must know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Union

if TYPE_CHECKING:
    from course_lib.ptx.parse import Instruction
    from course_lib.virtual_gpu.emit.builder import Builder

Emitter = Callable[["Builder", "Instruction"], None]


@dataclass(frozen=True, slots=True)
class Row:
    """``defines`` counts the leading operands that are written.

    "memory" means: the first operand, unless it is an address.  ``cost`` is a class of
    ``abi.ISSUE_COST``, or "typed" where the type of the instruction decides.  ``operations`` is
    how many floating or integer operations the profile counts for each element.  ``yields``: the
    thread leaves to the scheduler, so the instruction is a basic block of its own.
    """

    emit: Emitter
    defines: Union[int, Literal["memory"]] = 1
    cost: str = "typed"
    operations: int = 1
    yields: bool = False
    ends_block: bool = False
