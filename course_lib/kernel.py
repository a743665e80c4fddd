"""A compiled kernel with its launch shape, and the one function that makes it.

The launch shape belongs to the kernel: threads, tile and shared memory are expressions over its
defines, so that `kernel.variant(STAGES=4)` also asks for four stages' worth of shared memory.
"""

from __future__ import annotations

import base64
import functools
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from course_lib import disk_cache, expressions, nvrtc, ptxas
from course_lib.diagnostics import CompileError, Diagnostic, cell_lines, error, hint_for
from course_lib.gpu_limits import (
    KB,
    STATIC_SHARED_LIMIT,
    Occupancy,
    arch_number,
    limits_of,
    occupancy,
)
from course_lib.ptxas import Resources

if TYPE_CHECKING:
    from course_lib.ptx.parse import Module

Size = int | str
"""A whole number, or an expression over the kernel's defines and constants."""

CACHE_FORMAT = 5
ASSUMED_THREADS = 256
"""Threads per block that figures assume where neither the kernel nor a problem has said."""


@dataclass(frozen=True)
class Shape:
    """How a kernel wants to be launched; None is left to the problem."""

    threads: Size | None = None
    tile: tuple[Size, ...] | None = None
    shared: Size = 0
    cluster: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Kernel:
    """CUDA C++ with its PTX. Made by `compile_kernel` or a `%%cuda` cell; never changes."""

    name: str
    source: str
    ptx_text: str
    defines: dict[str, object]
    options: tuple[str, ...]
    arch: str
    shape: Shape
    warnings: tuple[Diagnostic, ...] = ()
    rewritten_ptx: bool = False
    extra_parameters: int = 0

    # --- launch shape ------------------------------------------------------------------------------

    @property
    def threads(self) -> int | None:
        """Threads per block, or None where the problem chooses."""
        return None if self.shape.threads is None else self._value(self.shape.threads)

    @property
    def tile(self) -> tuple[int, ...] | None:
        """The tile of the output that a block makes, or None where the problem chooses."""
        if self.shape.tile is None:
            return None
        return tuple(self._value(size) for size in self.shape.tile)

    @property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory per block."""
        return self._value(self.shape.shared)

    @property
    def cluster(self) -> tuple[int, ...] | None:
        """Blocks per cluster, or None."""
        return self.shape.cluster

    def _value(self, size: Size) -> int:
        return expressions.evaluate(size, self.defines, self.source)

    def shaped(
        self,
        threads: Size | None = None,
        tile: Sequence[Size] | None = None,
        shared_bytes: Size | None = None,
    ) -> Kernel:
        """The same kernel with another launch shape; what is None stays as it is."""
        shape = replace(
            self.shape,
            threads=self.shape.threads if threads is None else threads,
            tile=self.shape.tile if tile is None else tuple(tile),
            shared=self.shape.shared if shared_bytes is None else shared_bytes,
        )
        return replace(self, shape=shape)

    def variant(self, **defines: object) -> Kernel:
        """The same source with other defines, compiled: `ring.variant(STAGES=4)`.

        Raises CompileError like `compile_kernel`.
        """
        return compile_kernel(
            self.source,
            self.name,
            {**self.defines, **defines},
            threads=self.shape.threads,
            tile=self.shape.tile,
            shared_bytes=self.shape.shared,
            cluster=self.shape.cluster,
            options=self.options,
            arch=self.arch,
        )

    # --- what the compiler made --------------------------------------------------------------------

    def ptx(self, line: int | None = None) -> str:
        """The PTX; with `line`, only what that line of the cell became."""
        if line is None:
            return self.ptx_text
        quote = _quote(self.source, line)
        found = ptx_of_line(self.ptx_text, line)
        return f"{quote}\n{found}" if found else f"{quote}\n// this line became no instructions"

    @property
    def module(self) -> Module:
        """The PTX as typed instructions."""
        return _parsed(self.ptx_text)

    @property
    def assembled(self) -> ptxas.Assembled:
        """Cubin and resources; raises CompileError, or NoAssembler where there is no ptxas."""
        return _assembled(self.ptx_text, self.arch)

    @property
    def cubin(self) -> bytes:
        """Machine code for `arch`."""
        return self.assembled.cubin

    @property
    def resources(self) -> Resources:
        """Registers, static shared memory, local memory, spills and advisories.

        The advisories are ptxas's (C75xx), after the course's own about what the compiler replaced.
        """
        assembled = self.assembled
        found = assembled.kernels.get(self.name, assembled.resources)
        return replace(found, advisories=(*self.replaced, *found.advisories))

    @property
    def replaced(self) -> tuple[str, ...]:
        """What the source asks for and the compiler silently made something else of."""
        return replaced_copies(self.source, self.ptx_text, self.arch)

    def blocks_per_sm(self, threads: int | None = None) -> Occupancy:
        """How many blocks of this kernel an SM holds at a time, and what limits it."""
        resources = self.resources
        chosen = threads or self.threads or ASSUMED_THREADS
        return occupancy(
            self.arch, chosen, resources.registers, resources.shared_bytes, self.shared_bytes
        )

    def rewritten(self, ptx_text: str, extra_parameters: int = 0) -> Kernel:
        """The same kernel with other PTX, such as one with clock stamps; assembled when asked for."""
        return replace(
            self, ptx_text=ptx_text, rewritten_ptx=True, extra_parameters=extra_parameters
        )

    def sass(self, line: int | None = None) -> str:
        """Machine code as text, by CUDA's disassembler; with `line`, of that line of the cell."""
        from course_lib.disassembly import disassemble

        return disassemble(self.cubin, self.name, self.source, line)

    # --- running and travelling --------------------------------------------------------------------

    def launch(self, grid: int | Sequence[int], *arrays: Any) -> Any:
        """Launch in this process: NumPy arrays on the virtual GPU, CuPy arrays on the real one.

        On the virtual GPU the run is timed and its `LaunchResult` comes back; on the real one None,
        and nothing guards it: a kernel that hangs there hangs the notebook. `verify` is the guarded
        way.
        """
        if self.threads is None:
            raise ValueError(
                f"{self.name} has no number of threads: write `--threads 256` on its %%cuda line, "
                f"or launch {self.name}.shaped(threads=256)"
            )
        if any(type(array).__module__.startswith("cupy") for array in arrays):
            from course_lib.real_gpu import device

            return device.launch(self, grid, *arrays)
        from course_lib.virtual_gpu.launch import launch

        result = launch(self, grid, list(arrays), order="timed")
        if result.printed:
            print(result.printed, end="" if result.printed.endswith("\n") else "\n")
        return result

    def to_spec(self) -> dict[str, Any]:
        """A plain dictionary from which `from_spec` makes the same kernel in another process."""
        return {
            "name": self.name,
            "source": self.source,
            "defines": dict(self.defines),
            "options": list(self.options),
            "arch": self.arch,
            "threads": self.shape.threads,
            "tile": list(self.shape.tile) if self.shape.tile else None,
            "shared_bytes": self.shape.shared,
            "cluster": list(self.shape.cluster) if self.shape.cluster else None,
            "ptx": self.ptx_text if self.rewritten_ptx else None,
            "extra_parameters": self.extra_parameters,
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Kernel:
        """The kernel of a `to_spec()`: compiled again, which the disk cache makes quick."""
        rest = {key: value for key, value in spec.items() if key not in ("ptx", "extra_parameters")}
        kernel = compile_kernel(**rest)
        if spec.get("ptx"):
            return kernel.rewritten(spec["ptx"], int(spec.get("extra_parameters", 0)))
        return kernel

    def __repr__(self) -> str:
        defines = "".join(f", {name}={value}" for name, value in self.defines.items())
        return f"Kernel({self.name}{defines}, {self.arch})"


# --- compiling ------------------------------------------------------------------------------------


def compile_kernel(
    source: str,
    name: str | None = None,
    defines: Mapping[str, object] | None = None,
    threads: Size | None = None,
    tile: Sequence[Size] | None = None,
    shared_bytes: Size = 0,
    cluster: Sequence[int] | int | None = None,
    options: Sequence[str] = (),
    arch: str | None = None,
) -> Kernel:
    """Compile CUDA C++ into a Kernel, or raise CompileError with the source's own lines.

    `name` is the kernel's name in the source; None takes the only one there is. `threads`, `tile`
    and `shared_bytes` (dynamic, bytes per block) may be expressions over defines and constants of
    the source, such as `"STAGES*49152"`. What was compiled before comes from the disk cache.
    """
    arch = arch or nvrtc.default_arch()
    defines = dict(defines or {})
    if isinstance(cluster, int):
        cluster = (cluster,)
    shape = Shape(
        threads, tuple(tile) if tile else None, shared_bytes, tuple(cluster) if cluster else None
    )
    compiled = _compiled(source, defines, tuple(options), arch)
    chosen = _choose(name, compiled.ptx, source)
    kernel = Kernel(
        chosen, source, compiled.ptx, defines, tuple(options), arch, shape, compiled.warnings
    )
    _check_shared(kernel)
    try:
        _assembled(kernel.ptx_text, arch)
    except ptxas.NoAssembler:
        pass  # the virtual GPU needs none; `.resources` and `.cubin` will say so
    except CompileError as problem:
        raise _in_source(problem, source) from None
    _check_shape(kernel)
    return kernel


def _in_source(problem: CompileError, source: str) -> CompileError:
    return CompileError(problem.diagnostics, source, problem.title)


_lock = threading.Lock()
_memory: dict[str, Any] = {}


def _remember(key: str, value: Any) -> Any:
    with _lock:
        if len(_memory) > 500:
            _memory.clear()
        _memory[key] = value
    return value


@functools.lru_cache(maxsize=1)
def toolchain() -> tuple[str, ...]:
    """What decides the compilers' output besides their input: part of every cache key."""
    from importlib import metadata

    versions = []
    packages = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cuda-nvcc")
    for package in packages:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} none")
    if versions[0].endswith("none"):  # a toolkit's NVRTC: only loading it tells its version
        versions.append(f"nvrtc {nvrtc.version()}")
    versions.append(str(ptxas.find()))
    headers = sorted(nvrtc.INCLUDE_FOLDER.rglob("*"))
    versions += [f"{h.name} {disk_cache.key_of(h.read_bytes())}" for h in headers if h.is_file()]
    return tuple(versions)


