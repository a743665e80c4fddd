"""Half-precision GEMM: the problem's tolerance, and a kernel of tensor copies and wgmma."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from course_lib import Gemm, compile_kernel, find_hazards, verify

RING = (Path(__file__).parent / "kernels" / "tma_wgmma_ring.cu").read_text()


def ring(stages: int, edit: tuple[str, str] | None = None):
    source = RING if edit is None else RING.replace(*edit)
    assert edit is None or source != RING
    return compile_kernel(
        source, threads=128, tile=("TILE_M", "TILE_N"), shared_bytes="STAGES * 24576",
        defines={"STAGES": stages}, arch="sm_90a",
    )  # fmt: skip


def test_a_rounded_float32_product_is_right_and_a_stale_panel_is_not() -> None:
    problem = Gemm(64, 64, 256, dtype="float16")
    inputs = problem.inputs()
    assert inputs["A"].dtype == np.float16
    reference = problem.reference(inputs)
    good = (inputs["A"].astype(np.float32) @ inputs["B"].astype(np.float32).T).astype(np.float16)
    assert problem.compare({"C": good}, reference)[0]
    stale = {name: array.copy() for name, array in inputs.items()}
    stale["A"][:, 64:80] = stale["A"][:, :16]
    bad = (stale["A"].astype(np.float32) @ stale["B"].astype(np.float32).T).astype(np.float16)
    ok, _, words = problem.compare({"C": bad}, reference)
    assert not ok and "C[0, 0]" in words
    assert not problem.compare(problem.outputs(), reference)[0]


def test_tensor_maps_go_with_halves_only() -> None:
    with pytest.raises(ValueError, match="float16"):
        Gemm(64, 64, 64, tensor_maps=True)
    again = Gemm(64, 64, 64, dtype="float16", tensor_maps=True).parameters()
    assert Gemm(**again).tensor_maps


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_ring_of_tensor_copies_is_right_and_free_of_hazards(stages: int) -> None:
    problem = Gemm(128, 256, 320, dtype="float16", tensor_maps=True)
    kernel = ring(stages)
    assert verify(kernel, problem, device="virtual").ok
    assert find_hazards(kernel, problem).ok
