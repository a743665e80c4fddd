"""CUDA C++ source to PTX, with or without a GPU.

NVRTC is reached through CuPy's binding, which needs no driver. PTX is asked for by a *virtual*
architecture (`compute_90a`): with a real one NVRTC would also run its assembler, which costs time
and is not the assembler that this course uses (see `ptxas.py`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.diagnostics import CELL_FILE, CompileError, Diagnostic, error, parse_nvrtc_log

__all__ = ["DEFAULT_ARCH", "CompileError", "Diagnostic", "compile_ptx", "default_arch"]

DEFAULT_ARCH = "sm_90a"
"""What kernels are compiled for where no GPU decides it: Hopper, the course's main subject."""

INCLUDE_FOLDER = Path(__file__).parent / "include"
"""The course's own device headers."""

# 177: "declared but never referenced", true of constants that only `--shared` uses.
BASE_OPTIONS = ("-std=c++17", "-lineinfo", "-diag-suppress", "177")


@dataclass(frozen=True)
class Compiled:
    """PTX, and the compiler's warnings about the cell."""

    ptx: str
    warnings: tuple[Diagnostic, ...]


def default_arch() -> str:
    """The architecture of this machine's GPU (`sm_90` gives `sm_90a`), else `DEFAULT_ARCH`."""
    from course_lib.devices import gpu

    found = gpu()
    if found is None:
        return DEFAULT_ARCH
    return arch_of(found.capability)


def arch_of(capability: tuple[int, int]) -> str:
    """`(9, 0)` gives `"sm_90a"`: from Hopper on, with the architecture's own instructions."""
    major, minor = capability
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


@functools.lru_cache(maxsize=1)
def header_folders() -> dict[str, str | None]:
    """Where CUDA's headers are: `{"cudart": folder, "cccl": folder}`, None where missing.

    `cuda.pathfinder` (which CuPy brings) looks into wheels, conda and toolkits.
    """
    from cuda import pathfinder

    folders: dict[str, str | None] = {}
    for library in ("cudart", "cccl"):
        try:
            folders[library] = pathfinder.find_nvidia_header_directory(library)
        except Exception:  # a name that this version of pathfinder does not know
            folders[library] = None
    return folders


@functools.lru_cache(maxsize=1)
def include_folders() -> tuple[str, ...]:
    """Every folder on NVRTC's include path, the course's own first."""
    folders = [str(INCLUDE_FOLDER)]
    runtime, cccl = header_folders()["cudart"], header_folders()["cccl"]
    for folder in (runtime, cccl):
        if folder:
            folders.append(folder)
    if runtime and (Path(runtime) / "cccl").is_dir():
        folders.append(str(Path(runtime) / "cccl"))
    folders += _toolkit_folders()
    return tuple(dict.fromkeys(folders))


def _toolkit_folders() -> list[str]:
    """A toolkit's include folders come last: `mma.h` may be there and in no wheel."""
    import os

    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = []
    for home in homes:
        include = Path(home) / "include" if home else None
        if include and include.is_dir():
            folders += [str(include)]
            folders += [str(include / "cccl")] if (include / "cccl").is_dir() else []
    return folders


def version() -> tuple[int, int]:
    """NVRTC's version, such as (13, 5). Raises CompileError where NVRTC cannot be loaded."""
    major, minor = _binding().getVersion()
    return int(major), int(minor)


def _binding():
    """CuPy's NVRTC binding, or a CompileError that says what to install."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as problem:
        raise CompileError(
            [
                error(
                    f"NVRTC, NVIDIA's compiler, could not be loaded: {problem}",
                    "install the course's requirements again (`make lab` does it), then look at "
                    "`course_lib.doctor()`.",
                )
            ],
            title="There is no compiler here.",
        ) from problem
    return nvrtc


def define_options(defines: Mapping[str, object]) -> tuple[str, ...]:
    """`{"STAGES": 3, "FAST": True}` gives `("-DSTAGES=3", "-DFAST=1")`."""
    return tuple(
        f"-D{name}={int(value) if isinstance(value, bool) else value}"
        for name, value in defines.items()
    )


def compile_ptx(
    source: str,
    *,
    defines: Mapping[str, object] | None = None,
    options: Sequence[str] = (),
    arch: str = DEFAULT_ARCH,
) -> str:
    """PTX of `source`: file 1 is the source itself, and line N in it is line N of the source.

    Raises CompileError with the messages of NVRTC.
    """
    return compile_source(source, defines=defines, options=options, arch=arch).ptx


def compile_source(
    source: str,
    *,
    defines: Mapping[str, object] | None = None,
    options: Sequence[str] = (),
    arch: str = DEFAULT_ARCH,
) -> Compiled:
    """Like `compile_ptx`, with the warnings kept."""
    nvrtc = _binding()
    flags = (
        *BASE_OPTIONS,
        f"-arch={arch.replace('sm_', 'compute_')}",
        *define_options(defines or {}),
        *options,
        *(f"-I{folder}" for folder in include_folders()),
    )
    program = nvrtc.createProgram(source, CELL_FILE, (), ())
    try:
        nvrtc.compileProgram(program, flags)
        ptx, log = nvrtc.getPTX(program), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as problem:
        raise _compile_error(source, str(problem), nvrtc.getProgramLog(program)) from None
    finally:
        nvrtc.destroyProgram(program)
    text = ptx.decode() if isinstance(ptx, bytes) else ptx
    return Compiled(cell_is_file_one(text.rstrip("\0")), tuple(parse_nvrtc_log(log)))


_CELL_ENTRY = re.compile(
    rf'^(\s*\.file\s+)(\d+)(\s+)"[^"\n]*\b{re.escape(CELL_FILE)}"', re.MULTILINE
)


def cell_is_file_one(ptx: str) -> str:
    """The PTX with the cell as file 1, under its plain name, whatever folder NVRTC ran in.

    NVRTC numbers files as they come up, and a header's function may come first.
    """
    entry = _CELL_ENTRY.search(ptx)
    if entry is None:
        return ptx
    number = entry[2]
    ptx = _CELL_ENTRY.sub(rf'\g<1>\g<2>\g<3>"{CELL_FILE}"', ptx, count=1)
    if number == "1":
        return ptx
    swapped = {number: "1", "1": number}

    def swap(match: re.Match[str]) -> str:
        return match[1] + swapped.get(match[2], match[2])

    return re.sub(r"(\.loc\s+|\.file\s+|inlined_at\s+)(\d+)", swap, ptx)


def _compile_error(source: str, problem: str, log: str) -> CompileError:
    diagnostics = parse_nvrtc_log(log)
    if not any(d.severity == "error" for d in diagnostics):
        words = log.replace("\0", "").strip() or problem
        diagnostics = [_option_error(words), *diagnostics]
    return CompileError(diagnostics, source)


def _option_error(words: str) -> Diagnostic:
    if "gpu-architecture" in words or "-arch" in words:
        known = ", ".join(f"sm_{number}" for number in _binding().getSupportedArchs())
        return error(words, f"this NVRTC compiles for {known} (and sm_90a).")
    return error(words, "look at the options on the %%cuda line.")