def _compiled(
    source: str, defines: Mapping[str, object], options: tuple[str, ...], arch: str
) -> nvrtc.Compiled:
    flags = nvrtc.define_options(defines)
    key = disk_cache.key_of(CACHE_FORMAT, toolchain(), source, flags, options, arch)
    if key in _memory:
        return _memory[key]
    # Headers of a learner's own folder may change without the source changing.
    own_headers = any(option.startswith(("-I", "--include-path")) for option in options)
    entry = None if own_headers else disk_cache.load("ptx", key)
    if entry is not None:
        warnings = tuple(Diagnostic(**warning) for warning in entry["warnings"])
        return _remember(key, nvrtc.Compiled(entry["ptx"], warnings))
    compiled = nvrtc.compile_source(source, defines=defines, options=options, arch=arch)
    if own_headers:
        return compiled
    warnings_plain = [asdict(warning) for warning in compiled.warnings]
    disk_cache.store("ptx", key, {"ptx": compiled.ptx, "warnings": warnings_plain})
    return _remember(key, compiled)


def _assembled(ptx: str, arch: str) -> ptxas.Assembled:
    key = disk_cache.key_of(CACHE_FORMAT, toolchain(), ptx, arch)
    if key in _memory:
        return _memory[key]
    entry = disk_cache.load("cubin", key)
    if entry is not None:
        kernels = {
            name: Resources(**{**values, "advisories": tuple(values["advisories"])})
            for name, values in entry["kernels"].items()
        }
        return _remember(key, ptxas.Assembled(base64.b64decode(entry["cubin"]), kernels))
    made = ptxas.assemble(ptx, arch)
    disk_cache.store(
        "cubin",
        key,
        {
            "cubin": base64.b64encode(made.cubin).decode(),
            "kernels": {name: asdict(found) for name, found in made.kernels.items()},
        },
    )
    return _remember(key, made)


