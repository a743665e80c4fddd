"""Half-precision GEMMs in three styles: right and free of hazards; each edit of one is caught."""

from __future__ import annotations

import pytest
from half_kernels import SHAPES, kernel, problem

from course_lib import find_hazards, verify

# Tiles half as wide where a warpgroup multiplies: what it takes to translate grows with them.
NARROW = [("TILE_N = 128", "TILE_N = 64")]


@pytest.mark.parametrize(
    "name, stages", [(name, 2 + k % 2) for k, name in enumerate(list(SHAPES)[1:])]
)
def test_each_style_is_right_and_free_of_hazards(name: str, stages: int) -> None:
    case = problem(name, 128, 256, 320)
    made = kernel(name, stages)
    assert verify(made, case, device="virtual").ok
    report = find_hazards(made, case)
    assert report.ok, report


RING, SPECIALISED = "tma_wgmma_ring", "tma_wgmma_specialised"
MMA, WMMA = "mma_cp_async_ring", "wmma_cp_async_ring"
WRONG = [
    # (kernel, old, new, edge, or "wrong" for a result alone)
    (RING, "    wgmma_wait();\n    __syncthreads();", "    __syncthreads();", "reuse"),
    (RING, "wgmma_descriptor(stage +", "(3ull << 62) ^ wgmma_descriptor(stage +", "wrong"),
    (SPECIALISED, "full[s], STAGE_BYTES", "full[s], A_BYTES", "ready"),
    (SPECIALISED, "full[s], t / STAGES % 2", "full[s], t / STAGES % 2 ^ 1", "ready"),
    (SPECIALISED, "empty[s], CONSUMERS", "empty[s], CONSUMERS - 1", "reuse"),
    (SPECIALISED, "    wgmma_wait();\n", "", "reuse"),
    (MMA, "__syncthreads();  // ready", "", "ready"),
    (MMA, "__syncthreads();  // released", "", "reuse"),
    (WMMA, "__syncthreads();  // released", "", "reuse"),
]  # fmt: skip


@pytest.mark.parametrize("name, old, new, edge", WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_each_wrong_version_is_caught(name: str, old: str, new: str, edge: str) -> None:
    case = problem(name, 128, 128, 256)
    made = kernel(name, 2, *(NARROW if "wgmma" in name else []), (old, new))
    if edge == "wrong":  # every access is in order, and to the wrong places
        assert not verify(made, case, device="virtual").ok
        return
    report = find_hazards(made, case)
    assert edge in {hazard.edge for hazard in report.hazards}, report
