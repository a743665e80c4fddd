"""PTX text as a list of statements with their places in the text, for tools that rewrite it.

``parse.py`` reads PTX to understand it; rewriting needs something humbler and exact: where each
statement begins and ends.  Inline assembly may put several statements on one line, declare
registers inside braces and carry its own labels, so line numbers alone do not tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["instruction", "directive", "label", "open", "close"]


@dataclass(frozen=True)
class Statement:
    """One statement of an entry's body: ``text[start:end]`` of the whole PTX."""

    kind: Kind
    start: int
    end: int
    line: int  #: 0-based line of the PTX text on which it begins
    opcode: str = ""  #: "cp.async.cg.shared.global"; the name, for a label
    operands: str = ""
    guard: str = ""  #: predicate register of "@%p1" or "@!%p1"
    negated: bool = False


@dataclass(frozen=True)
class Entry:
    """Where an entry's parameter list and body are."""

    name: str
    parameters: tuple[int, int]  #: inside the parentheses
    has_parameter_list: bool
    body: tuple[int, int]  #: inside the braces
    statements: tuple[Statement, ...]


_SKIPPED = re.compile(r"\s+|//[^\n]*|/\*.*?\*/|\.loc\b[^\n]*|\.file\b[^\n]*", re.DOTALL)
_LABEL = re.compile(r"([%$\w]+)\s*:(?!:)")
_GUARDED = re.compile(r"@(!?)\s*([%$\w]+)\s*(.*)", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def find_entry(text: str, name: str) -> Entry:
    """Finds ``.entry name`` in PTX text.

    Raises ``KeyError`` where the text has no body for such an entry.
    """
    match = re.search(rf"\.entry\s+{re.escape(name)}(?![\w$])\s*", text)
    if match is None:
        raise KeyError(f"the PTX has no kernel called {name!r}")
    position, parameters, has_list = match.end(), (match.end(), match.end()), False
    if text.startswith("(", position):
        closing = text.index(")", position)
        parameters, has_list, position = (position + 1, closing), True, closing + 1
    opening = text.index("{", position)
    statements, closing = _statements(text, opening + 1)
    return Entry(name, parameters, has_list, (opening + 1, closing), tuple(statements))


def _statements(text: str, position: int) -> tuple[list[Statement], int]:
    """Statements from just after an opening brace to the brace that closes it."""
    found: list[Statement] = []
    depth, line, counted = 0, text.count("\n", 0, position), position
    while True:
        skipped = _SKIPPED.match(text, position)
        if skipped:
            position = skipped.end()
            continue
        line, counted = line + text.count("\n", counted, position), position
        character = text[position]
        if character == "}":
            if depth == 0:
                return found, position
            depth -= 1
            found.append(Statement("close", position, position + 1, line))
            position += 1
        elif character == "{":
            depth += 1
            found.append(Statement("open", position, position + 1, line))
            position += 1
        elif label := _LABEL.match(text, position):
            found.append(Statement("label", position, label.end(), line, label.group(1)))
            position = label.end()
        else:
            end = _end_of_statement(text, position)
            found.append(_statement(text[position : end - 1], position, end, line))
            position = end


def _end_of_statement(text: str, position: int) -> int:
    """Just after the semicolon that ends the statement which begins at ``position``."""
    for match in re.compile(r"//[^\n]*|/\*.*?\*/|\"[^\"]*\"|;", re.DOTALL).finditer(text, position):
        if match.group() == ";":
            return match.end()
    raise ValueError("a PTX statement has no end")


def _statement(content: str, start: int, end: int, line: int) -> Statement:
    content = _COMMENT.sub(" ", content).strip()
    if content.startswith("."):
        return Statement("directive", start, end, line, content)
    guard, negated = "", False
    if match := _GUARDED.match(content):
        negated, guard, content = match.group(1) == "!", match.group(2), match.group(3)
    words = content.split(None, 1)
    operands = words[1].strip() if len(words) > 1 else ""
    return Statement("instruction", start, end, line, words[0], operands, guard, negated)
