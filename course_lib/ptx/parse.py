"""PTX text as typed instructions, each with the chain of source lines that it was inlined through.

    module = parse(text)
    for item in module.functions["kernel"].body:   # Instruction or Label
        print(item, module.site_of(item).cell_line)

Names declared inside braces (inline assembly makes such scopes, and repeats its labels) are made
unique, so that a function's body is one flat list.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Union

#: Width in bits of each fundamental type; predicates count 1.
BITS: dict[str, int] = {
    "pred": 1,
    "b8": 8,
    "u8": 8,
    "s8": 8,
    "b16": 16,
    "u16": 16,
    "s16": 16,
    "f16": 16,
    "bf16": 16,
    "b32": 32,
    "u32": 32,
    "s32": 32,
    "f32": 32,
    "tf32": 32,
    "f16x2": 32,
    "bf16x2": 32,
    "u16x2": 32,
    "s16x2": 32,
    "b64": 64,
    "u64": 64,
    "s64": 64,
    "f64": 64,
    "b128": 128,
}

#: The learner's cell is always file 1: it is the file that NVRTC was given.
CELL_FILE = 1


class PtxSyntaxError(Exception):
    """The text is not PTX that this parser understands; ``.text_line`` is 0-based."""

    def __init__(self, message: str, text_line: int) -> None:
        super().__init__(f"{message} (line {text_line + 1} of the PTX)")
        self.text_line = text_line


# --- operands --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A declared register, predicates included."""

    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant.  ``float_bits`` is 32 or 64 where ``value`` is the bit pattern of a float."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, parameter, function or label, with a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """``[base+offset]``; ``coordinates`` for the tensor form ``[base, {x, y}]``."""

    base: Union[Register, Symbol, Immediate]
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``a|b``: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """``!p``, or ``-x`` of a register."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Arguments:
    """``(a, b)`` of a call."""

    elements: tuple[Operand, ...]


Operand = Union[Register, Special, Immediate, Symbol, Address, Vector, Pair, Negated, Arguments]


# --- what a module consists of ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the source: ``chain`` of (file, line, column), innermost first."""

    chain: tuple[tuple[int, int, int], ...] = ()

    @property
    def cell_line(self) -> int | None:
        """The innermost line of the learner's own cell, or None for code that has none."""
        return next((line for file, line, _ in self.chain if file == CELL_FILE), None)

    @property
    def cell_lines(self) -> tuple[int, ...]:
        """All lines of the learner's cell in the chain, innermost first."""
        return tuple(line for file, line, _ in self.chain if file == CELL_FILE)


