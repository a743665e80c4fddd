"""The state of this machine, row by row, each with its fix.

`course_lib.doctor()` in a notebook, `make doctor` (`python -m course_lib.doctor`) in a terminal.
"""

from __future__ import annotations

import html
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from course_lib import devices, disk_cache, nvrtc, ptxas
from course_lib.diagnostics import CompileError
from course_lib.gpu_limits import KB

OK, WARN, PROBLEM = "ok", "warn", "problem"
_SIGNS = {OK: "✓", WARN: "!", PROBLEM: "✗"}
_COLOURS = {OK: "#1a7f37", WARN: "#9a6700", PROBLEM: "#cf222e"}

REINSTALL = "run `make lab` again: it installs the pinned requirements"


@dataclass(frozen=True)
class Row:
    """One thing that was looked at. `state` is "ok", "warn" or "problem"; `fix` is "" if ok."""

    name: str
    state: str
    value: str
    fix: str = ""


@dataclass(frozen=True)
class Report:
    """What `doctor()` found; shown as a table in a terminal and in a notebook."""

    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """No row is a problem; warnings leave the course usable."""
        return all(row.state != PROBLEM for row in self.rows)

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    @property
    def verdict(self) -> str:
        """One sentence about all of it."""
        problems = sum(row.state == PROBLEM for row in self.rows)
        warnings = sum(row.state == WARN for row in self.rows)
        if problems:
            noun = "problem" if problems == 1 else "problems"
            return f"{problems} {noun} to fix before the course works here."
        if warnings:
            noun = "thing" if warnings == 1 else "things"
            return f"The course works here; {warnings} {noun} could be better."
        return "Everything the course needs is here."

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = []
        for row in self.rows:
            lines.append(f"{_SIGNS[row.state]} {row.name:<{width}}  {row.value}")
            if row.fix:
                lines.append(f"  {'':<{width}}  → {row.fix}")
        return "\n".join([*lines, "", self.verdict])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        left = " style='text-align:left'"
        cells = "".join(
            f"<tr><td style='color:{_COLOURS[row.state]}'>{_SIGNS[row.state]} {row.state}</td>"
            f"<td{left}><b>{html.escape(row.name)}</b></td><td{left}>{html.escape(row.value)}</td>"
            f"<td{left}>{html.escape(row.fix)}</td></tr>"
            for row in self.rows
        )
        head = f"<tr><th></th><th{left}>what</th><th{left}>found</th><th{left}>fix</th></tr>"
        return f"<table>{head}{cells}</table><p>{html.escape(self.verdict)}</p>"


def doctor() -> Report:
    """Look at everything the course needs. Never raises: a check that fails is a row."""
    return Report(tuple(_guarded(name, check) for name, check in _CHECKS))


def _guarded(name: str, check: Callable[[], Row]) -> Row:
    try:
        return check()
    except Exception as problem:
        return Row(name, PROBLEM, f"looking at it failed: {problem}", REINSTALL)


def _dotted(version: tuple[int, int] | None) -> str:
    return "none" if version is None else f"{version[0]}.{version[1]}"


# --- the checks -----------------------------------------------------------------------------------


def _python() -> Row:
    found = sys.version_info
    value = f"{found.major}.{found.minor}.{found.micro} in {sys.prefix}"
    if found < (3, 11):
        return Row("Python", PROBLEM, value, "the course needs Python 3.11 or newer")
    if sys.platform != "linux":
        fix = "use Linux, WSL2, or the container (README.md): CuPy has no wheel for this system"
        return Row("Python", PROBLEM, f"{value}, {sys.platform}", fix)
    return Row("Python", OK, value)


