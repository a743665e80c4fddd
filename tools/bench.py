"""What the course promises about its own speed, measured here: `make bench`.

    python -m tools.bench             a line for each promise, and whether it is kept
    python -m tools.bench --strict    and exit status 1 where one is not

The kernel is lesson 03's two-stage kernel without its extra arithmetic. Caches are warm, as after
set-up; each figure is the best of a few tries, because other programs only ever add time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
LESSON = ROOT / "notebooks" / "03_two_buffers.ipynb"
KERNEL = "two_buffers"
PLAIN = {"WORK": 0}
TIMED_IMPORT = (
    "import time; start = time.perf_counter(); import course_lib; "
    "print(time.perf_counter() - start)"
)


@dataclass(frozen=True)
class Figure:
    """One promise: what, the most seconds that it may take, and what it took."""

    what: str
    target: float
    seconds: float

    @property
    def met(self) -> bool:
        return self.seconds < self.target

    def __str__(self) -> str:
        verdict = "met" if self.met else "NOT MET"
        return f"{self.what:<58} {self.seconds:7.3f} s   target {self.target:5.2f} s   {verdict}"


def two_stage_source() -> str:
    """Lesson 03's kernel, as its cell has it without the %%cuda line."""
    for cell in nbformat.read(LESSON, as_version=4).cells:
        first, _, source = cell.source.partition("\n")
        if first.split()[:2] == ["%%cuda", KERNEL]:
            return source
    raise LookupError(f"{LESSON.name} has no kernel {KERNEL}")


def unseen(source: str) -> tuple[str, str]:
    """The kernel under a name that no cache has seen: `(name, source)`."""
    name = f"{KERNEL}_{uuid.uuid4().hex[:12]}"
    return name, re.sub(rf"\b{KERNEL}\b", name, source)


def best(tries: int, once: Callable[[], float]) -> float:
    """The smallest of `tries` measurements."""
    return min(once() for _ in range(tries))


