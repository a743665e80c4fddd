"""The kernel's parameters as the learner wrote them: names and C types, from the source text.

PTX keeps sizes and kinds but no names. Where the text cannot be read (macros, templates),
parameters are called "argument 1", "argument 2" and so on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_QUALIFIERS = re.compile(
    r"\b(?:const|volatile|__restrict__|__restrict|restrict|struct|__grid_constant__)\b"
)
_ELEMENT_BYTES = {
    "char": 1, "signed char": 1, "unsigned char": 1, "int8_t": 1, "uint8_t": 1, "bool": 1,
    "short": 2, "unsigned short": 2, "int16_t": 2, "uint16_t": 2,
    "half": 2, "__half": 2, "__nv_bfloat16": 2,
    "int": 4, "unsigned": 4, "unsigned int": 4, "int32_t": 4, "uint32_t": 4, "float": 4,
    "long long": 8, "unsigned long long": 8, "int64_t": 8, "uint64_t": 8, "double": 8,
    "long": 8, "unsigned long": 8, "size_t": 8, "long long int": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Declared:
    """One parameter: `text` is the declaration, `element_bytes` 0 where it is not known."""

    name: str
    text: str
    is_pointer: bool
    element_bytes: int

    def __str__(self) -> str:
        return self.text or self.name


def declared_parameters(source: str, kernel: str, count: int) -> list[Declared]:
    """The declarations of a kernel's `count` parameters, as far as the text tells."""
    texts = _declarations(_COMMENT.sub(" ", source), kernel)
    found = [_declared(text) for text in texts][:count]
    return found + [unnamed(k) for k in range(len(found), count)]


def unnamed(index: int) -> Declared:
    """A parameter that the text does not tell about; index from 0."""
    return Declared(f"argument {index + 1}", "", False, 0)


def _declarations(source: str, kernel: str) -> list[str]:
    for match in re.finditer(rf"\b{re.escape(kernel)}\s*\(", source):
        before = source[: match.start()]
        if "__global__" not in re.split(r"[;}]", before)[-1]:
            continue
        inside = _until_closing(source, match.end())
        if inside is not None and inside.strip() not in ("", "void"):
            return [" ".join(part.split()) for part in _split(inside)]
    return []


def _until_closing(text: str, start: int) -> str | None:
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return None


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "(<[":
            depth += 1
        elif character in ")>]":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def _declared(text: str) -> Declared:
    match = re.search(r"(\w+)\s*(\[[^\]]*\])?\s*$", text)
    name = match[1] if match else text
    is_pointer = "*" in text or bool(match and match[2])
    base = text[: match.start(1)] if match else text
    base = " ".join(_QUALIFIERS.sub(" ", base.split("*")[0]).split())
    return Declared(name, text, is_pointer, _ELEMENT_BYTES.get(base, 0))
