"""PTX to cubin, with the resources that the assembler reports: the course's one assembler.

The driver's own compiler refuses PTX that is newer than it, and nvJitLink drops `setmaxnreg`; a
cubin from `ptxas` loads on every driver of the same major version.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.diagnostics import CompileError, error, parse_ptxas_log

TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Resources:
    """What one thread or block of a kernel needs.

    registers: per thread. shared_bytes: static, per block. local_bytes: stack per thread.
    spill_bytes: the larger of spill stores and loads, per thread. advisories: ptxas's own words.
    """

    registers: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0
    spill_bytes: int = 0
    advisories: tuple[str, ...] = ()
    barriers: int = 0


@dataclass(frozen=True)
class Assembled:
    """A cubin and the resources of each kernel in it."""

    cubin: bytes
    kernels: dict[str, Resources] = field(default_factory=dict)

    @property
    def resources(self) -> Resources:
        """Of the only (or the first) kernel."""
        return next(iter(self.kernels.values()), Resources())


class NoAssembler(CompileError):
    """There is no `ptxas` on this machine."""


@functools.lru_cache(maxsize=1)
def find() -> str | None:
    """Where `ptxas` is: the wheel's, then CUDA_HOME's, then the one on PATH."""
    candidates: list[str | None] = []
    try:
        from cuda import pathfinder

        candidates.append(pathfinder.find_nvidia_binary_utility("ptxas"))
    except Exception:  # an older pathfinder has no such search
        candidates.append(_in_wheel())
    candidates.append(_in_wheel())
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        candidates.append(str(Path(home) / "bin" / "ptxas") if home else None)
    candidates.append(shutil.which("ptxas"))
    candidates.append("/usr/local/cuda/bin/ptxas")
    for path in candidates:
        if path and os.access(path, os.X_OK):
            return str(path)
    return None


def _in_wheel() -> str | None:
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("*/bin/ptxas")):
            return str(path)
    return None


@functools.lru_cache(maxsize=4)
def version(path: str | None = None) -> tuple[int, int] | None:
    """Version of `ptxas`, such as (13, 5); None where there is none."""
    path = path or find()
    if path is None:
        return None
    said = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=False, timeout=30
    ).stdout
    match = re.search(r"release (\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else None


def assemble(ptx: str, arch: str) -> Assembled:
    """A cubin of `ptx` for `arch`.

    Raises CompileError with the cell's lines (found through `.loc`), and NoAssembler.
    """
    path = find()
    if path is None:
        raise NoAssembler(
            [
                error(
                    "ptxas, which turns PTX into code for a real GPU, was not found",
                    "install the nvidia-cuda-nvcc wheel, or set CUDA_HOME to a CUDA toolkit. "
                    "The virtual GPU works without it.",
                )
            ],
            title="There is no assembler here.",
        )
    with tempfile.TemporaryDirectory(prefix="ptxas-") as folder:
        source, target = Path(folder) / "cell.ptx", Path(folder) / "cell.cubin"
        source.write_text(ptx)
        command = [path, "-v", "-lineinfo", "-arch", arch, "-o", str(target), str(source)]
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
        )
        log = ran.stdout + ran.stderr
        if ran.returncode or not target.exists():
            diagnostics = parse_ptxas_log(log, ptx) or [error(log.strip() or "ptxas failed")]
            raise CompileError(diagnostics, title="The compiler's PTX could not be assembled.")
        return Assembled(target.read_bytes(), read_log(log))


_NUMBERS = {
    "registers": r"Used (\d+) registers",
    "barriers": r"used (\d+) barriers",
    "shared_bytes": r"(\d+) bytes smem",
    "local_bytes": r"(\d+) bytes (?:cumulative )?stack",
}


def read_log(log: str) -> dict[str, Resources]:
    """Resources by kernel, from what `ptxas -v` prints."""
    blocks = re.split(r"Compiling entry function '(\w+)' for '\w+'", log)
    notes = advisories_of(log)
    kernels: dict[str, Resources] = {}
    for name, text in zip(blocks[1::2], blocks[2::2], strict=True):
        # Functions that were not inlined are listed too; the kernel's own properties come first.
        values: dict[str, int] = {}
        for key, pattern in _NUMBERS.items():
            found = [int(number) for number in re.findall(pattern, text)]
            values[key] = max(found, default=0)
        spills = [int(n) for n in re.findall(r"(\d+) bytes spill", text)]
        mine = tuple(note for note in notes if f"'{name}'" in note or "function '" not in note)
        kernels[name] = Resources(spill_bytes=max(spills, default=0), advisories=mine, **values)
    return kernels


def advisories_of(log: str) -> tuple[str, ...]:
    """ptxas's warnings and advisories (C75xx), each once, without the "ptxas" in front."""
    found = []
    for line in log.splitlines():
        match = re.match(
            r"^ptxas (?:\S+ )?(?:, line \d+; )?(info|warning)\s*:\s*(.*)$", line.strip()
        )
        if not match:
            continue
        kind, words = match.groups()
        if kind == "warning" or re.match(r"\(C7\d+\)", words):
            found.append(words)
    return tuple(dict.fromkeys(found))