def _cupy() -> Row:
    try:
        import cupy
    except Exception as problem:
        return Row("CuPy", PROBLEM, f"cannot be imported: {problem}", REINSTALL)
    value = cupy.__version__
    if devices.gpu() is None:
        return Row("CuPy", OK, f"{value} (without a GPU, for its compiler)")
    try:
        usable = bool(cupy.is_available()) and cupy.cuda.runtime.getDeviceCount() > 0
    except Exception as problem:
        return Row("CuPy", PROBLEM, f"{value} cannot use the GPU: {problem}", _cupy_fix())
    if not usable:
        return Row("CuPy", PROBLEM, f"{value} sees no GPU, though the driver does", _cupy_fix())
    built = cupy.cuda.runtime.runtimeGetVersion() // 1000
    driver = devices.driver_version()
    if driver and built > driver[0]:
        value = f"{value} is for CUDA {built}, the driver for CUDA {_dotted(driver)}"
        return Row("CuPy", PROBLEM, value, _cupy_fix())
    return Row("CuPy", OK, f"{value}, CUDA {built}")


def _cupy_fix() -> str:
    driver = devices.driver_version()
    if driver and driver[0] < 13:
        return "install the requirements for CUDA 12 drivers (README.md), or a newer driver"
    return "look at `nvidia-smi`; a container needs `--gpus all`"


def _nvrtc() -> Row:
    try:
        found = nvrtc.version()
    except CompileError as problem:
        return Row("NVRTC", PROBLEM, problem.diagnostics[0].message, REINSTALL)
    driver = devices.driver_version()
    value = _dotted(found)
    if driver and found[0] > driver[0]:
        value += f", newer than the driver's CUDA {_dotted(driver)}"
        fix = "a cubin needs a driver of its own major version: update the driver, or " + _cuda12()
        return Row("NVRTC", PROBLEM, value, fix)
    if driver and found > driver:
        value += f" (the driver takes {_dotted(driver)}; ptxas's cubins bridge that)"
    return Row("NVRTC", OK, value)


def _cuda12() -> str:
    return "install the requirements for CUDA 12 drivers (README.md)"


_HEADERS = {
    "cuda_pipeline.h": "nvidia-cuda-runtime",
    "cuda_fp16.h": "nvidia-cuda-runtime",
    "mma.h": "nvidia-cuda-crt",
    "cuda/ptx": "nvidia-cuda-cccl",
}


def _headers() -> Row:
    folders = nvrtc.include_folders()
    missing = [h for h in _HEADERS if not any((Path(f) / h).is_file() for f in folders)]
    shown = ", ".join(folder for folder in folders[1:]) or "no folder"
    if missing:
        packages = ", ".join(dict.fromkeys(_HEADERS[header] for header in missing))
        fix = f"install {packages} (or set CUDA_HOME to a toolkit)"
        return Row("CUDA headers", PROBLEM, f"{', '.join(missing)} not found in {shown}", fix)
    return Row("CUDA headers", OK, shown)


def _ptxas() -> Row:
    path = ptxas.find()
    if path is None:
        state = PROBLEM if devices.gpu() else WARN
        value = "not found: kernels run on the virtual GPU only, without register counts"
        return Row("ptxas", state, value, "install nvidia-cuda-nvcc, or set CUDA_HOME")
    found = ptxas.version(path)
    value = f"{_dotted(found)} at {path}"
    try:
        compiler = nvrtc.version()
    except CompileError:
        return Row("ptxas", OK, value)
    if found is None or found < compiler:
        value += f", older than NVRTC {_dotted(compiler)}"
        problem = _fit()
        if problem:
            fix = "install nvidia-cuda-nvcc of NVRTC's version"
            return Row("ptxas", PROBLEM, f"{value}: {problem}", fix)
        return Row("ptxas", OK, f"{value}, and takes its PTX")
    driver = devices.driver_version()
    if driver and found[0] > driver[0]:
        value += f", whose cubins a driver for CUDA {_dotted(driver)} does not load"
        return Row("ptxas", PROBLEM, value, f"update the driver, or {_cuda12()}")
    return Row("ptxas", OK, f"{value}, takes the PTX of NVRTC {_dotted(compiler)}")


