"""Compiler messages in the learner's own lines, each with a hint where one is known.

NVRTC and ptxas say what is wrong in the compiler's words. A learner also needs to know where in
*their* cell it is and what to do next. Both tables below are meant to grow: a hint is a row.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

CELL_FILE = "cell.cu"
"""The name that NVRTC is given for a learner's cell, and so the name of file 1 in its PTX."""


@dataclass(frozen=True)
class Diagnostic:
    """One message about one place. `line` and `column` count from 1; 0 means "not known"."""

    line: int
    column: int
    severity: str
    message: str
    hint: str = ""
    file: str = CELL_FILE

    def shown(self, source: str) -> str:
        """The message with the learner's line, a caret under the column, and the hint."""
        where = f"line {self.line}" if self.line else "the whole cell"
        if self.file != CELL_FILE:
            where = f"{self.file}, line {self.line}"
        parts = [f"{self.severity} in {where}: {self.message}"]
        lines = source.splitlines()
        if self.file == CELL_FILE and 0 < self.line <= len(lines):
            text = lines[self.line - 1].expandtabs(4)
            parts.append(f"{self.line:>5} | {text}")
            if self.column:
                tabs = lines[self.line - 1][: self.column - 1].count("\t")
                parts.append(f"      | {' ' * (self.column - 1 + 3 * tabs)}^")
        if self.hint:
            parts.append(f"  hint: {self.hint}")
        return "\n".join(parts)


