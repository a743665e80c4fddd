"""A compiled kernel with its launch shape, and the one function that makes it.

The launch shape belongs to the kernel: threads, tile and shared memory are expressions over its
defines, so that `kernel.variant(STAGES=4)` also asks for four stages' worth of shared memory.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from course_lib import build, expressions, nvrtc, ptxas
from course_lib.diagnostics import CompileError, Diagnostic, error, hint_for
from course_lib.entry_points import choose
from course_lib.gpu_limits import KB, STATIC_SHARED_LIMIT, Occupancy, limits_of, occupancy
from course_lib.ptx_facts import ptx_of_line, quote, replaced_copies, shared_line, static_shared
from course_lib.ptxas import Resources

if TYPE_CHECKING:
    from course_lib.ptx.parse import Module

Size = int | str
"""A whole number, or an expression over the kernel's defines and constants."""

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

    # --- launch shape ----------------------------------------------------------------------------

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

        Raises CompileError like `compile_kernel`, and for a name that the source never mentions:
        such a variant would be the same kernel under another name.
        """
        for name in defines:
            self.check_define(name)
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

    def check_define(self, name: str) -> None:
        """Raise CompileError where the source never mentions `name`."""
        sizes = (self.shape.threads, self.shape.shared, *(self.shape.tile or ()))
        mentioned = " ".join([self.source, *map(str, sizes)])
        words = set(re.findall(r"[A-Za-z_]\w*", mentioned))
        if name in words:
            return
        close = difflib.get_close_matches(name, sorted(words), n=1)
        hint = f"did you mean `{close[0]}`?" if close else "use the name in the source first."
        raise CompileError(
            [error(f"`{name}` does not occur in the source, so setting it changes nothing", hint)],
            self.source,
            f"This is no variant of `{self.name}`.",
        )

    # --- what the compiler made ------------------------------------------------------------------

    def ptx(self, line: int | None = None) -> str:
        """The PTX; with `line`, only what that line of the cell became."""
        if line is None:
            return self.ptx_text
        found = ptx_of_line(self.ptx_text, line) or "// this line became no instructions"
        return f"{quote(self.source, line)}\n{found}"

    @property
    def module(self) -> Module:
        """The PTX as typed instructions."""
        return build.parsed(self.ptx_text)

    @property
    def assembled(self) -> ptxas.Assembled:
        """Cubin and resources; raises CompileError, or NoAssembler where there is no ptxas."""
        return build.assembled(self.ptx_text, self.arch)

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
        """The same kernel with other PTX, such as one with clock stamps, assembled when needed."""
        return replace(
            self, ptx_text=ptx_text, rewritten_ptx=True, extra_parameters=extra_parameters
        )

    def sass(self, line: int | None = None) -> str:
        """Machine code as text, by CUDA's disassembler; with `line`, of that line of the cell."""
        from course_lib.disassembly import disassemble

        return disassemble(self.cubin, self.name, self.source, line)

    # --- running and travelling ------------------------------------------------------------------

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
    compiled = build.compiled(source, defines, tuple(options), arch)
    chosen = choose(name, compiled.ptx, source)
    kernel = Kernel(
        chosen, source, compiled.ptx, defines, tuple(options), arch, shape, compiled.warnings
    )
    _check_shared(kernel)
    try:
        build.assembled(kernel.ptx_text, arch)
    except ptxas.NoAssembler:
        pass  # the virtual GPU needs none; `.resources` and `.cubin` will say so
    except CompileError as problem:
        raise _in_source(problem, source) from None
    _check_shape(kernel)
    return kernel


def _in_source(problem: CompileError, source: str) -> CompileError:
    return CompileError(problem.diagnostics, source, problem.title)


def _check_shared(kernel: Kernel) -> None:
    """Refuse more than 48 KB of static shared memory, which no GPU's driver takes at launch."""
    size = static_shared(kernel.ptx_text, kernel.name)
    if size <= STATIC_SHARED_LIMIT:
        return
    line, column = shared_line(kernel.source)
    words = f"uses too much shared data: {size / KB:g} KB static, 48 KB allowed"
    hint = f"{hint_for(words)} Here that is `--shared {size}`."
    raise CompileError([error(f"`{kernel.name}` {words}", hint, line, column)], kernel.source)


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