def _fit() -> str:
    """Why ptxas does not take the PTX of this NVRTC, or ""."""
    source = 'extern "C" __global__ void probe(float *x) { x[0] = 1; }'
    try:
        ptxas.assemble(nvrtc.compile_ptx(source), nvrtc.DEFAULT_ARCH)
    except CompileError as problem:
        return problem.diagnostics[0].message
    return ""


def _gpu() -> Row:
    found = devices.gpu()
    if found is None:
        driver = devices.driver_version()
        value = "none: kernels run on the virtual GPU, which teaches everything but real time"
        if shutil.which("nvidia-smi") or driver:
            fix = "there is a driver, but it gives no GPU: look at `nvidia-smi`"
            return Row("GPU", WARN, "none that works", fix)
        return Row("GPU", OK, value)
    value = (
        f"{found.name}, {found.arch}, {found.sms} SMs, {found.shared_per_block // KB} KB shared "
        f"memory per block, driver for CUDA {_dotted(found.driver)}"
    )
    if found.capability < (8, 0):
        fix = (
            "cp.async needs sm_80: asynchronous copies become plain ones here; use the virtual GPU"
        )
        return Row("GPU", WARN, value, fix)
    if found.capability < (9, 0):
        fix = (
            "bulk copies, mbarrier waits and WGMMA need sm_90: those lessons run on the virtual GPU"
        )
        return Row("GPU", WARN, value, fix)
    return Row("GPU", OK, value)


def _virtual_gpu() -> Row:
    try:
        import llvmlite
        import numba
    except ImportError as problem:
        return Row("virtual GPU", PROBLEM, str(problem), REINSTALL)
    value = f"numba {numba.__version__}, llvmlite {llvmlite.__version__}, {os.cpu_count()} cores"
    if not _engine_is_compiled():
        fix = "`python -m course_lib.virtual_gpu.warm` does it now; else the first launch does"
        return Row("virtual GPU", WARN, f"{value}; its engine is not compiled yet", fix)
    return Row("virtual GPU", OK, f"{value}; its engine is compiled")


def _engine_is_compiled() -> bool:
    from course_lib.virtual_gpu import runtime

    return runtime.object_path().exists()


def _sandbox() -> Row:
    tool = shutil.which("bwrap")
    if tool is None:
        fix = "`apt install bubblewrap`; only those who grade strangers' work need it"
        return Row("sandbox", WARN, "bubblewrap is not installed", fix)
    command = [tool, "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "true"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    if ran.returncode:
        fix = "allow user namespaces (kernel.unprivileged_userns_clone=1), or grade in a container"
        return Row("sandbox", WARN, f"bubblewrap cannot start: {ran.stderr.strip()}", fix)
    return Row("sandbox", OK, "bubblewrap works")


def _cache() -> Row:
    folder = disk_cache.folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as problem:
        fix = (
            "set COURSE_LIB_CACHE to a folder that you may write to; without one all is recompiled"
        )
        return Row("cache", WARN, f"{folder}: {problem.strerror}", fix)
    free = shutil.disk_usage(folder).free
    if free < 200 << 20:
        return Row("cache", WARN, f"{folder}, {free >> 20} MB free", "make room on this disk")
    return Row("cache", OK, str(folder))


_CHECKS: tuple[tuple[str, Callable[[], Row]], ...] = (
    ("Python", _python),
    ("CuPy", _cupy),
    ("NVRTC", _nvrtc),
    ("CUDA headers", _headers),
    ("ptxas", _ptxas),
    ("GPU", _gpu),
    ("virtual GPU", _virtual_gpu),
    ("sandbox", _sandbox),
    ("cache", _cache),
)


class _CallableModule(ModuleType):
    """`course_lib.doctor` is this module once it was imported by its path, and still a call."""

    def __call__(self) -> Report:
        return doctor()


sys.modules[__name__].__class__ = _CallableModule


def main() -> int:
    """Print the report; 1 where something must be fixed."""
    report = doctor()
    print(report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