def seconds_of(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def import_seconds() -> float:
    """`import course_lib` in a fresh process."""
    return float(subprocess.check_output([sys.executable, "-c", TIMED_IMPORT], cwd=ROOT))


def cell_to_result(source: str) -> float:
    """Compile a kernel that was never seen and run it on a small case."""
    from course_lib import TileReduction, compile_kernel
    from course_lib.problem_runs import launch_virtual

    name, text = unseen(source)
    problem = TileReduction.of_tiles(8, blocks=2)

    def act() -> None:
        kernel = compile_kernel(text, name, defines=PLAIN, threads=256)
        result, _ = launch_virtual(kernel, problem)
        assert result.ok, result

    return seconds_of(act)


def launch_seconds(source: str) -> float:
    """The launch alone on the 4096×4096 array: 64 MB through the virtual GPU's shared memory."""
    from course_lib import TileReduction, compile_kernel
    from course_lib.problem_runs import launch_virtual

    kernel = compile_kernel(source, KERNEL, defines=PLAIN, threads=256)
    problem = TileReduction()
    inputs = problem.inputs()

    def act() -> None:
        result, outputs = launch_virtual(kernel, problem, inputs)
        assert result.ok, result
        ok, _, words = problem.compare(outputs, problem.reference(inputs))
        assert ok, words

    act()
    return best(3, lambda: launch_virtual(kernel, problem, inputs)[0].seconds)


def checked_seconds(source: str) -> float:
    """The same launch with every access to shared memory checked for its ordering."""
    from course_lib import TileReduction, compile_kernel
    from course_lib.problem_runs import launch_virtual

    kernel = compile_kernel(source, KERNEL, defines=PLAIN, threads=256)
    problem = TileReduction()
    inputs = problem.inputs()
    launch_virtual(kernel, problem, inputs, check=True)
    return best(3, lambda: launch_virtual(kernel, problem, inputs, check=True)[0].seconds)


def hazard_seconds(source: str) -> float:
    """`find_hazards` of a kernel that is compiled and translated."""
    from course_lib import TileReduction, compile_kernel, find_hazards

    kernel = compile_kernel(source, KERNEL, defines=PLAIN, threads=256)
    problem = TileReduction()
    assert find_hazards(kernel, problem).ok
    return best(5, lambda: seconds_of(lambda: find_hazards(kernel, problem)))


def gemm_seconds(check: bool) -> float:
    """The launch of lesson 03's float GEMM of 64×64 tiles at 1024³."""
    from course_lib import Gemm
    from course_lib.cuda_magic import kernel_from_text
    from course_lib.problem_runs import launch_virtual

    for cell in nbformat.read(LESSON, as_version=4).cells:
        if cell.source.startswith("%%cuda gemm_two_buffers"):
            kernel = kernel_from_text(cell.source)
    problem = Gemm(1024, 1024, 1024)
    inputs = problem.inputs()
    launch_virtual(kernel, problem, inputs, check=check)
    return best(2, lambda: launch_virtual(kernel, problem, inputs, check=check)[0].seconds)


def half_gemm_seconds() -> float:
    """The launch of tests/kernels' ring of tensor copies into wgmma at 1024³, two stages."""
    from course_lib import Gemm, compile_kernel
    from course_lib.problem_runs import launch_virtual

    source = (ROOT / "tests" / "kernels" / "tma_wgmma_ring.cu").read_text()
    kernel = compile_kernel(
        source, threads=128, tile=("TILE_M", "TILE_N"), shared_bytes="STAGES * 24576",
        defines={"STAGES": 2}, arch="sm_90a",
    )  # fmt: skip
    problem = Gemm(1024, 1024, 1024, dtype="float16", tensor_maps=True)
    inputs = problem.inputs()
    result, outputs = launch_virtual(kernel, problem, inputs)
    assert result.ok and problem.compare(outputs, problem.reference(inputs))[0]
    return best(2, lambda: launch_virtual(kernel, problem, inputs)[0].seconds)


def stress_seconds(source: str) -> float:
    """A thousand iterations of `stress` at 256×256 on the virtual GPU."""
    from course_lib import TileReduction, compile_kernel, stress

    kernel = compile_kernel(source, KERNEL, defines=PLAIN, threads=256)
    problem = TileReduction(rows=256, columns=256, blocks=4)
    stress(kernel, problem, iterations=10, device="virtual")
    return seconds_of(lambda: stress(kernel, problem, iterations=1000, device="virtual"))


def repeat_seconds(source: str) -> float:
    """Compile a kernel again that this machine has compiled before."""
    from course_lib import compile_kernel

    def act() -> float:
        return seconds_of(lambda: compile_kernel(source, KERNEL, defines=PLAIN, threads=256))

    act()
    return best(5, act)


def figures() -> list[Figure]:
    """All promises, measured."""
    source = two_stage_source()
    cell_to_result(source)  # imports, and the runtime's load
    unseen_seconds = best(3, lambda: cell_to_result(source))
    return [
        Figure("import course_lib", 0.3, best(5, import_seconds)),
        Figure("unseen two-stage cell to its result, virtual GPU", 0.6, unseen_seconds),
        Figure("4096×4096 TileReduction launch, virtual GPU", 0.4, launch_seconds(source)),
        Figure("compile of a kernel seen before", 0.02, repeat_seconds(source)),
        Figure(
            "find_hazards of the two-stage kernel, compiled before", 0.06, hazard_seconds(source)
        ),
        Figure("4096×4096 launch, checked", 0.5, checked_seconds(source)),
        Figure("float GEMM 1024³ launch, virtual GPU", 0.8, gemm_seconds(False)),
        Figure("float GEMM 1024³ launch, checked", 1.5, gemm_seconds(True)),
        Figure("TMA + WGMMA GEMM 1024³ launch, virtual GPU", 0.5, half_gemm_seconds()),
        Figure("stress, 1,000 iterations at 256×256, virtual GPU", 2.0, stress_seconds(source)),
    ]


def main(arguments: list[str]) -> int:
    """Print every figure; with --strict, 1 where a promise is not kept."""
    measured = figures()
    print("\n".join(map(str, measured)))
    kept = sum(figure.met for figure in measured)
    print(f"make bench: {kept} of {len(measured)} targets met on {os.cpu_count()} cores")
    return 1 if "--strict" in arguments and kept < len(measured) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