class CompileError(Exception):
    """A cell did not become a kernel.

    `diagnostics` holds every message, errors first; `source` is the text they speak about.
    `str(error)` is what a learner reads.
    """

    def __init__(
        self, diagnostics: Iterable[Diagnostic], source: str = "", title: str = ""
    ) -> None:
        found = list(diagnostics)
        self.diagnostics = sorted(found, key=lambda d: d.severity != "error")
        self.source = source
        self.title = title
        super().__init__(title)

    def __str__(self) -> str:
        errors = [d for d in self.diagnostics if d.severity == "error"] or self.diagnostics
        count = f"{len(errors)} error{'s' if len(errors) != 1 else ''}"
        title = self.title or f"The cell did not compile ({count})."
        shown, said = [title], set()
        for diagnostic in errors:
            if diagnostic.hint in said:  # several errors of one cause need one hint
                diagnostic = replace(diagnostic, hint="")
            said.add(diagnostic.hint)
            shown.append(diagnostic.shown(self.source))
        return "\n\n".join(shown)

    def __reduce__(self) -> tuple:
        return (CompileError, (self.diagnostics, self.source, self.title))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback: the message says it all."""
        return [str(self)]


def error(message: str, hint: str = "", line: int = 0, column: int = 0) -> Diagnostic:
    """One error of the course's own, in the shape of a compiler's."""
    return Diagnostic(line, column, "error", message, hint)


# --- which header a name comes from ---------------------------------------------------------------

_HEADERS: tuple[tuple[str, str], ...] = (
    (r"__pipeline_\w+", "cuda_pipeline.h"),
    (r"__(half|float2half|half2float|hadd|hmul|hfma|low2|high2)\w*|half2?", "cuda_fp16.h"),
    (r"__nv_bfloat16\w*|__(float2bfloat16|bfloat162float)\w*", "cuda_bf16.h"),
    (r"__nv_fp8\w*", "cuda_fp8.h"),
    (r"\w*wmma_?\w*|nvcuda|fragment|load_matrix_sync|store_matrix_sync|mma_sync", "mma.h"),
    (r"cooperative_groups|cg|this_thread_block|thread_block", "cooperative_groups.h"),
    (r"ptx|cp_async_bulk\w*|mbarrier_\w+|fence_\w+", "cuda/ptx"),
    (r"barrier|memcpy_async|aligned_size_t", "cuda/barrier"),
    (r"pipeline|make_pipeline|thread_scope_\w+|pipeline_shared_state", "cuda/pipeline"),
    (r"u?int(8|16|32|64)_t|uintptr_t|intptr_t", "cuda/std/cstdint"),
    (r"numeric_limits", "cuda/std/limits"),
    (r"CUDART_\w+", "math_constants.h"),
)

_HOST_HEADERS = re.compile(
    r"^(iostream|vector|string|algorithm|cstdio|stdio\.h|cstdlib|stdlib\.h|memory|thread|assert\.h|cassert|"
    r"math\.h|cmath|string\.h|cstring)$"
)


def header_for(name: str) -> str | None:
    """The header that declares `name`, for names that learners often use without it."""
    for pattern, header in _HEADERS:
        if re.fullmatch(pattern, name):
            return header
    return None


# --- hints: what a message says -> what to do -----------------------------------------------------

_UNKNOWN_NAME = (
    re.compile(r'identifier "(?:\w+::)*(\w+)" is undefined'),
    re.compile(r'(?:namespace|class) "[^"]*" has no member "(\w+)"'),
)

_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"uses too much shared data",
        (
            "a static __shared__ array may have 48 KB in all. Make it dynamic: declare "
            "`extern __shared__ __align__(128) unsigned char shared[];` and give its size with "
            "`--shared BYTES` on the %%cuda line; BYTES may use the kernel's defines."
        ),
    ),
    (
        r"Instruction '(wgmma|setmaxnreg)[^']*' (?:not supported|cannot be compiled)",
        "this is a Hopper-only instruction: compile for it with `--arch sm_90a`.",
    ),
    (
        (
            r"Instruction '(cp\.async\.bulk|mbarrier\.try_wait|barrier\.cluster|mapa|fence\.proxy)"
            r"[^']*' (?:not supported|requires)"
        ),
        (
            "this instruction came with sm_90 (Hopper): compile with `--arch sm_90a`. "
            "On an older GPU "
            "use cp.async (`__pipeline_memcpy_async`), which came with sm_80."
        ),
    ),
    (
        r"(?:Instruction|Feature|Modifier) '[^']*'.* (?:not supported|requires)",
        (
            "the architecture that this cell is compiled for does not have this "
            "instruction. Look at "
            "`--arch` on the %%cuda line, or use an instruction that it has."
        ),
    ),
    (
        r"calling a __host__ function|without execution space annotations",
        "a function that a kernel calls needs `__device__` in front of it.",
    ),
    (
        r'expected a ";"',
        "look at the end of the line before the caret: a semicolon or a bracket is missing.",
    ),
    (
        r'"const (uint3|dim3)" to',
        "threadIdx, blockIdx and blockDim have three parts: `threadIdx.x`.",
    ),
    (
        r'a value of type "\w+" cannot be assigned to an entity of type "[^"]*\*"',
        "this sets the pointer itself: an element is `x[i] = ...`.",
    ),
    (
        r'at end of input|reached end of file|expected a "}"',
        "a brace that was opened is not closed: count { and }.",
    ),
    (
        r"must have void return type|__global__ function .* must have void",
        "a kernel returns nothing: results go through a pointer argument.",
    ),
    (
        r"expression must have a constant value",
        (
            "sizes of static arrays are fixed when the cell is compiled: use a "
            "`constexpr`, a #define, "
            "or a define from the %%cuda line (`-DSTAGES=3`)."
        ),
    ),
    (
        r"asm operand type size\(\d+\) does not match",
        (
            'the letter in the asm constraint gives a size: "r" is 32 bits, "l" is 64 (pointers), '
            '"h" is 16, "f" float, "d" double. A shared address for asm is 32 bits: '
            "`(unsigned)__cvta_generic_to_shared(p)`."
        ),
    ),
    (
        (
            r"Arguments mismatch for instruction|Parsing error near|Unknown modifier|"
            r"Illegal operand"
            r"|Not a name of any known instruction|Unexpected instruction types"
        ),
        (
            "the text inside asm(...) is not an instruction that the assembler knows in this form: "
            "compare it with the PTX manual, letter by letter, and check that each line "
            "ends with `;`."
        ),
    ),
    (
        r"Unsupported \.version|PTX \.version .* not supported|unsupported.*\.version",
        (
            "NVRTC is newer than ptxas. Install matching versions of nvidia-cuda-nvrtc and "
            "nvidia-cuda-nvcc; `course_lib.doctor()` shows both."
        ),
    ),
    (
        r"exceeds (?:the )?maximum|too many resources|register allocation failed",
        "fewer threads per block, or a smaller tile per thread, leave more registers for each.",
    ),
)


def hint_for(message: str) -> str:
    """What to do about a compiler's message, or "" where no row of the tables fits."""
    for pattern in _UNKNOWN_NAME:
        found = pattern.search(message)
        if found:
            name = found.group(1)
            header = header_for(name)
            if header:
                return f"`{name}` comes from a header: add `#include <{header}>`."
            return _near(name)
    missing = re.search(r'cannot open source file "([^"]+)"', message)
    if missing:
        return _missing_header(missing.group(1))
    for text, hint in _HINTS:
        if re.search(text, message):
            return hint
    return ""


