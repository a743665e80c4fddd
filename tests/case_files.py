"""Reads tests/cases: kernels, or edits of kernels, with a declared verdict (see its README)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from course_lib.kernel import Kernel, compile_kernel
from course_lib.problems import Gemm, Problem, TileReduction

FOLDER = Path(__file__).parent / "cases"
VERDICTS = ("right", "ready", "reuse", "other", "deadlock", "memory", "incomplete")
KEYS = {
    "title", "problem", "verdict", "first", "second", "source", "kernel", "threads", "tile",
    "shared", "defines", "arch", "base", "note", "open",
}  # fmt: skip
INHERITED = ("problem", "kernel", "threads", "tile", "shared", "defines", "arch")


class CaseError(ValueError):
    """A case file that does not follow the format; the text says what is wrong with it."""


@dataclass(frozen=True)
class Case:
    """One case: its declarations and the source of its kernel."""

    path: Path
    keys: dict[str, str]
    text: str

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def verdict(self) -> str:
        return self.keys["verdict"]

    @cached_property
    def problem(self) -> Problem:
        """The problem that the kernel is judged on."""
        names = {"TileReduction": TileReduction, "Gemm": Gemm}
        found = eval(self.keys["problem"], {"__builtins__": {}}, names)
        if not isinstance(found, Problem):
            raise CaseError(f"{self.path.name}: `{self.keys['problem']}` is no problem")
        return found

    @cached_property
    def kernel(self) -> Kernel:
        """The compiled kernel, from the disk cache where it was compiled before."""
        keys = self.keys
        return compile_kernel(
            self.text,
            keys.get("kernel"),
            dict(pair.split("=", 1) for pair in keys.get("defines", "").split()),
            threads=keys.get("threads"),
            tile=keys["tile"].split("x") if "tile" in keys else None,
            shared_bytes=keys.get("shared", 0),
            arch=keys.get("arch"),
        )

    def lines(self, key: str) -> set[int]:
        """The 1-based lines of the source that hold the text of `first` or `second`."""
        wanted = self.keys.get(key)
        if wanted is None:
            return set()
        lines = list(enumerate(self.text.splitlines(), 1))
        found = set()
        for text in wanted.split(" | "):
            found |= {n for n, line in lines if text in line}
        if not found:
            raise CaseError(f"{self.path.name}: no line of the kernel holds `{wanted}`")
        return found


def load(path: Path) -> Case:
    """The case of one file. Raises CaseError where it does not follow the format."""
    keys, body = _header(path)
    if path.suffix == ".edit":
        base = load(path.parent / keys["base"]) if "base" in keys else None
        if base is None:
            raise CaseError(f"{path.name}: an .edit file needs a `base`")
        own = keys
        keys = {key: base.keys[key] for key in INHERITED if key in base.keys} | own
        if not body.strip() and not set(INHERITED) & set(own):
            raise CaseError(f"{path.name}: nothing is edited")
        body = _edited(path, base.text, body)
    missing = {"title", "problem", "verdict", "source"} - set(keys)
    if missing:
        raise CaseError(f"{path.name}: the header lacks {', '.join(sorted(missing))}")
    if keys["verdict"] not in VERDICTS or not path.name.startswith(keys["verdict"] + "_"):
        raise CaseError(f"{path.name}: its name and `verdict: {keys['verdict']}` don't agree")
    if keys["verdict"] in ("ready", "reuse", "other") and not {"first", "second"} <= set(keys):
        raise CaseError(f"{path.name}: `first` and `second` must quote the two accesses")
    case = Case(path, keys, body)
    case.lines("first"), case.lines("second")
    return case


def all_paths() -> list[Path]:
    """Every case file, by name."""
    return sorted(path for path in FOLDER.iterdir() if path.suffix in (".cu", ".edit"))


def all_cases() -> list[Case]:
    """Every case, by name. Raises CaseError for a file that does not follow the format."""
    return [load(path) for path in all_paths()]


def _header(path: Path) -> tuple[dict[str, str], str]:
    """The declarations, and what follows them."""
    keys: dict[str, str] = {}
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        match = re.fullmatch(r"// (\w+): (.+)", line)
        if match is None:
            return keys, "\n".join(lines[number:]).strip("\n") + "\n"
        if match[1] not in KEYS or match[1] in keys:
            raise CaseError(f"{path.name}: `{match[1]}` is unknown, or there twice")
        keys[match[1]] = match[2].strip()
    return keys, ""


def _edited(path: Path, base: str, edits: str) -> str:
    lines = base.splitlines()
    for old, new in _edits(path, edits):
        wanted = [line.strip() for line in old]
        starts = [
            at
            for at in range(len(lines) - len(old) + 1)
            if [line.strip() for line in lines[at : at + len(old)]] == wanted
        ]
        if len(starts) != 1:
            raise CaseError(f"{path.name}: `{wanted[0]}` is {len(starts)} times in the base")
        lines[starts[0] : starts[0] + len(old)] = new
    return "\n".join(lines) + "\n"


def _edits(path: Path, text: str) -> list[tuple[list[str], list[str]]]:
    """Pairs of (lines to find, lines to put there)."""
    found: list[tuple[list[str], list[str]]] = []
    last = ""
    for line in text.splitlines():
        sign = line[:1]
        if sign not in ("-", "+", ""):
            raise CaseError(f"{path.name}: `{line}` begins with neither - nor +")
        if sign == "-" and last != "-":
            found.append(([], []))
        if sign == "+" and not last:
            raise CaseError(f"{path.name}: `{line}` replaces nothing")
        if sign:
            found[-1][sign == "+"].append(line[1:])
        last = sign
    return found
