"""The half-precision GEMM kernels of tests/kernels, compiled for their launch shape."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from course_lib import Gemm, Kernel, compile_kernel

FOLDER = Path(__file__).parent / "kernels"


@dataclass(frozen=True)
class Shape:
    """How a kernel is launched."""

    threads: int
    shared_bytes: str | int = 0
    arch: str = "sm_90a"
    tensor_maps: bool = True


SHAPES = {
    "tma_wgmma_ring": Shape(128, "STAGES * 24576"),
    "tma_wgmma_specialised": Shape(384, "STAGES * 32768"),
    "mma_cp_async_ring": Shape(128, arch="sm_80", tensor_maps=False),
    "wmma_cp_async_ring": Shape(128, arch="sm_80", tensor_maps=False),
}


def kernel(name: str, stages: int, *edits: tuple[str, str]) -> Kernel:
    """A kernel of the folder with edits, each of which must apply."""
    source = (FOLDER / f"{name}.cu").read_text()
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    shape = SHAPES[name]
    return compile_kernel(
        source, name="gemm", threads=shape.threads, tile=("TILE_M", "TILE_N"),
        shared_bytes=shape.shared_bytes, defines={"STAGES": stages}, arch=shape.arch,
    )  # fmt: skip


def problem(name: str, m: int, n: int, k: int) -> Gemm:
    """The problem in the form that a kernel takes."""
    return Gemm(m, n, k, dtype="float16", tensor_maps=SHAPES[name].tensor_maps)
