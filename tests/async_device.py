"""Device code that the tests of mbarriers, bulk copies and tensor copies share, and its launch."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.kernel import Kernel, compile_kernel
from course_lib.virtual_gpu.launch import LaunchResult, launch

POLICIES = [
    {"landing": landing, "order": order, "seed": seed}
    for landing, order, seed in (
        ("early", "round_robin", 0), ("late", "one_last", 0), ("late", "one_first", 0),
        ("random", "random", 1), ("random", "random", 2), ("late", "timed", 0),
    )
]  # fmt: skip

PRELUDE = (Path(__file__).resolve().parent / "device.cuh").read_text()


@cache
def kernel_of(body: str, parameters: str, threads: int = 64, arch: str = "sm_90") -> Kernel:
    """`body` as a kernel `k(parameters)` behind the prelude."""
    source = f'{PRELUDE}extern "C" __global__ void k({parameters}) {{\n{body}\n}}'
    return compile_kernel(source, "k", threads=threads, arch=arch)


def run(
    body: str, parameters: str, arguments: list[Any], threads: int = 64, **how: Any
) -> LaunchResult:
    """Launch a body on the virtual GPU."""
    return launch(kernel_of(body, parameters, threads), how.pop("grid", 1), arguments, **how)


def line_of(body: str, text: str) -> int:
    """The line of the kernel's source on which `text` of the body stands."""
    before = PRELUDE.count("\n") + 1
    return before + next(n for n, line in enumerate(body.splitlines(), 1) if text in line)


def word(n: int = 64) -> np.ndarray:
    """Zeros for a kernel's results."""
    return np.zeros(n, np.uint32)
