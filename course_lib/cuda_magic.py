"""The `%%cuda` cell: compile, say in one line what came out, and bind the kernel to its name.

    %%cuda ring -DSTAGES=3 --threads 384 --tile 128x256 --shared STAGES*49152

Line numbers in every message count the `%%cuda` line as line 1, as the notebook's editor does.
"""

from __future__ import annotations

import difflib
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from course_lib import ptxas
from course_lib.diagnostics import CompileError, error
from course_lib.gpu_limits import KB
from course_lib.kernel import ASSUMED_THREADS, Kernel, compile_kernel

USAGE = (
    "%%cuda NAME [-DNAME=VALUE ...] [--threads N] [--tile MxN] [--shared BYTES] [--cluster N] "
    "[--arch sm_90a] [options of NVRTC]"
)

_OWN = ("--threads", "--tile", "--shared", "--cluster", "--arch")
_MAX_WARNINGS = 3


@dataclass
class Request:
    """What the `%%cuda` line asks for."""

    name: str | None = None
    defines: dict[str, object] = field(default_factory=dict)
    threads: str | None = None
    tile: tuple[str, ...] | None = None
    shared: str | int = 0
    cluster: tuple[int, ...] | None = None
    arch: str | None = None
    options: list[str] = field(default_factory=list)


def parse_line(line: str) -> Request:
    """The arguments after `%%cuda`. Raises CompileError with what to write instead."""
    try:
        words = shlex.split(line)
    except ValueError as problem:
        raise _line_error(line, f"the %%cuda line cannot be read: {problem}") from None
    request = Request()
    while words:
        word = words.pop(0)
        if word in ("-D", "-I", *_OWN):
            if not words:
                raise _line_error(line, f"{word} needs a value", f"usage: {USAGE}")
            _take(request, line, word, words.pop(0))
        else:
            _take(request, line, *_split(word))
    return request


def _split(word: str) -> tuple[str, str | None]:
    """`--threads=8` gives its two parts, `-DS=3` gives `("-D", "S=3")`."""
    if word.startswith("-D"):
        return "-D", word[2:]
    name, equals, value = word.partition("=")
    if equals and name in _OWN:
        return name, value
    return word, None


def _take(request: Request, line: str, word: str, value: str | None) -> None:
    if word == "-D":
        name, equals, text = (value or "").partition("=")
        if not name.isidentifier():
            raise _line_error(line, f"`{name}` is no name for a define", "write it as -DSTAGES=3")
        request.defines[name] = _number(text) if equals else 1
    elif word == "--threads":
        request.threads = value
    elif word == "--tile":
        request.tile = _tile(value or "")
    elif word == "--shared":
        request.shared = value or 0
    elif word == "--cluster":
        request.cluster = _cluster(line, value or "")
    elif word == "--arch":
        request.arch = value
    elif word == "-I":
        request.options.append(f"-I{value}")
    elif word.startswith("-"):
        close = difflib.get_close_matches(word.partition("=")[0], _OWN, 1, 0.75)
        if close:
            raise _line_error(line, f"there is no option {word}", f"did you mean {close[0]}?")
        request.options.append(word)
    elif request.name is None:
        if not word.isidentifier():
            raise _line_error(line, f"`{word}` is no name for a kernel", f"usage: {USAGE}")
        request.name = word
    else:
        raise _line_error(line, f"`{word}` is one word too many", f"usage: {USAGE}")


def _number(text: str) -> object:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _tile(text: str) -> tuple[str, ...]:
    """`128x256` and `TILE_M,TILE_N` both are a tile."""
    separator = "x" if re.fullmatch(r"\d+(x\d+)*", text) else ","
    return tuple(part.strip() for part in text.split(separator))


