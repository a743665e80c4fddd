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
    ``abi.ISSUE_COST``, or "typed" where the type of the instruction decides.  ``flops`` and
    ``integer_ops`` are per element and only counted where the type fits.
    """

    emit: Emitter
    defines: Union[int, Literal["memory"]] = 1
    cost: str = "typed"
    operations: int = 1
    yields: bool = False
    ends_block: bool = False