_BUILTINS = [
    "__syncthreads",
    "__syncwarp",
    "__shfl_sync",
    "__shfl_xor_sync",
    "__shfl_down_sync",
    "__ballot_sync",
    "__ldg",
    "threadIdx",
    "blockIdx",
    "blockDim",
    "gridDim",
    "warpSize",
    "clock64",
    "atomicAdd",
    "__cvta_generic_to_shared",
    "__shared__",
    "__device__",
    "__global__",
    "__launch_bounds__",
    "__restrict__",
    "__pipeline_memcpy_async",
    "__pipeline_commit",
    "__pipeline_wait_prior",
    "unsigned",
    "float",
    "uint4",
    "float4",
    "printf",
]


_HOST_CONSTANTS = {
    "INFINITY": "__int_as_float(0x7f800000)",
    "NAN": "__int_as_float(0x7fffffff)",
    "FLT_MAX": "3.402823466e+38f",
    "FLT_MIN": "1.175494351e-38f",
    "FLT_EPSILON": "1.192092896e-07f",
    "INT_MAX": "2147483647",
    "INT_MIN": "(-2147483647 - 1)",
    "UINT_MAX": "4294967295u",
    "M_PI": "3.141592653589793",
}


def _near(name: str) -> str:
    """For a name that nothing declares: what was probably meant."""
    close = difflib.get_close_matches(name, _BUILTINS, 1, 0.8)
    if close:
        return f"did you mean `{close[0]}`?"
    if name in _HOST_CONSTANTS:
        return f"device code has no `{name}`: write `{_HOST_CONSTANTS[name]}`."
    if re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
        return f"give it a value: `-D{name}=2` on the %%cuda line, or `#define {name} 2` above."
    return ""


_STAND_INS = {
    "stdint.h": "cuda/std/cstdint",
    "cstdint": "cuda/std/cstdint",
    "type_traits": "cuda/std/type_traits",
    "limits": "cuda/std/limits",
    "climits": "cuda/std/climits",
    "utility": "cuda/std/utility",
    "array": "cuda/std/array",
    "tuple": "cuda/std/tuple",
    "atomic": "cuda/std/atomic",
}


def _missing_header(name: str) -> str:
    if name in _STAND_INS:
        return f"in device code it is `#include <{_STAND_INS[name]}>`."
    if _HOST_HEADERS.match(name):
        return (
            f"<{name}> is for code on the CPU. A cell holds device code only: leave it out "
            "(printf, assert and the maths need no header; <cuda/std/...> has what of "
            "std works on a GPU)."
        )
    return (
        f"no folder that NVRTC searches has <{name}>: check its spelling. If it is one of CUDA's, "
        "`course_lib.doctor()` says which headers were found."
    )


# --- reading the compilers' logs ------------------------------------------------------------------

_NVRTC_LINE = re.compile(
    r"^(?:(?P<file>[^\n(]+)\((?P<line>\d+)\)|At end of source): "
    r"(?P<kind>catastrophic error|error|warning|remark)"
    r"(?: #[\w-]+)?: (?P<message>.*)$"
)


