"""What ``explore_stages`` computes: time, uncovered latency and residency of one situation.

The time of one block is that of ``PipelineModel``. An SM that has to get through several blocks
holds ``resident`` of them at a time; the model lets their loads overlap freely up to the SM's share
of bandwidth, and lets their computing take turns, as if one block's computing filled the SM. With
``r`` blocks in a round of ``tiles`` tiles each::

    round(r) = max(total_cycles of one block,  r · tiles · C,  r · tiles · tile_bytes / bandwidth)
    time     = sum of round(r) over the rounds that the SM's blocks make

With one block of 128 threads for each SM this came within 3 % of the H200 for a ring with a lot
of arithmetic (S=1 to 8), and between 26 % too fast and 15 % too slow for rings with little: their
loads slow each other down, and the clock stamps lengthen their C. With four such blocks for each SM
it was 15 to 42 % too slow: their computing fills an SM only in part, and overlaps. Where a
measurement lies off the model, the model leaves something out; which part is the question to ask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from course_lib.gpu_limits import blocks_by_resource, limits_of
from course_lib.pipeline_model import Issue, PipelineModel


@dataclass(frozen=True)
class Situation:
    """A kernel in figures; cycles, bytes per tile, registers per thread.

    ``blocks`` is how many blocks one SM has to get through in all; ``bandwidth`` its bytes per
    cycle, 0 for no limit; ``more_shared`` bytes of shared memory beside the ring.
    """

    L: float = 1651
    C: float = 1927
    S: int = 2
    tiles: int = 32
    tile_bytes: int = 16384
    registers: int = 32
    threads: int = 256
    blocks: int = 1
    sync: float = 0
    bandwidth: float = 0
    more_shared: int = 0
    issue: Issue = "after_wait"
    arch: str = "sm_90"

    def with_stages(self, stages: int) -> Situation:
        """The same with another number of stages."""
        return replace(self, S=stages)

    @property
    def transfer(self) -> float:
        """Cycles for which one tile occupies the SM's share of bandwidth; a part of L."""
        return min(self.L, self.tile_bytes / self.bandwidth) if self.bandwidth else 0.0

    def model(self, tiles: int | None = None) -> PipelineModel:
        """One block of it, alone on its SM."""
        return PipelineModel(
            self.L, self.C, self.S, tiles or self.tiles, self.sync, self.transfer, self.issue
        )

    @property
    def shared_bytes(self) -> int:
        """Shared memory of one block."""
        return self.S * self.tile_bytes + self.more_shared

    @property
    def fits(self) -> bool:
        """Whether a block of it can be launched at all."""
        return self.resident > 0

    def by_resource(self) -> dict[str, int]:
        """Blocks per SM that each resource would allow."""
        return blocks_by_resource(self.arch, self.threads, self.registers, self.shared_bytes)

    @property
    def resident(self) -> int:
        """Blocks per SM that all resources together allow."""
        return min(self.by_resource().values())

    @property
    def bytes_in_flight(self) -> int:
        """Bytes on their way to an SM while its blocks each consume a tile."""
        return min(self.resident, self.blocks) * max(self.S - 1, 1) * self.tile_bytes

    @property
    def bytes_to_cover(self) -> float:
        """Little's law: bytes that must be on their way to use the bandwidth through L."""
        return self.bandwidth * self.L

    def time(self) -> float | None:
        """Cycles in which one SM gets through its blocks; None where no block fits."""
        if not self.fits:
            return None
        full, rest = divmod(self.blocks, self.resident)
        rounds = [self.resident] * full + [rest] * (rest > 0)
        return sum(self._round(blocks) for blocks in rounds)

    def _round(self, blocks: int) -> float:
        busy = max(self.C, self.tile_bytes / self.bandwidth if self.bandwidth else 0.0)
        return max(self.model().total_cycles(), blocks * self.tiles * busy)

    def over_stages(self, most: int = 8) -> dict[int, float | None]:
        """``time`` for each number of stages from 1 on."""
        return {stages: self.with_stages(stages).time() for stages in range(1, most + 1)}

    def best_stages(self, most: int = 8) -> int | None:
        """The fewest stages that come within one part in a thousand of the least time."""
        times = {s: time for s, time in self.over_stages(most).items() if time is not None}
        if not times:
            return None
        least = min(times.values())
        return min(s for s, time in times.items() if time <= 1.001 * least)

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory that one block may have."""
        return limits_of(self.arch).shared_per_block


PRESETS: dict[str, Situation] = {
    "lesson 03, WORK=24: L 1,727 and C 1,973 (H200)": Situation(L=1727, C=1973),
    "lesson 01, no arithmetic: L 1,854 and C 482 (H200)": Situation(L=1854, C=482),
    "lesson 01, WORK=32: L 1,703 and C 2,454 (H200)": Situation(L=1703, C=2454),
    "GEMM panels, 64 by 64: L 1,481 and C 2,421 (H200)": Situation(
        L=1481, C=2421, tiles=64, registers=75, tile_bytes=18432
    ),
    "worked example: L 500 and C 220": Situation(L=500, C=220, tile_bytes=8192),
}
"""Figures that the lessons measured; the lessons' cells show where they come from."""