@functools.lru_cache(maxsize=64)
def _parsed(ptx: str) -> Module:
    from course_lib.ptx.parse import parse

    return parse(ptx)


# --- which kernel, and does its shape make sense -----------------------------------------------------

_ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$]+)", re.M)
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


def _choose(name: str | None, ptx: str, source: str) -> str:
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
        f"the name after %%cuda is the kernel's: `%%cuda {plain_name(found[0])}`, or rename the kernel.",
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


_SHARED_VARIABLE = re.compile(
    r"^\s*(?:\.visible\s+|\.weak\s+)?\.shared\s+\.align\s+\d+\s+\.(?:b|u|s|f)(\d+)\s+([\w$]+)(?:\[(\d+)\])?\s*(?:=|;)",
    re.M,
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


def _check_shared(kernel: Kernel) -> None:
    """Refuse more than 48 KB of static shared memory, which no GPU's driver takes at launch."""
    size = static_shared(kernel.ptx_text, kernel.name)
    if size <= STATIC_SHARED_LIMIT:
        return
    line, column = _shared_line(kernel.source)
    words = f"uses too much shared data: {size / KB:g} KB static, 48 KB allowed"
    raise CompileError(
        [error(f"`{kernel.name}` {words}", hint_for(words), line, column)], kernel.source
    )


def _shared_line(source: str) -> tuple[int, int]:
    for number, text in enumerate(source.splitlines(), 1):
        column = text.find("__shared__")
        if column >= 0 and "extern" not in text[:column]:
            return number, column + 1
    return 0, 0


def _check_shape(kernel: Kernel) -> None:
    """Work out the launch shape now, so that a wrong expression is an error of this cell."""
    limits = limits_of(kernel.arch)
    try:
        threads, tile, shared = kernel.threads, kernel.tile, kernel.shared_bytes
    except expressions.ExpressionError as problem:
        raise _shape_error(kernel, str(problem)) from None
    del tile
    if threads is not None and not 1 <= threads <= limits.threads_per_block:
        raise _shape_error(
            kernel, f"a block has 1 to {limits.threads_per_block} threads, not {threads}"
        )
    total = shared + static_shared(kernel.ptx_text, kernel.name)
    if shared < 0 or total > limits.shared_per_block:
        raise _shape_error(
            kernel,
            f"a block of {kernel.arch} has at most {limits.shared_per_block // KB} KB of shared "
            f"memory, and this kernel asks for {total / KB:.1f} KB",
            "fewer stages or a smaller tile: stages x bytes per stage is what counts.",
        )


def _shape_error(kernel: Kernel, words: str, hint: str = "") -> CompileError:
    return CompileError(
        [error(words, hint)], kernel.source, f"The launch shape of `{kernel.name}` does not work."
    )


_ASYNC_COPY = re.compile(r"\b(__pipeline_memcpy_async|memcpy_async)\s*\(")


def replaced_copies(source: str, ptx: str, arch: str) -> tuple[str, ...]:
    """An advisory where asynchronous copies of the source became plain loads and stores."""
    code = re.sub(r"//[^\n]*", "", source)
    asked = _ASYNC_COPY.search(code)
    if not asked or re.search(r"^\s*(?:@!?%p\d+\s+)?cp\.async\.", ptx, re.M):
        return ()
    line = code[: asked.start()].count("\n") + 1
    why = (
        f"{arch} has no cp.async, which came with sm_80"
        if arch_number(arch) < 80
        else "the compiler found no copy of 4, 8 or 16 aligned bytes from global to shared memory"
    )
    return (
        f"line {line}: {asked[1]} became plain loads and stores, because {why}. The kernel is still "
        "correct, but it waits for each copy: nothing overlaps.",
    )


# --- PTX beside its source line -----------------------------------------------------------------------


def _quote(source: str, line: int) -> str:
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