@dataclass(slots=True)
class Instruction:
    """One instruction; ``site`` indexes ``Module.sites``, ``text_line`` is 0-based in the text."""

    opcode: str
    operands: tuple[Operand, ...]
    predicate: str | None = None
    negated: bool = False
    site: int = 0
    text_line: int = 0
    probe: bool = False  #: inserted between "// probe begin" and "// probe end"

    @property
    def family(self) -> str:
        """The word before the first dot: "cp" of "cp.async.cg.shared.global"."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The dotted words after the first."""
        return tuple(self.opcode.split(".")[1:])


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target."""

    name: str


@dataclass(slots=True)
class Variable:
    """A variable or parameter; sizes in bytes.  ``unsized`` marks ``extern`` dynamic arrays."""

    space: str
    name: str
    size: int
    alignment: int
    element_type: str
    initialiser: tuple[Operand, ...] = ()
    unsized: bool = False
    text_line: int = 0

    @property
    def element_bytes(self) -> int:
        return max(BITS[self.element_type] // 8, 1)


@dataclass(slots=True)
class Function:
    """A kernel or a device function.  ``registers`` maps name to type."""

    name: str
    is_entry: bool
    params: list[Variable] = field(default_factory=list)
    returns: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    body: list[Union[Instruction, Label]] = field(default_factory=list)
    shared: list[Variable] = field(default_factory=list)
    local: list[Variable] = field(default_factory=list)
    call_params: list[Variable] = field(default_factory=list)  #: .param declared inside the body
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    max_threads: tuple[int, ...] = ()

    @property
    def instructions(self) -> Iterator[Instruction]:
        return (item for item in self.body if isinstance(item, Instruction))


@dataclass(slots=True)
class Module:
    """A parsed PTX text."""

    version: str = ""
    target: str = ""
    files: dict[int, str] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=lambda: [Site()])
    functions: dict[str, Function] = field(default_factory=dict)
    shared: list[Variable] = field(default_factory=list)
    globals: list[Variable] = field(default_factory=list)
    dynamic_shared: Variable | None = None
    text: str = ""

    def site_of(self, instruction: Instruction) -> Site:
        return self.sites[instruction.site]

    @property
    def entries(self) -> list[str]:
        return [f.name for f in self.functions.values() if f.is_entry]


# --- parsing -----------------------------------------------------------------------------------

_BLANK = re.compile(r"(?:\s+|//(?! ?probe (?:begin|end))[^\n]*|/\*.*?\*/)+", re.S)
_PROBE = re.compile(r"// ?probe (begin|end)[^\n]*")
_LOC = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:\s*,\s*function_name\s+[^,\n]+,\s*inlined_at"
    r"\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*"
)
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"[^\n]*')
_LINE_DIRECTIVE = re.compile(r"\.(version|target|address_size)\b([^\n]*)")
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_HEADER = re.compile(r"(?:\.(?:visible|extern|weak|common)\s+)*\.(entry|func)\b")
_SIGNATURE = re.compile(r"\s*(?:\(([^)]*)\)\s*)?([\w$%]+)\s*(?:\((.*?)\))?\s*([^()]*)$", re.S)
_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(shared|global|const|local|param)\b"
)
_GUARD = re.compile(r"@(!?)\s*([%\w$]+)\s*")
_OPCODE = re.compile(r"[A-Za-z_][\w.:]*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_NAME = re.compile(r"[%$A-Za-z_][\w$.%]*")
_IGNORED_IN_BODY = (
    ".pragma", ".maxn", ".minn", ".align", ".reqntid", ".explicit", ".calltargets",
    ".callprototype", ".section", ".noreturn",
)  # fmt: skip
_PARAMETER_DIMENSIONS = re.compile(r"\[(\d*)\]")
_HEX_FLOAT = re.compile(r"(-?)0([fFdD])([0-9a-fA-F]+)$")
_INTEGER = re.compile(r"([+-]?)\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_SPECIAL = re.compile(
    r"%(?:(?:tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)(?:\.[xyzw])?"
    r"|laneid|warpid|nwarpid|smid|nsmid|gridid|is_explicit_cluster|cluster_ctarank|cluster_nctarank"
    r"|lanemask_\w+|clock(?:_hi|64)?|pm\d+(?:_64)?|envreg\d+|globaltimer(?:_lo|_hi)?"
    r"|reserved_smem\w+|total_smem_size|aggr_smem_size|dynamic_smem_size|current_graph_exec)$"
)


def split_operands(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    if not any(bracket in text for bracket in "{[("):
        return [part.strip() for part in text.split(",")] if text.strip() else []
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    if text[start:].strip():
        parts.append(text[start:].strip())
    return parts


def parse(text: str) -> Module:
    """Parses PTX text.  Raises ``PtxSyntaxError`` with the line that it did not understand."""
    return _Parser(text).run()


@dataclass(slots=True)
class _Raw:
    """A statement whose names are not resolved yet: labels may be used before they are met."""

    scope: int
    opcode: str
    operands: str
    predicate: str | None
    negated: bool
    site: int
    position: int
    probe: bool


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.module = Module(text=text)
        self.newlines = [match.start() for match in re.finditer("\n", text)]
        self.site = 0
        self.probe = False
        self.called_from: dict[tuple[int, int, int], tuple[int, int, int] | None] = {}
        self.site_index: dict[tuple[tuple[int, int, int], ...], int] = {(): 0}
        self.unique = 0
        self.function: Function | None = None
        # Scopes of the current function: parent and renamed names of each.
        self.parents: list[int] = []
        self.names: list[dict[str, str]] = []
        self.raw: list[_Raw | Label] = []
        self.open: list[int] = []

    # -- the loop over statements

    def run(self) -> Module:
        text, position, end = self.text, 0, len(self.text)
        while True:
            blank = _BLANK.match(text, position)
            if blank:
                position = blank.end()
            if position >= end:
                break
            position = self.statement(position)
            if position < 0:
                break
        if self.function is not None:
            raise self.error(f"function {self.function.name} has no end", end - 1)
        return self.module

    def statement(self, position: int) -> int:
        """Consumes one statement and returns the position after it; -1 at the debug sections."""
        text = self.text
        character = text[position]
        if character == ".":
            after = self.line_directive(position)
            if after:
                return after
            if text.startswith(".section", position) and self.function is None:
                return -1
        elif character == "/":
            match = _PROBE.match(text, position)
            if match is None:
                raise self.error("unfinished comment", position)
            self.probe = match.group(1) == "begin"
            return match.end()
        if self.function is None:
            return self.module_statement(position)
        if character == "{":
            self.enter_scope()
            return position + 1
        if character == "}":
            self.leave_scope()
            return position + 1
        if character == ";":
            return position + 1
        label = _LABEL.match(text, position)
        if label:
            self.raw.append(Label(self.declare(label.group(1), label.group(1))))
            return label.end()
        stop = text.find(";", position)
        if stop < 0:
            raise self.error("statement without a semicolon", position)
        self.body_statement(self.clean(text[position:stop]), position)
        return stop + 1

    def line_directive(self, position: int) -> int:
        """.loc, .file and the like, which end with their line; 0 if there is none here."""
        text = self.text
        match = _LOC.match(text, position)
        if match:
            self.set_location(match)
            return match.end()
        match = _FILE.match(text, position)
        if match:
            self.module.files[int(match.group(1))] = match.group(2)
            return match.end()
        match = _LINE_DIRECTIVE.match(text, position)
        if match:
            if match.group(1) != "address_size":
                setattr(self.module, match.group(1), match.group(2).split("//")[0].strip())
            return match.end()
        return 0

    def set_location(self, match: re.Match[str]) -> None:
        """Turns a .loc into a site.

        ``inlined_at`` gives one level, so the last .loc seen at the caller's place tells the next.
        Line 0 means code that belongs to no line; the former location says more.
        """
        numbers = [int(group) if group else 0 for group in match.groups()]
        here, caller = tuple(numbers[:3]), tuple(numbers[3:])
        if here[1] == 0:
            return
        self.called_from[here] = caller if match.group(4) else None  # type: ignore[index,assignment]
        chain: list[tuple[int, int, int]] = []
        at: tuple[int, int, int] | None = here  # type: ignore[assignment]
        while at is not None and len(chain) < 30 and at not in chain:
            chain.append(at)
            at = self.called_from.get(at)
        key = tuple(chain)
        if key not in self.site_index:
            self.site_index[key] = len(self.module.sites)
            self.module.sites.append(Site(key))
        self.site = self.site_index[key]

    # -- module level

    def module_statement(self, position: int) -> int:
        text = self.text
        if text[position] in "};":
            return position + 1
        if _HEADER.match(text, position):
            return self.function_header(position)
        stop = text.find(";", position)
        if stop < 0:
            raise self.error("statement without a semicolon", position)
        statement = self.clean(text[position:stop])
        if _VARIABLE.match(statement):
            self.module_variable(self.variable(statement, position))
        return stop + 1

    def module_variable(self, variable: Variable) -> None:
        if variable.space != "shared":
            self.module.globals.append(variable)
        elif variable.unsized:
            known = self.module.dynamic_shared
            if known is None or known.alignment < variable.alignment:
                self.module.dynamic_shared = variable
            if known is not None and known.name != variable.name:
                raise self.error("two dynamic shared arrays", 0)
        else:
            self.module.shared.append(variable)

    def function_header(self, position: int) -> int:
        """Reads ``.entry name(params) directives {``; a declaration without a body is skipped."""
        text = self.text
        kind = _HEADER.match(text, position)
        assert kind is not None
        stop = re.compile("[{;]").search(text, position)
        if stop is None:
            raise self.error("function without a body", position)
        if stop.group() == ";":
            return stop.end()
        match = _SIGNATURE.match(self.clean(text[kind.end() : stop.start()]))
        if match is None:
            raise self.error("unreadable function header", position)
        returns, name, params, directives = match.groups()
        function = Function(name, kind.group(1) == "entry")
        for declared, target in ((returns, function.returns), (params, function.params)):
            for item in split_operands(declared or ""):
                target.append(self.variable(item, position))
        limit = re.search(r"\.(?:maxntid|reqntid)\s+([\d\s,]+)", directives)
        if limit:
            function.max_threads = tuple(int(n) for n in re.findall(r"\d+", limit.group(1)))
        self.function, self.raw = function, []
        self.parents, self.names, self.open = [], [], []
        self.enter_scope()
        return stop.end()

    def variable(self, text: str, position: int) -> Variable:
        """A declaration such as ``.shared .align 16 .b8 tile[1024]``."""
        declaration, _, value = text.partition("=")
        declaration = re.sub(r"\.attribute\([^)]*\)", " ", declaration)
        words = declaration.split()
        space, element, name, alignment = "param", "", "", 0
        pointer = False
        k = 0
        while k < len(words):
            word = words[k]
            if word == ".align":
                k += 1
                if not pointer:
                    alignment = int(words[k])
            elif word == ".ptr":
                pointer = True
            elif word.startswith("."):
                bare = word[1:]
                if bare in BITS:
                    element = bare
                elif bare in ("shared", "global", "const", "local", "param") and not pointer:
                    space = bare
            else:
                name = " ".join(words[k:])
                break
            k += 1
        if not name or not element:
            raise self.error(f"unreadable declaration {text!r}", position)
        bare_name, _, dimensions = name.partition("[")
        count, unsized = 1, False
        for number in _PARAMETER_DIMENSIONS.findall("[" + dimensions if dimensions else ""):
            count *= int(number) if number else 0
            unsized = unsized or not number
        size = max(BITS[element] // 8, 1)
        initialiser = self.initialiser(value.strip())
        if unsized and initialiser:
            count, unsized = len(initialiser), False
        return Variable(
            space, bare_name.strip(), size * count, max(alignment, size), element,
            initialiser, unsized, self.line(position),
        )  # fmt: skip

    def initialiser(self, text: str) -> tuple[Operand, ...]:
        if not text:
            return ()
        flat = text.replace("{", "").replace("}", "") if text.startswith("{") else text
        return tuple(self.operand(part, None) for part in split_operands(flat))

    # -- inside a function

    def enter_scope(self) -> None:
        self.parents.append(self.open[-1] if self.open else -1)
        self.names.append({})
        self.open.append(len(self.names) - 1)

    def leave_scope(self) -> None:
        self.open.pop()
        if not self.open:
            self.finish_function()

    def declare(self, name: str, kind: str) -> str:
        """Registers a name in the current scope and returns its unique name."""
        if len(self.open) == 1:
            return name
        self.unique += 1
        prefix = "%" if name.startswith("%") else ""
        renamed = f"{prefix}{name.strip('%')}_s{self.unique}"
        self.names[self.open[-1]][name] = renamed
        return renamed

    def resolve(self, name: str, scope: int) -> str:
        while scope >= 0:
            found = self.names[scope].get(name)
            if found is not None:
                return found
            scope = self.parents[scope]
        return name

    def body_statement(self, statement: str, position: int) -> None:
        assert self.function is not None
        if statement.startswith("."):
            if self.body_directive(statement, position):
                return
        predicate, negated = None, False
        guard = _GUARD.match(statement)
        if guard:
            negated, predicate = guard.group(1) == "!", guard.group(2)
            statement = statement[guard.end() :]
        match = _OPCODE.match(statement)
        if match is None:
            raise self.error(f"no instruction in {statement!r}", position)
        self.raw.append(
            _Raw(
                self.open[-1], match.group(), statement[match.end() :].strip(), predicate, negated,
                self.site, position, self.probe,
            )
        )  # fmt: skip

    def body_directive(self, statement: str, position: int) -> bool:
        assert self.function is not None
        function = self.function
        if statement.startswith(".reg"):
            self.registers(statement, position)
            return True
        if statement.startswith(".branchtargets"):
            label = self.raw.pop()
            assert isinstance(label, Label)
            names = tuple(split_operands(statement[len(".branchtargets") :]))
            scope = self.open[-1]
            function.branch_targets[label.name] = tuple(self.resolve(n, scope) for n in names)
            return True
        if statement.startswith(".callprototype") or statement.startswith(".calltargets"):
            self.raw.pop()
            return True
        if _VARIABLE.match(statement):
            variable = self.variable(statement, position)
            if variable.space == "shared" and variable.unsized:
                self.module_variable(variable)
                return True
            if variable.space == "param" or len(self.open) > 1:
                self.unique += 1
                renamed = f"{variable.name}_s{self.unique}"
                self.names[self.open[-1]][variable.name] = renamed
                variable.name = renamed
            target = {
                "shared": function.shared,
                "local": function.local,
                "param": function.call_params,
            }.get(variable.space, self.module.globals)
            target.append(variable)
            return True
        if statement.startswith(_IGNORED_IN_BODY):
            return True
        raise self.error(f"unknown directive {statement.split()[0]}", position)

    def registers(self, statement: str, position: int) -> None:
        assert self.function is not None
        match = re.match(r"\.reg\s*\.(\w+)\s+(.*)$", statement, re.S)
        if match is None or match.group(1) not in BITS:
            raise self.error(f"unreadable register declaration {statement!r}", position)
        kind = match.group(1)
        for item in split_operands(match.group(2)):
            many = re.match(r"(%?[\w$]+)<(\d+)>$", item)
            names = [f"{many.group(1)}{k}" for k in range(int(many.group(2)))] if many else [item]
            if many and len(names) > 1_000_000:
                raise self.error("too many registers", position)
            for name in names:
                self.function.registers[self.declare(name, kind)] = kind

    def finish_function(self) -> None:
        assert self.function is not None
        function = self.function
        cache: dict[tuple[str, int], tuple[Operand, ...]] = {}
        for raw in self.raw:
            if isinstance(raw, Label):
                function.body.append(raw)
                continue
            key = (raw.operands, raw.scope)
            operands = cache.get(key)
            if operands is None:
                try:
                    operands = tuple(
                        self.operand(part, raw.scope) for part in split_operands(raw.operands)
                    )
                except PtxSyntaxError:
                    raise
                except (ValueError, IndexError) as error:
                    raise self.error(
                        f"unreadable operands {raw.operands!r}", raw.position
                    ) from error
                cache[key] = operands
            predicate = raw.predicate
            if predicate is not None:
                predicate = self.resolve(predicate, raw.scope)
            function.body.append(
                Instruction(
                    raw.opcode, operands, predicate, raw.negated, raw.site,
                    self.line(raw.position), raw.probe,
                )
            )  # fmt: skip
        function.branch_targets = {
            name: tuple(self.resolve(target, 0) for target in targets)
            for name, targets in function.branch_targets.items()
        }
        self.module.functions[function.name] = function
        self.function = None

    # -- operands

    def operand(self, text: str, scope: int | None) -> Operand:
        """One operand; ``scope`` None is module level."""
        first = text[:1]
        if first == "[":
            return self.address(text, scope)
        if first == "{":
            return Vector(tuple(self.operand(t, scope) for t in split_operands(text[1:-1])))
        if first == "(":
            return Arguments(tuple(self.operand(t, scope) for t in split_operands(text[1:-1])))
        if first == "!":
            return Negated(self.operand(text[1:].strip(), scope))
        if "|" in text:
            one, two = text.split("|", 1)
            return Pair(self.operand(one.strip(), scope), self.operand(two.strip(), scope))
        match = _HEX_FLOAT.match(text)
        if match:
            bits = 32 if match.group(2) in "fF" else 64
            value = int(match.group(3), 16) & ((1 << bits) - 1)
            return Immediate(value ^ (1 << (bits - 1)) if match.group(1) else value, bits)
        match = _INTEGER.match(text)
        if match:
            value = int(match.group(2), 0)
            return Immediate(-value if match.group(1) == "-" else value)
        if text == "WARP_SZ":  # PTX ISA, Predefined Constants
            return Immediate(32)
        if first == "-" and len(text) > 1:
            return Negated(self.operand(text[1:].strip(), scope))
        if text.startswith("generic("):
            inner, _, tail = text[len("generic(") :].partition(")")
            return self.named(inner.strip() + tail, scope)
        return self.named(text, scope)

    def named(self, text: str, scope: int | None) -> Operand:
        """A register, special register or symbol, the last with an offset perhaps."""
        match = _NAME.match(text)
        if match is None:
            raise ValueError(text)
        name = match.group()
        rest = text[match.end() :].strip()
        if scope is not None:
            name = self.resolve(name, scope)
        if self.function is not None and name in self.function.registers:
            return Register(name)
        if _SPECIAL.match(name):
            return Special(name)
        if name == "_":
            return Register("_")
        if rest and rest[0] not in "+-":
            raise ValueError(text)
        return Symbol(name, _sum(rest))

    def address(self, text: str, scope: int | None) -> Address:
        parts = split_operands(text.strip()[1:-1])
        match = re.match(r"\s*(?:([%$A-Za-z_][\w$.%]*)|(-?(?:0[xX][0-9a-fA-F]+|\d+)))(.*)$",
                         parts[0], re.S)  # fmt: skip
        if match is None:
            raise ValueError(text)
        offset = _sum(match.group(3))
        coordinates: tuple[Operand, ...] = ()
        if len(parts) > 1:
            coordinates = tuple(self.operand(part, scope) for part in parts[1:])
        if match.group(2):
            return Address(Immediate(int(match.group(2), 0)), offset, coordinates)
        base = self.named(match.group(1), scope)
        if not isinstance(base, (Register, Symbol)):
            raise ValueError(text)
        return Address(base, offset, coordinates)

    # -- places in the text

    def line(self, position: int) -> int:
        return bisect_right(self.newlines, position - 1)

    def error(self, message: str, position: int) -> PtxSyntaxError:
        return PtxSyntaxError(message, self.line(position))

    @staticmethod
    def clean(text: str) -> str:
        if "//" in text or "/*" in text:
            text = _COMMENT.sub("", text)
        return text.strip()


def _sum(text: str) -> int:
    """The byte offset in "+16", "+-4" or "+8+4"."""
    total = 0
    compact = text.replace(" ", "")
    for sign, number in re.findall(r"([+-]+)(0[xX][0-9a-fA-F]+|\d+)", compact):
        total += -int(number, 0) if sign.count("-") % 2 else int(number, 0)
    if compact and not re.fullmatch(r"(?:[+-]+(?:0[xX][0-9a-fA-F]+|\d+))+", compact):
        raise ValueError(text)
    return total
