"""Whole-number expressions of a launch shape, such as `STAGES*49152`, worked out without `eval`.

Names are looked up in the kernel's defines first, then among the `#define`s and `constexpr`s of the
source. Only arithmetic is understood: no attribute, no call but `sizeof`, `min` and `max`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

_BINARY: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}

_SIZES = {
    "char": 1, "bool": 1, "int8_t": 1, "uint8_t": 1, "short": 2, "__half": 2, "half": 2,
    "__nv_bfloat16": 2, "uint16_t": 2, "int": 4, "unsigned": 4, "float": 4, "uint32_t": 4,
    "int32_t": 4, "__half2": 4, "half2": 4, "double": 8, "long": 8, "size_t": 8, "uint64_t": 8,
    "int64_t": 8, "float2": 8, "int2": 8, "uint2": 8, "float4": 16, "int4": 16, "uint4": 16,
}  # fmt: skip

_MAX_LENGTH = 400
_LIMIT = 1 << 62


class ExpressionError(ValueError):
    """An expression that is not whole-number arithmetic, or a name that nothing defines."""


def evaluate(
    expression: str | int,
    defines: Mapping[str, object] | None = None,
    source: str = "",
) -> int:
    """The value of `expression`. Raises ExpressionError with a sentence for the learner."""
    if isinstance(expression, int):
        return int(expression)
    return _Evaluator(defines or {}, constants_of(source)).value(str(expression))


def constants_of(source: str) -> dict[str, str]:
    """Names that the source gives a whole number: `#define N 4`, `constexpr int N = 4;`."""
    found: dict[str, str] = {}
    for match in re.finditer(
        r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+?)[ \t]*(?://.*)?$", source, re.MULTILINE
    ):
        found.setdefault(match[1], match[2])
    whole = r"(?:unsigned|signed|long|int|short|size_t|auto|u?int\d+_t)"
    pattern = rf"\b(?:constexpr|const)\s+(?:static\s+)?(?:{whole}\s+)+([^;{{}}]*?=[^;{{}}]*);"
    for match in re.finditer(pattern, source):
        for declarator in match[1].split(","):
            name, _, value = declarator.partition("=")
            if value.strip() and name.strip().isidentifier():
                found.setdefault(name.strip(), value.strip())
    return found


class _Evaluator:
    def __init__(self, defines: Mapping[str, object], constants: Mapping[str, str]) -> None:
        self.defines = defines
        self.constants = constants
        self.open: list[str] = []

    def value(self, text: str) -> int:
        if len(text) > _MAX_LENGTH:
            raise ExpressionError("the expression is too long for a launch shape")
        python = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text)
        python = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "_", python)
        python = re.sub(r"sizeof\s*\(\s*unsigned\s+(\w+)\s*\)", r"sizeof(\1)", python)
        try:
            tree = ast.parse(python.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ExpressionError(f"`{text}` is not arithmetic on whole numbers") from None
        return self.node(tree.body, text)

    def node(self, node: ast.AST, text: str) -> int:
        if isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            return int(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = self.node(node.operand, text)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            return self.binary(node, text)
        if isinstance(node, ast.Call):
            return self.call(node, text)
        raise ExpressionError(f"`{text}` is not arithmetic on whole numbers")

    def binary(self, node: ast.BinOp, text: str) -> int:
        left, right = self.node(node.left, text), self.node(node.right, text)
        if isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
            if right == 0:
                raise ExpressionError(f"`{text}` divides by zero")
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            result = left - quotient * right if isinstance(node.op, ast.Mod) else quotient
        elif isinstance(node.op, ast.LShift | ast.RShift):
            if not 0 <= right < 63:
                raise ExpressionError(f"`{text}` shifts by {right}")
            result = left << right if isinstance(node.op, ast.LShift) else left >> right
        elif type(node.op) in _BINARY:
            result = _BINARY[type(node.op)](left, right)
        else:
            raise ExpressionError(f"`{text}` is not arithmetic on whole numbers")
        if abs(result) > _LIMIT:
            raise ExpressionError(f"`{text}` is too large")
        return result

    def call(self, node: ast.Call, text: str) -> int:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "sizeof" and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            if node.args[0].id in _SIZES:
                return _SIZES[node.args[0].id]
            raise ExpressionError(
                f"the size of `{node.args[0].id}` is not known here: write its bytes"
            )
        if name in ("min", "max") and node.args and not node.keywords:
            values = [self.node(argument, text) for argument in node.args]
            return min(values) if name == "min" else max(values)
        raise ExpressionError(f"`{text}` is not arithmetic on whole numbers")

    def name(self, name: str) -> int:
        if name in self.open:
            raise ExpressionError(f"`{name}` is defined by itself")
        if name in self.defines:
            found = self.defines[name]
        elif name in self.constants:
            found = self.constants[name]
        else:
            # Constants are written in capitals; the loop counters of the source would be noise.
            capitals = [constant for constant in self.constants if constant.isupper()]
            known = ", ".join(dict.fromkeys([*self.defines, *capitals])) or "none"
            raise ExpressionError(
                f"nothing defines `{name}` (known names: {known}): give it as `-D{name}=...`"
            )
        if isinstance(found, int):
            return int(found)
        self.open.append(name)
        value = self.value(str(found))
        self.open.pop()
        return value
