"""The figures of the machine whose virtual clock is kept, from the file that calibration wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from course_lib.virtual_gpu.abi import ISSUE_COST

FILE = Path(__file__).resolve().parent / "machines" / "h200.json"


def load_figures(path: Path = FILE) -> dict[str, Any]:
    """Provenance and figures of one machine, as `tools.calibrate` wrote them."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


_FIGURES = load_figures()["figures"]


def _figure(name: str) -> float:
    return float(_FIGURES[name]["value"])


def _cycles(name: str) -> int:
    return round(_figure(name))


def _cycles_per_warp() -> int:
    """What each further warp adds to a barrier of the block."""
    return round((_figure("barrier_32_warps") - _figure("barrier_1_warps")) / 31)


def _crowd_delay() -> int:
    """D of the delay D u / (1 - u) that a busy share u of HBM adds to a request.

    From the streams of all SMs below saturation: bytes in flight over bytes per cycle is how long a
    request takes, and the same stream of one SM alone is what it takes without the others.
    """
    most = _figure("stream_all_sms_128k")
    found = []
    for kilobytes in (4, 8, 16, 32):
        alone, all_sms = (_figure(f"stream_{w}_{kilobytes}k") for w in ("one_sm", "all_sms"))
        delay = kilobytes * 1024 / all_sms - kilobytes * 1024 / alone
        found.append(delay * (most - all_sms) / all_sms)
    return round(median(found))


def _wgmma_latency() -> int:
    """How long one warpgroup waits for a wgmma beyond the time that the tensor cores need.

    Two warpgroups keep the tensor cores busy; one that waits after every fourth or sixteenth leaves
    them idle for this long each time.
    """
    return round(median(
        count * (_figure(f"wgmma_n{n}_1wg_{count}") - _figure(f"wgmma_n{n}_2wg_16"))
        for n in (64, 128, 256) for count in (4, 16)
    ))  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """Latencies in cycles, bandwidths in bytes per cycle of one SM; the H200's by default.

    `bytes_per_cycle` is the SM's share of HBM when all SMs stream, `burst_bytes_per_cycle` what one
    SM alone can take, which hits of L2 may use. `burst_cycles` is how long a quiet SM
    may have saved up its share: an assumption, no micro-kernel measures it.
    """

    name: str = "virtual H200"
    sms: int = 132
    clock_mhz: int = _cycles("clock")
    global_latency: int = _cycles("latency_hbm")
    copy_latency: int = round(_figure("cp_async_landed_1") - _figure("cp_async_issue_1"))
    l2_latency: int = _cycles("bulk_l2_16")
    l1_latency: int = _cycles("latency_l1")
    shared_latency: int = _cycles("latency_shared")
    bytes_per_cycle: float = _figure("stream_all_sms_128k")
    burst_bytes_per_cycle: float = _figure("stream_one_sm_128k")
    burst_cycles: int = 2048
    crowd_delay: int = _crowd_delay()
    launch_us: float = _figure("launch_overhead")
    barrier_base_cycles: int = round(_figure("barrier_1_warps")) - _cycles_per_warp()
    barrier_warp_cycles: int = _cycles_per_warp()
    collective_cycles: int = 12
    shuffle_cycles: int = _cycles("dependent_shfl") - ISSUE_COST["warp"][0]
    mbarrier_cycles: int = _cycles("mbarrier_1_warps")
    wgmma_latency: int = _wgmma_latency()
    copy_issue_cycles: int = round((_figure("cp_async_issue_4") - _figure("cp_async_issue_1")) / 3)
    tensor_fma_per_cycle: int = 2048  # dense f16: m64n256k16 takes 128 cycles
    l2_bytes: int = 60 << 20
    shared_per_sm: int = 228 << 10
    registers_per_sm: int = 65536
    threads_per_sm: int = 2048

    @property
    def sm_count(self) -> int:
        """Another name of `sms`."""
        return self.sms

    def barrier_cycles(self, warps: int) -> int:
        """From the last arrival at a barrier of so many warps until they go on."""
        return self.barrier_base_cycles + self.barrier_warp_cycles * warps


H200 = Machine()
