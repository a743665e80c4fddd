"""What went wrong at a matrix instruction, in words."""

from __future__ import annotations

from course_lib.virtual_gpu.abi import F_DESCRIPTOR, F_MATRIX_APART, F_WARPGROUP


def matrix_fault(code: int, a: int, b: int) -> tuple[str, str] | None:
    """(what happened, what to look at) of a fault of a matrix instruction, else None."""
    if code == F_MATRIX_APART:
        return (
            "meets a matrix instruction that the other threads of its warp or warpgroup do not "
            "execute with it, or gives it other descriptors than they do.",
            "Look at the branches around this line: all 32 lanes (of wgmma: all 128 threads) must "
            "come here together, with the same operands.",
        )
    if code == F_WARPGROUP:
        return (
            "issues a wgmma, and its warpgroup has fewer than 128 threads.",
            "A warpgroup is four whole warps: launch a multiple of 128 threads.",
        )
    if code == F_DESCRIPTOR:
        return (
            f"gives wgmma a descriptor that leads outside the block's shared memory: A begins at "
            f"offset {(a & 0x3FFF) << 4}, B at {(b & 0x3FFF) << 4}.",
            "Look at the stage index and at the strides in the descriptors, and at --shared.",
        )
    return None
