"""Which kernel of a compiled cell is meant, and why it may not be there under its name."""

from __future__ import annotations

import re

from course_lib.diagnostics import CompileError, Diagnostic, error

_ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$]+)", re.MULTILINE)
_KERNEL_IN_SOURCE = re.compile(
    r"__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\([^)]*\)\s*|__cluster_dims__\s*\([^)]*\)\s*)*"
    r"(?:void\s+)?(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
)


def entries(ptx: str) -> list[str]:
    """Names of the kernels in a PTX text, as the linker sees them."""
    return _ENTRY.findall(ptx)


def plain_name(entry: str) -> str:
    """The name in the source of a kernel that C++ mangled: `_Z4ringPKj` gives `ring`."""
    match = re.match(r"_ZN?((?:\d+\w*)+)", entry)
    if not match:
        return entry
    rest, name = match[1], entry
    while number := re.match(r"\d+", rest):
        size = int(number[0])
        name = rest[number.end() : number.end() + size]
        rest = rest[number.end() + size :]
        if not entry.startswith("_ZN"):
            break
    return name


def choose(name: str | None, ptx: str, source: str) -> str:
    """The entry that `name` means (None: the only one). Raises CompileError that says why not."""
    found = entries(ptx)
    if name is None and len(found) == 1 and not found[0].startswith("_Z"):
        return found[0]
    if name in found and name is not None:
        return name
    raise CompileError(
        [_no_kernel(name, found, source)], source, "The cell compiled, but the kernel is not there."
    )


def _line_of(source: str, name: str | None) -> tuple[int, int]:
    for match in _KERNEL_IN_SOURCE.finditer(source):
        if name is None or match[1] == name:
            before = source[: match.start(1)]
            return before.count("\n") + 1, match.start(1) - before.rfind("\n")
    return 0, 0


def _no_kernel(name: str | None, found: list[str], source: str) -> Diagnostic:
    """Why there is no kernel called `name` among the entries `found`."""
    mangled = {plain_name(entry): entry for entry in found if entry.startswith("_Z")}
    wanted = name if name is not None else next(iter(mangled), None) if len(found) == 1 else None
    if wanted in mangled:
        line, column = _line_of(source, wanted)
        return error(
            f"the kernel `{wanted}` is there under the C++ name `{mangled[wanted]}`",
            f'write `extern "C" __global__ void {wanted}(...)`, so that it can be found by its name'
            + (_TEMPLATE_HINT if "I" in mangled[wanted].split(wanted)[-1][:1] else "")
            + ".",
            line,
            column,
        )
    template = _template_line(source, name)
    if template and not (name is None and found):
        line, column, called = template
        return error(
            f"`{called}` is a template that nobody instantiated, so it became no code",
            "make it a `__device__` function template and call it from an ordinary kernel: "
            f'`extern "C" __global__ void {name or called}(...) {{ body<STAGES>(...); }}`.',
            line,
            column,
        )
    listed = ", ".join(f"`{plain_name(entry)}`" for entry in found)
    if not found:
        return error(
            "there is no kernel in this cell",
            'a kernel looks like `extern "C" __global__ void name(...) { ... }`.',
        )
    if name is None:
        return error(
            f"there are {len(found)} kernels here: {listed}",
            "say which one is meant: `%%cuda name`, or compile_kernel(source, name).",
        )
    line, column = _line_of(source, plain_name(found[0]))
    return error(
        f"there is no kernel `{name}`; the cell has {listed}",
        f"the name after %%cuda is the kernel's: `%%cuda {plain_name(found[0])}`, or rename the "
        "kernel.",
        line,
        column,
    )


_TEMPLATE_HINT = (
    '; a template cannot be extern "C": make it a `__device__` template that such a kernel calls'
)


def _template_line(source: str, name: str | None) -> tuple[int, int, str] | None:
    pattern = re.compile(r"template\s*<[^>]*>\s*" + _KERNEL_IN_SOURCE.pattern)
    for match in pattern.finditer(source):
        if name is None or match[1] == name:
            before = source[: match.start(1)]
            return before.count("\n") + 1, match.start(1) - before.rfind("\n"), match[1]
    return None