def _hint_at(message: str, quote: str, column: int) -> str:
    """The hint for a message; for an unknown `namespace::name`, from the text under the caret."""
    if "must be a class or namespace name" in message or "must be a namespace" in message:
        for name in re.findall(r"\w+", quote[max(0, column - 1) :])[:3]:
            if name != "cuda" and (header := header_for(name)):
                return f"`{name}` comes from a header: add `#include <{header}>`."
    return hint_for(message)


def parse_nvrtc_log(log: str) -> list[Diagnostic]:
    """NVRTC's log as diagnostics, each with its column (from NVRTC's caret) and hint."""
    found: list[Diagnostic] = []
    lines = log.replace("\0", "").splitlines()
    index = 0
    while index < len(lines):
        match = _NVRTC_LINE.match(lines[index])
        index += 1
        if not match:
            continue
        message, column, details = match["message"], 0, []
        while index < len(lines) and lines[index].strip() and not _NVRTC_LINE.match(lines[index]):
            if lines[index].strip() == "^":
                column = max(1, len(lines[index].rstrip()) - 2)
            else:
                details.append(lines[index])
            index += 1
        # NVRTC's own quote of the source is the last detail line before the caret.
        extra = [d.strip() for d in (details[:-1] if column else details)]
        message = "; ".join([message, *extra])
        quote = details[-1][2:] if column and details else ""
        severity = "error" if match["kind"].endswith("error") else match["kind"]
        name = (match["file"] or CELL_FILE).strip()
        name = CELL_FILE if name.endswith(CELL_FILE) else name
        note = re.search(r"; cell\.cu\((\d+)\): note[^:]*: (.*)", message)
        if note:
            message = f"{message[: note.start()]} ({note[2]} of line {note[1]})"
        line = int(match["line"] or (note[1] if note else 0))
        found.append(
            Diagnostic(line, column, severity, message, _hint_at(message, quote, column), name)
        )
    return found


_PTXAS_LINE = re.compile(
    r"^ptxas (?:\S+, line (?P<line>\d+); )?(?P<kind>error|fatal)\s*: (?P<message>.*)$"
)


def parse_ptxas_log(log: str, ptx: str) -> list[Diagnostic]:
    """ptxas's errors as diagnostics; PTX lines become lines of the cell through `.loc`."""
    found: list[Diagnostic] = []
    for text in log.replace("application ptx input", "input").splitlines():
        match = _PTXAS_LINE.match(text.strip())
        if not match or "aborted due to errors" in match["message"]:
            continue
        message = match["message"]
        ptx_line = int(match["line"] or 0)
        diagnostic = Diagnostic(0, 0, "error", message, hint_for(message))
        if 0 < ptx_line <= ptx.count("\n") + 1:
            line = cell_line_of(ptx, ptx_line)
            quote = ptx.splitlines()[ptx_line - 1].strip()
            diagnostic = replace(diagnostic, line=line, message=f"{message} (PTX: `{quote}`)")
        if diagnostic not in found:
            found.append(diagnostic)
    return found


_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")


def cell_lines(ptx: str) -> list[int]:
    """For each line of the PTX text, the line of the cell that it comes from; 0 where unknown.

    An instruction inlined from a header belongs to the innermost line of the cell that led there.
    NVRTC writes a `.loc` for every step of such a chain, the outermost first, and each step names
    the one before it.
    """
    lines: list[int] = []
    resolved: dict[tuple[str, ...], int] = {}
    current = 0
    for text in ptx.splitlines():
        match = _LOC.search(text) if ".loc" in text else None
        if match:
            place, outer = match.groups()[:3], match.groups()[3:]
            if place[0] == "1":
                current = int(place[1])
            elif outer[0] == "1":
                current = int(outer[1])
            else:
                current = resolved.get(outer, 0)
            resolved[place] = current
        elif ".entry" in text or ".func" in text:
            current = 0
        lines.append(current)
    return lines


def cell_line_of(ptx: str, ptx_line: int) -> int:
    """The cell's line that made line `ptx_line` (from 1) of the PTX; 0 where none is known."""
    lines = cell_lines(ptx)
    return lines[ptx_line - 1] if 0 < ptx_line <= len(lines) else 0
