"""Reads tests/answers/EXERCISE: right and wrong answers, each with what it must score.

A file is a header of ``key: value`` lines in ``//`` comments, then a whole ``%%cuda`` cell or, with
``base:``, an edit of another file's cell: ``<<<<`` old text ``====`` new text ``>>>>``, repeated.

    title      what this answer is, in a sentence
    scores     `full`, or a list `part points, part points` of those parts that lose some
    says       a fragment of what the learner is told (only where something is lost)
    literals   `name = value; name = value`, in place of the right ones
    base       the file that is edited
    open       why the checks do not give this score yet (a strict expected failure)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "answers"
KEYS = {"title", "scores", "says", "literals", "base", "open"}


class BankError(ValueError):
    """A file that does not follow the format; the text says what is wrong with it."""


@dataclass(frozen=True)
class Answer:
    """One answer of a bank."""

    path: Path
    keys: dict[str, str]
    cell: str

    @property
    def right(self) -> bool:
        return self.keys["scores"] == "full"

    @property
    def lost(self) -> dict[str, float]:
        """Part → the points it is left with, for those parts that lose some."""
        if self.right:
            return {}
        pairs = (entry.rsplit(None, 1) for entry in self.keys["scores"].split(","))
        return {name.strip(): float(points) for name, points in pairs}


def read(path: Path) -> Answer:
    """One file, with its base's cell edited where it has a base."""
    keys: dict[str, str] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    while lines and lines[0].startswith("// ") and ":" in lines[0]:
        key, _, value = lines.pop(0)[3:].partition(":")
        if key not in KEYS or key in keys:
            raise BankError(f"{path.name}: `{key}` is no key, or is there twice")
        keys[key] = value.strip()
    missing = {"title", "scores"} - keys.keys()
    if missing or ("says" in keys) == (keys.get("scores") == "full"):
        raise BankError(f"{path.name}: needs title, scores and, where it loses points, says")
    body = "\n".join(lines).strip("\n")
    if "base" in keys:
        body = edited(read(path.parent / keys["base"]).cell, body, path.name)
    return Answer(path, keys, body)


def edited(text: str, edits: str, name: str) -> str:
    """``text`` with each edit applied; what an edit replaces must be there exactly once."""
    for part in filter(str.strip, edits.split("<<<<\n")):
        old, _, rest = part.partition("\n====\n")
        new = rest.partition(">>>>")[0].removesuffix("\n")
        if text.count(old) != 1:
            raise BankError(f"{name}: {text.count(old)} places for the edit of {old[:60]!r}")
        text = text.replace(old, new)
    return text


def bank(exercise: str) -> list[Answer]:
    """Every answer of an exercise."""
    return [read(path) for path in sorted((FOLDER / exercise).glob("*.cu"))]
