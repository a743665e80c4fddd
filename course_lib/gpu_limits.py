"""What one SM of each architecture holds, and how many blocks of a kernel fit into it.

Source: CUDA C++ Programming Guide, appendix "Compute Capabilities", table "Technical Specifications
per Compute Capability"; allocation granularities from `cuda_occupancy.h` of the CUDA toolkit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

KB = 1024
STATIC_SHARED_LIMIT = 48 * KB
"""Bytes of static shared memory that a block may have on every architecture."""


@dataclass(frozen=True)
class SmLimits:
    """Limits of one streaming multiprocessor; sizes in bytes."""

    shared_per_block: int
    shared_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    shared_granularity: int = 128
    shared_reserved_per_block: int = 1 * KB
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    register_granularity: int = 256  # registers, per warp
    warp_granularity: int = 4  # an SM has four partitions, and warps are dealt out to them
    threads_per_block: int = 1024


_LIMITS: dict[int, SmLimits] = {
    75: SmLimits(64 * KB, 64 * KB, 1024, 16, 256, 0),
    80: SmLimits(163 * KB, 164 * KB, 2048, 32),
    86: SmLimits(99 * KB, 100 * KB, 1536, 16),
    87: SmLimits(163 * KB, 164 * KB, 1536, 16),
    89: SmLimits(99 * KB, 100 * KB, 1536, 24),
    90: SmLimits(227 * KB, 228 * KB, 2048, 32),
    100: SmLimits(227 * KB, 228 * KB, 2048, 32),
    103: SmLimits(227 * KB, 228 * KB, 2048, 32),
    120: SmLimits(99 * KB, 100 * KB, 1536, 24),
}


@dataclass(frozen=True)
class Occupancy:
    """Blocks of a kernel that one SM holds at a time, and the resource that allows no more."""

    blocks: int
    limited_by: str
    threads: int
    arch: str

    def __str__(self) -> str:
        noun = "block" if self.blocks == 1 else "blocks"
        return (
            f"{self.blocks} {noun} per SM (limited by {self.limited_by}, {plain_arch(self.arch)})"
        )


def plain_arch(arch: str) -> str:
    """`sm_90a` without its letter: the table and the hardware do not differ by it."""
    return arch.rstrip("af")


def arch_number(arch: str) -> int:
    """`"sm_90a"` gives 90. Raises ValueError for what is no architecture."""
    match = re.fullmatch(r"(?:sm|compute)_(\d+)[af]?", arch)
    if not match:
        raise ValueError(f"{arch!r} is no GPU architecture: they look like sm_80 or sm_90a")
    return int(match[1])


def limits_of(arch: str) -> SmLimits:
    """The limits of an architecture; of the nearest older one where the table lacks it."""
    number = arch_number(arch)
    known = [n for n in _LIMITS if n <= number]
    return _LIMITS[max(known) if known else min(_LIMITS)]


def occupancy(
    arch: str, threads: int, registers: int, static_shared: int, dynamic_shared: int
) -> Occupancy:
    """Resident blocks per SM for a block of `threads`, with `registers` per thread.

    Shared memory is in bytes per block. The same arithmetic as `cuda_occupancy.h`.
    """
    found = blocks_by_resource(arch, threads, registers, static_shared + dynamic_shared)
    blocks = min(found.values())
    # Of several that tie, the one that no rewriting of the kernel moves.
    order = ("the SM's block slots", "threads", "shared memory", "registers")
    reason = next(name for name in order if found[name] == blocks)
    return Occupancy(blocks, reason, threads, arch)


def blocks_by_resource(arch: str, threads: int, registers: int, shared: int) -> dict[str, int]:
    """For each resource, how many blocks an SM would hold if it were the only one that ran out."""
    limits = limits_of(arch)
    warps = -(-max(1, threads) // 32)
    return {
        "threads": limits.threads_per_sm // (warps * 32),
        "registers": _by_registers(limits, warps, registers),
        "shared memory": _by_shared(limits, shared),
        "the SM's block slots": limits.blocks_per_sm,
    }


def _by_registers(limits: SmLimits, warps: int, registers: int) -> int:
    if registers > limits.registers_per_thread:
        return 0
    unit = limits.register_granularity
    per_warp = -(-max(1, registers) * 32 // unit) * unit
    partitions = limits.warp_granularity
    resident_warps = limits.registers_per_sm // partitions // per_warp * partitions
    allocated = -(-warps // partitions) * partitions
    return resident_warps // allocated


def _by_shared(limits: SmLimits, shared: int) -> int:
    if shared > limits.shared_per_block:
        return 0
    unit = limits.shared_granularity
    needed = -(-(shared + limits.shared_reserved_per_block) // unit) * unit
    return limits.shared_per_sm // needed if needed else limits.blocks_per_sm