def _cluster(line: str, text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+([x,]\d+){0,2}", text):
        raise _line_error(line, f"--cluster takes blocks, such as 2 or 2x1, not `{text}`")
    return tuple(int(part) for part in re.split("[x,]", text))


def _line_error(line: str, words: str, hint: str = "") -> CompileError:
    return CompileError([error(words, hint, line=1)], f"%%cuda {line}", "The %%cuda line is wrong.")


def kernel_from_cell(line: str, body: str) -> Kernel:
    """The kernel of a `%%cuda` cell: `line` is what follows `%%cuda`, `body` is the rest.

    The line itself becomes a comment, so that line numbers are those of the notebook's editor.
    """
    request = parse_line(line)
    comment = f"// %%cuda {line}".rstrip().rstrip("\\")
    return compile_kernel(
        f"{comment}\n{body}",
        request.name,
        request.defines,
        threads=request.threads,
        tile=request.tile,
        shared_bytes=request.shared,
        cluster=request.cluster,
        options=request.options,
        arch=request.arch,
    )


def kernel_from_text(cell: str) -> Kernel:
    """The kernel of a whole cell's text, whose first line starts with `%%cuda`."""
    first, _, body = cell.partition("\n")
    if not first.startswith("%%cuda"):
        raise ValueError("the text is no %%cuda cell: its first line must start with %%cuda")
    return kernel_from_cell(first.removeprefix("%%cuda").strip(), body)


# --- the line that a cell prints ------------------------------------------------------------------


def summary(kernel: Kernel, seconds: float) -> str:
    """What came out: time, registers, shared memory, spills, residency; advisories below it."""
    parts = [f"{kernel.name}: {_time(seconds)}"]
    try:
        resources = kernel.resources
    except ptxas.NoAssembler:
        advisories = kernel.replaced
        parts.append("no ptxas here, so registers and residency are not known (see doctor())")
    else:
        advisories = resources.advisories
        parts += [f"{resources.registers} registers", _shared(kernel, resources.shared_bytes)]
        if resources.spill_bytes:
            parts.append(f"{resources.spill_bytes} bytes of registers spilled to local memory")
        else:
            parts.append("no spills")
        if resources.local_bytes > resources.spill_bytes:
            parts.append(f"{resources.local_bytes} bytes of local memory")
        parts.append(_residency(kernel))
    lines = [" · ".join(parts)]
    lines += [f"  advisory: {words}" for words in advisories]
    warnings = [w for w in kernel.warnings if w.severity == "warning"]
    lines += [f"  warning in line {w.line}: {w.message}" for w in warnings[:_MAX_WARNINGS]]
    if len(warnings) > _MAX_WARNINGS:
        lines.append(f"  and {len(warnings) - _MAX_WARNINGS} more warnings: {kernel.name}.warnings")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return (
        f"compiled in {seconds:.2f} s"
        if seconds >= 0.02
        else "compiled before, taken from the cache"
    )


def _shared(kernel: Kernel, static: int) -> str:
    dynamic = kernel.shared_bytes
    if not static and not dynamic:
        return "no shared memory"
    kinds = [
        f"{_size(size)} shared ({kind})"
        for size, kind in ((static, "static"), (dynamic, "dynamic"))
        if size
    ]
    return " + ".join(kinds)


def _size(size: int) -> str:
    return f"{size / KB:.4g} KB" if size >= KB else f"{size} bytes"


def _residency(kernel: Kernel) -> str:
    found = kernel.blocks_per_sm()
    if kernel.threads is None:
        return f"with {ASSUMED_THREADS} threads {found}"
    return str(found)


# --- IPython --------------------------------------------------------------------------------------


def register(shell: Any) -> None:
    """Make `%%cuda` known to an IPython shell."""
    shell.register_magic_function(_magic(shell), magic_kind="cell", magic_name="cuda")


def _magic(shell: Any) -> Callable[[str, str], None]:
    def cuda(line: str, cell: str = "") -> None:
        """Compile the CUDA C++ of this cell and bind its kernel to its name."""
        run_cell(shell, line, cell)

    return cuda


def run_cell(shell: Any, line: str, cell: str) -> None:
    """One `%%cuda` cell: on success the kernel's name is bound and a line printed.

    On failure the name is unbound, so that no later cell runs yesterday's kernel by mistake.
    """
    start = time.perf_counter()
    try:
        kernel = kernel_from_cell(line, cell)
    except CompileError:
        _unbind(shell, line)
        raise
    shell.user_ns[kernel.name] = kernel
    print(summary(kernel, time.perf_counter() - start))


def _unbind(shell: Any, line: str) -> None:
    name = next((word for word in line.split() if word.isidentifier()), None)
    if name and isinstance(shell.user_ns.get(name), Kernel):
        del shell.user_ns[name]
