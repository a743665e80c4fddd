"""What can be read off a PTX text beside its source, without parsing it into instructions."""

from __future__ import annotations

import re

from course_lib.diagnostics import cell_lines
from course_lib.gpu_limits import arch_number

_SHARED_VARIABLE = re.compile(
    r"^\s*(?:\.visible\s+|\.weak\s+)?\.shared\s+\.align\s+\d+\s+\.(?:b|u|s|f)(\d+)\s+([\w$]+)(?:\[(\d+)\])?\s*(?:=|;)",
    re.MULTILINE,
)


def static_shared(ptx: str, name: str) -> int:
    """Bytes of static shared memory that the PTX declares for kernel `name`, before alignment."""
    head, _, _ = ptx.partition(".entry")
    body = re.split(rf"\.entry\s+{re.escape(name)}\b", ptx, maxsplit=1)[-1].split(".entry")[0]
    sizes = [
        int(m[1]) // 8 * int(m[3] or 1)
        for part in (head, body)
        for m in _SHARED_VARIABLE.finditer(part)
        if part is body or re.search(rf"\b{re.escape(m[2])}\b", body)
    ]
    return sum(sizes)


def shared_line(source: str) -> tuple[int, int]:
    """Line and column of the first static `__shared__` in the source; zeros where none is."""
    for number, text in enumerate(source.splitlines(), 1):
        column = text.find("__shared__")
        if column >= 0 and "extern" not in text[:column]:
            return number, column + 1
    return 0, 0


_ASYNC_COPY = re.compile(r"\b(__pipeline_memcpy_async|memcpy_async)\s*\(")


def replaced_copies(source: str, ptx: str, arch: str) -> tuple[str, ...]:
    """An advisory where asynchronous copies of the source became plain loads and stores."""
    code = re.sub(r"//[^\n]*", "", source)
    if re.search(r"^\s*(?:@!?%p\d+\s+)?cp\.async\.", ptx, re.MULTILINE):
        return ()
    calls = [(code[: m.start()].count("\n") + 1, m[1]) for m in _ASYNC_COPY.finditer(code)]
    # A function that nobody calls leaves no instruction: nothing became anything.
    used = [(line, name) for line, name in calls if ptx_of_line(ptx, line)]
    if not used:
        return ()
    line, asked = used[0]
    why = (
        f"{arch} has no cp.async, which came with sm_80"
        if arch_number(arch) < 80
        else "the compiler found no copy of 4, 8 or 16 aligned bytes from global to shared memory"
    )
    return (
        (
            f"line {line}: {asked} became plain loads and stores, because {why}. The kernel is "
            "still correct, but it waits for each copy: nothing overlaps."
        ),
    )


def quote(source: str, line: int) -> str:
    """The source line as a comment. Raises ValueError for a line that is not there."""
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        raise ValueError(f"the source has lines 1 to {len(lines)}, not {line}")
    return f"// line {line}: {lines[line - 1].strip()}"


def ptx_of_line(ptx: str, line: int) -> str:
    """The instructions that line `line` of the cell became, inlined ones included."""
    kept = []
    for text, cell_line in zip(ptx.splitlines(), cell_lines(ptx), strict=True):
        stripped = text.strip()
        if cell_line != line or not stripped or stripped.startswith(("//", ".", "}", "{")):
            continue
        kept.append(stripped if stripped.startswith("$") else f"    {stripped}")
    return "\n".join(kept)
