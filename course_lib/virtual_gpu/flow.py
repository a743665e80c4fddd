"""From a parsed kernel to what the emitters need: one flat list, basic blocks and live registers.

Calls are inlined, because a thread that yields must be able to leave the native function at any
point and come back: only one frame's registers can be saved.  Recursion is therefore refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Union

from course_lib.ptx.parse import (
    Address,
    Arguments,
    Function,
    Immediate,
    Instruction,
    Label,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)
from course_lib.virtual_gpu import abi

#: Carry flag of add.cc and the like, treated as one more predicate register.
CARRY = "%carry"
#: A kernel that inlines to more than this would take minutes to compile.
MAX_INSTRUCTIONS = 150_000
_MAX_INLINE_DEPTH = 64


class Unsupported(Exception):
    """The virtual GPU refuses this kernel: ``.reason`` in words, ``.site`` where."""

    def __init__(self, reason: str, site: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.site = site


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a symbol lies: ``space`` is "shared", "local", "param" or "global"."""

    space: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter in the packed parameter block (bytes)."""

    name: str
    size: int
    offset: int
    alignment: int
    type: str


@dataclass(slots=True)
class Block:
    """Instructions ``start`` to ``end`` of the flat list, and the blocks that may follow."""

    start: int
    end: int
    successors: list[int] = field(default_factory=list)
    live_in: int = 0  #: bit mask over ``FlatKernel.register_names``


@dataclass(slots=True)
class FlatKernel:
    """A kernel without calls, with everything placed in memory."""

    name: str
    module: Module
    registers: dict[str, str]
    code: list[Union[Instruction, Label]]
    symbols: dict[str, Placed]
    branch_targets: dict[str, tuple[str, ...]]
    parameters: list[Parameter]
    parameter_bytes: int
    static_shared: int  #: bytes of statically declared shared memory
    dynamic_offset: int  #: where the dynamic shared array begins
    local_bytes: int  #: local memory per thread
    global_data: bytes  #: initial content of the window of module variables
    blocks: list[Block] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  #: label -> block
    register_names: list[str] = field(default_factory=list)

    def live_registers(self, block: int) -> list[str]:
        """Names of the registers that are live where ``block`` begins."""
        return self.names_in(self.blocks[block].live_in)

    def names_in(self, mask: int) -> list[str]:
        found = []
        while mask:
            low = mask & -mask
            found.append(self.register_names[low.bit_length() - 1])
            mask ^= low
        return found


# --- inlining and placement ---------------------------------------------------------------------


def flatten(module: Module, name: str) -> FlatKernel:
    """Inlines all calls of kernel ``name`` and places its memory.  Raises ``Unsupported``."""
    if name not in module.functions:
        raise Unsupported(f"the PTX has no kernel called {name}")
    return _Flattener(module, module.functions[name]).run()


class _Flattener:
    def __init__(self, module: Module, kernel: Function) -> None:
        self.module, self.kernel = module, kernel
        self.registers = dict(kernel.registers)
        self.targets = dict(kernel.branch_targets)
        self.shared = [*module.shared, *kernel.shared]
        self.local = [*kernel.local, *kernel.call_params]
        self.code: list[Union[Instruction, Label]] = []
        self.inlined = 0

    def run(self) -> FlatKernel:
        self.expand(self.kernel.body, (self.kernel.name,))
        symbols: dict[str, Placed] = {}
        static = _place(self.shared, "shared", symbols)
        dynamic = self.module.dynamic_shared
        dynamic_offset = _align(static, max(16, dynamic.alignment if dynamic else 1))
        if dynamic:
            symbols[dynamic.name] = Placed("shared", dynamic_offset, 0)
        local_bytes = _align(_place(self.local, "local", symbols), 16)
        _place(self.module.globals, "global", symbols)
        parameters, parameter_bytes = _parameters(self.kernel, symbols)
        self.registers[CARRY] = "pred"
        return FlatKernel(
            self.kernel.name,
            self.module,
            self.registers,
            self.code,
            symbols,
            self.targets,
            parameters,
            parameter_bytes,
            static,
            dynamic_offset,
            local_bytes,
            global_image(self.module.globals, symbols),
        )

    def expand(self, body: Iterable[Union[Instruction, Label]], path: tuple[str, ...]) -> None:
        for item in body:
            if isinstance(item, Instruction) and item.family == "call":
                self.call(item, path)
            else:
                self.code.append(item)
            if len(self.code) > MAX_INSTRUCTIONS:
                raise Unsupported(
                    f"{self.kernel.name} has more than {MAX_INSTRUCTIONS} instructions after "
                    "inlining: too much to compile for the virtual GPU"
                )

    def call(self, call: Instruction, path: tuple[str, ...]) -> None:
        results, callee, arguments = _call_parts(call)
        function = self.module.functions.get(callee)
        if function is None:
            name = Symbol(callee)
            operands = (name, Arguments(results), Arguments(arguments))
            self.code.append(
                Instruction(
                    f"call.{callee}",
                    operands,
                    call.predicate,
                    call.negated,
                    call.site,
                    call.text_line,
                )
            )
            return
        if callee in path or len(path) > _MAX_INLINE_DEPTH:
            raise Unsupported(
                f"{callee} calls itself: recursion is not on the virtual GPU", call.site
            )
        self.inline(call, function, results, arguments, (*path, callee))

    def inline(
        self,
        call: Instruction,
        function: Function,
        results: tuple[Operand, ...],
        arguments: tuple[Operand, ...],
        path: tuple[str, ...],
    ) -> None:
        self.inlined += 1
        prefix = f"i{self.inlined}_"
        if len(arguments) != len(function.params) or len(results) != len(function.returns):
            raise Unsupported(f"call of {function.name} with other parameters", call.site)
        mapping: dict[str, Operand] = {}
        for register, kind in function.registers.items():
            renamed = f"%{prefix}{register.lstrip('%')}"
            self.registers[renamed] = kind
            mapping[register] = Register(renamed)
        for formal, actual in zip(
            (*function.params, *function.returns), (*arguments, *results), strict=False
        ):
            mapping[formal.name] = actual
        for variable in (*function.local, *function.call_params):
            renamed = prefix + variable.name
            mapping[variable.name] = Symbol(renamed)
            self.local.append(_renamed(variable, renamed))
        for variable in function.shared:  # one per module, however often it is inlined
            if all(variable.name != known.name for known in self.shared):
                self.shared.append(variable)
        for name, targets in function.branch_targets.items():
            self.targets[prefix + name] = tuple(prefix + target for target in targets)
        for item in function.body:
            if isinstance(item, Label):
                mapping[item.name] = Symbol(prefix + item.name)
        for name in function.branch_targets:
            mapping[name] = Symbol(prefix + name)
        end = f"{prefix}end"
        skip = f"{prefix}skip"
        if call.predicate:
            self.code.append(
                Instruction("bra", (Symbol(skip),), call.predicate, not call.negated, call.site)
            )
        self.expand(_renamed_body(function, mapping, end, call), path)
        self.code.append(Label(end))
        if call.predicate:
            self.code.append(Label(skip))


def _call_parts(call: Instruction) -> tuple[tuple[Operand, ...], str, tuple[Operand, ...]]:
    """(results, callee, arguments) of a call; an indirect one is refused."""
    operands = list(call.operands)
    results: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], Arguments):
        results = operands.pop(0).elements  # type: ignore[union-attr]
    callee = operands.pop(0) if operands else None
    if not isinstance(callee, Symbol):
        raise Unsupported("a call through a function pointer is not on the virtual GPU", call.site)
    arguments: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], Arguments):
        arguments = operands[0].elements
    return results, callee.name, arguments


def _renamed(variable: Variable, name: str) -> Variable:
    return Variable(
        variable.space,
        name,
        variable.size,
        variable.alignment,
        variable.element_type,
        variable.initialiser,
        variable.unsized,
        variable.text_line,
    )


def _renamed_body(
    function: Function, mapping: Mapping[str, Operand], end: str, call: Instruction
) -> Iterable[Union[Instruction, Label]]:
    cache: dict[tuple[Operand, ...], tuple[Operand, ...]] = {}
    for item in function.body:
        if isinstance(item, Label):
            target = mapping[item.name]
            assert isinstance(target, Symbol)
            yield Label(target.name)
            continue
        predicate = item.predicate
        if predicate is not None and predicate in mapping:
            renamed = mapping[predicate]
            predicate = renamed.name if isinstance(renamed, Register) else predicate
        if item.family == "ret":
            opcode, operands = "bra", (Symbol(end),)
        else:
            opcode = item.opcode
            operands = cache.get(item.operands)  # type: ignore[assignment]
            if operands is None:
                operands = tuple(_substitute(o, mapping) for o in item.operands)  # type: ignore
                cache[item.operands] = operands
        site = item.site or call.site
        yield Instruction(
            opcode, operands, predicate, item.negated, site, item.text_line, item.probe
        )


def _substitute(operand: Operand, mapping: Mapping[str, Operand]) -> Operand:
    if isinstance(operand, Register):
        return mapping.get(operand.name, operand)
    if isinstance(operand, Symbol):
        found = mapping.get(operand.name)
        if isinstance(found, Symbol):
            return Symbol(found.name, found.offset + operand.offset)
        return found if found is not None else operand
    if isinstance(operand, Address):
        base = _substitute(operand.base, mapping)
        coordinates = tuple(_substitute(c, mapping) for c in operand.coordinates)
        if not isinstance(base, (Register, Symbol, Immediate)):
            raise Unsupported("call with an unexpected parameter")
        return Address(base, operand.offset, coordinates)
    if isinstance(operand, Vector):
        return Vector(tuple(_substitute(e, mapping) for e in operand.elements))
    if isinstance(operand, Arguments):
        return Arguments(tuple(_substitute(e, mapping) for e in operand.elements))
    if isinstance(operand, Pair):
        return Pair(_substitute(operand.first, mapping), _substitute(operand.second, mapping))
    if isinstance(operand, Negated):
        return Negated(_substitute(operand.operand, mapping))
    return operand


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _place(variables: Iterable[Variable], space: str, symbols: dict[str, Placed]) -> int:
    """Lays variables one after the other, records them in ``symbols``, returns the bytes used."""
    offset = 0
    for variable in variables:
        if variable.name in symbols:
            raise Unsupported(f"two variables called {variable.name}")
        offset = _align(offset, variable.alignment)
        symbols[variable.name] = Placed(space, offset, variable.size)
        offset += variable.size
    return offset


def _parameters(kernel: Function, symbols: dict[str, Placed]) -> tuple[list[Parameter], int]:
    offset, parameters = 0, []
    for variable in kernel.params:
        offset = _align(offset, variable.alignment)
        symbols[variable.name] = Placed("param", offset, variable.size)
        parameters.append(
            Parameter(
                variable.name, variable.size, offset, variable.alignment, variable.element_type
            )
        )
        offset += variable.size
    return parameters, offset


def global_image(variables: Iterable[Variable], symbols: Mapping[str, Placed]) -> bytes:
    """The initial bytes of all module variables; pointers to them become windowed addresses."""
    image = bytearray()
    for variable in variables:
        placed = symbols[variable.name]
        image.extend(bytes(placed.offset + placed.size - len(image)))
        width = variable.element_bytes
        for k, value in enumerate(variable.initialiser):
            at = placed.offset + k * width
            if at + width > placed.offset + placed.size:
                break
            number = _initial_value(value, symbols, variable.name)
            image[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return bytes(image)


def _initial_value(value: Operand, symbols: Mapping[str, Placed], name: str) -> int:
    if isinstance(value, Immediate):
        return value.value
    if isinstance(value, Symbol) and value.name in symbols:
        placed = symbols[value.name]
        if placed.space == "global":
            return (abi.WINDOW_GLOBALS << abi.WINDOW_SHIFT) + placed.offset + value.offset
    raise Unsupported(f"the initial value of {name} is of a kind that is not supported")


# --- basic blocks and liveness ------------------------------------------------------------------


def registers_in(operand: Operand) -> Iterable[str]:
    """All register names that an operand mentions, in order."""
    if isinstance(operand, Register):
        if operand.name != "_":
            yield operand.name
    elif isinstance(operand, Address):
        if isinstance(operand.base, Register):
            yield operand.base.name
        for coordinate in operand.coordinates:
            yield from registers_in(coordinate)
    elif isinstance(operand, (Vector, Arguments)):
        for element in operand.elements:
            yield from registers_in(element)
    elif isinstance(operand, Pair):
        yield from registers_in(operand.first)
        yield from registers_in(operand.second)
    elif isinstance(operand, Negated):
        yield from registers_in(operand.operand)


def uses_and_definitions(item: Instruction) -> tuple[list[str], list[str]]:
    """Registers that an instruction reads, and those that it writes.

    A predicated write keeps the old value where it does not happen, so it reads as well.
    """
    from course_lib.virtual_gpu.emit import row_of

    written = row_of(item).defines
    if written == "memory":  # atom, mbarrier.arrive: a destination only where no address is first
        count = 0 if item.operands and isinstance(item.operands[0], Address) else 1
    else:
        assert isinstance(written, int)
        count = written
    uses = [r for operand in item.operands[count:] for r in registers_in(operand)]
    definitions = [r for operand in item.operands[:count] for r in registers_in(operand)]
    modifiers = item.opcode.split(".")
    if modifiers[0] in ("addc", "subc", "madc"):
        uses.append(CARRY)
    if "cc" in modifiers[1:]:
        definitions.append(CARRY)
    if item.predicate:
        uses.append(item.predicate)
        uses.extend(definitions)
    return uses, definitions


def analyse(kernel: FlatKernel) -> None:
    """Fills ``blocks``, ``labels`` and the live registers of each block."""
    _find_blocks(kernel)
    _find_successors(kernel)
    _find_live(kernel)


def _find_blocks(kernel: FlatKernel) -> None:
    """Blocks begin at labels, after control flow, and around everything that may yield."""
    from course_lib.virtual_gpu.emit import row_of

    kernel.code.append(Instruction("exit", ()))  # falling off the end is an exit
    leaders = {0}
    label_at: dict[str, int] = {}
    for k, item in enumerate(kernel.code):
        if isinstance(item, Label):
            leaders.add(k)
            label_at[item.name] = k
            continue
        row = row_of(item)
        if row.ends_block:
            leaders.add(k + 1)
        elif row.yields:
            leaders.update((k, k + 1))
    starts = sorted(k for k in leaders if k < len(kernel.code))
    ends = [*starts[1:], len(kernel.code)]
    kernel.blocks = [Block(start, end) for start, end in zip(starts, ends, strict=False)]
    block_at = {block.start: number for number, block in enumerate(kernel.blocks)}
    kernel.labels = {name: block_at[k] for name, k in label_at.items()}


def _find_successors(kernel: FlatKernel) -> None:
    for number, block in enumerate(kernel.blocks):
        last = kernel.code[block.end - 1]
        falls_through = number + 1 < len(kernel.blocks)
        if isinstance(last, Instruction):
            if last.family in ("bra", "brx"):
                block.successors.extend(branch_blocks(kernel, last))
            if last.family in ("bra", "brx", "ret", "exit", "trap") and not last.predicate:
                falls_through = False
        if falls_through:
            block.successors.append(number + 1)


def branch_blocks(kernel: FlatKernel, branch: Instruction) -> list[int]:
    """Target blocks of ``bra`` (one) or ``brx`` (its table)."""
    operand = branch.operands[-1] if branch.operands else None
    if not isinstance(operand, Symbol):
        raise Unsupported(f"{branch.opcode} without a label", branch.site)
    names: tuple[str, ...] = (operand.name,)
    if branch.family == "brx":
        if operand.name not in kernel.branch_targets:
            raise Unsupported(f"no table of targets called {operand.name}", branch.site)
        names = kernel.branch_targets[operand.name]
    missing = [name for name in names if name not in kernel.labels]
    if missing:
        raise Unsupported(f"no label called {missing[0]}", branch.site)
    return [kernel.labels[name] for name in names]


def _find_live(kernel: FlatKernel) -> None:
    """Backward data flow on bit masks: live in = used first, or live out and not written."""
    kernel.register_names = list(kernel.registers)
    bit = {name: 1 << k for k, name in enumerate(kernel.register_names)}
    used: list[int] = []
    kept: list[int] = []
    for block in kernel.blocks:
        reads = writes = 0
        for item in kernel.code[block.start : block.end]:
            if isinstance(item, Label):
                continue
            uses, definitions = uses_and_definitions(item)
            for name in uses:
                mask = bit.get(name)
                if mask is None:
                    raise Unsupported(f"{item.opcode} reads undeclared {name}", item.site)
                if not writes & mask:
                    reads |= mask
            for name in definitions:
                mask = bit.get(name)
                if mask is None:
                    raise Unsupported(f"{item.opcode} writes undeclared {name}", item.site)
                writes |= mask
        used.append(reads)
        kept.append(~writes)
    changed = True
    while changed:
        changed = False
        for number in range(len(kernel.blocks) - 1, -1, -1):
            block = kernel.blocks[number]
            live = 0
            for successor in block.successors:
                live |= kernel.blocks[successor].live_in
            live = used[number] | (live & kept[number])
            if live != block.live_in:
                block.live_in = live
                changed = True
