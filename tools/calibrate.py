"""Measures what the virtual clock is made of, on the GPU of this machine, by micro-kernels only.

    python -m tools.calibrate FILE    writes the figures with unit, kernel, spread, device and date

The kernels are `tools.micro_kernels`. Nothing here looks at the kernels that judge the clock.
"""

from __future__ import annotations

import datetime
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib.kernel import compile_kernel
from course_lib.real_gpu import device
from tools import micro_kernels as micro

REPEATS = 5
ARCH = "sm_90a"
DEFAULT_FILE = (
    Path(__file__).resolve().parent.parent / "course_lib/virtual_gpu/machines/h200.json"
)  # fmt: skip


class Figures:
    """The figures so far, by name: value, unit, kernel, spread, and how it was measured."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.failures: list[str] = []

    def measure(
        self, name: str, unit: str, kernel: str, how: str, sample: Callable[[], float]
    ) -> None:
        """Median of `REPEATS` samples; the spread is (largest - smallest) / median."""
        try:
            sample()
            samples = [sample() for _ in range(REPEATS)]
        except Exception as problem:  # the other figures are still worth having
            self.failures.append(f"{name}: {type(problem).__name__}: {str(problem)[:300]}")
            print("FAILED", self.failures[-1], flush=True)
            return
        value = statistics.median(samples)
        spread = (max(samples) - min(samples)) / abs(value) if value else 0.0
        self.values[name] = {
            "value": float(f"{value:.5g}"), "unit": unit, "kernel": kernel, "how": how,
            "spread": float(f"{spread:.2g}"),
        }  # fmt: skip
        print(f"{name:34} {value:10.4g} {unit:18} ±{spread:.1%}", flush=True)


def elapsed(
    source: str, grid: int, threads: int, arguments: list[Any], shared: int = 0,
    place: int = 0, **defines: object,
) -> Callable[[], float]:  # fmt: skip
    """A sample: launches and returns the mean of the cycles that the blocks wrote.

    With `place` other than 0, one block's second figure.
    """
    import cupy

    kernel = compile_kernel(
        source, defines=defines, threads=threads, shared_bytes=shared, arch=ARCH
    )
    loaded = device.load_kernel(kernel)
    out = cupy.zeros(2048, cupy.int64)
    filled = [out if argument is OUT else argument for argument in arguments]

    def sample() -> float:
        loaded.launch(grid, filled)
        host = out.get()
        return float(host[place]) if place else float(host[:grid].mean())

    return sample


OUT = object()
"""Stands for the array of results in a list of arguments."""


def scaled(sample: Callable[[], float], factor: float) -> Callable[[], float]:
    """The sample times a factor."""
    return lambda: sample() * factor


def latencies(figures: Figures) -> None:
    """Dependent loads from each level."""
    import cupy

    steps = 1000
    for name, words, jump, warm, load in (
        ("latency_hbm", 1 << 28, 65537 * 32, 0, "ld.global.cg.u32"),
        ("latency_l2", 1 << 20, 257 * 32, 1, "ld.global.cg.u32"),
        ("latency_l1", 1 << 12, 65 * 32, 1, "ld.global.ca.u32"),
    ):
        following = (cupy.arange(words, dtype=cupy.uint32) + cupy.uint32(jump)) % words

        def sample(following: Any = following, warm: int = warm, load: str = load) -> float:
            device.flush_l2()
            return chase_sample(following, warm, load) / steps

        def chase_sample(following: Any, warm: int, load: str) -> float:
            return elapsed(
                micro.CHASE, 1, 1, [following, OUT, steps], WARM=warm, LOAD=f'"{load}"'
            )()

        how = "one thread follows a chain of 1,000 loads; L2 flushed before"
        figures.measure(name, "cycles", "CHASE", how, sample)
        del following
    figures.measure(
        "latency_shared", "cycles", "SHARED_CHASE", "one thread, 1,024 dependent loads",
        scaled(elapsed(micro.SHARED_CHASE, 1, 1, [OUT, 1024]), 1 / 1024),
    )  # fmt: skip


SHARED_PLACES = {
    "lds32": "lane * 4", "lds128": "lane * 16",
    # Lanes that share words: neighbours, those that are 16 apart, and half a warp.
    "lds128_pairs": "lane / 2 * 16", "lds128_halves": "lane % 16 * 16",
    "lds128_same": "lane / 16 * 320",
}  # fmt: skip


def issue_rates(figures: Figures) -> None:
    """Cycles per warp instruction of one scheduler, and the latency of dependent ones."""
    steps = 64

    def rate(body: str, chains: int, warps: int, place: str = "lane * 4") -> Callable[[], float]:
        sample = elapsed(
            micro.ISSUE, 1, 32 * warps, [OUT, steps],
            BODY=micro.BODIES[body], CHAINS=chains, PLACE=place,
        )  # fmt: skip
        return scaled(sample, 1 / (steps * 8 * chains))

    for body in ("fma", "iadd", "imad", "xor_add", "xor_mad", "xor_shl", "shfl", "ex2", "rcp"):
        how = "one warp, each instruction needs the one before"
        figures.measure(f"dependent_{body}", "cycles", "ISSUE", how, rate(body, 1, 1))
        how = "16 warps (4 a scheduler), 4 chains each; cycles of a scheduler per instruction"
        figures.measure(
            f"issue_{body}", "cycles/instruction", "ISSUE", how, scaled(rate(body, 4, 16), 1 / 4)
        )
    for name, place in SHARED_PLACES.items():
        how = f"16 warps, a lane reads at {place}; cycles of the SM's shared memory per instruction"
        figures.measure(
            f"shared_{name}", "cycles/instruction", "ISSUE", how,
            scaled(rate(name.partition("_")[0], 4, 16, place), 1 / 16),
        )  # fmt: skip
    for ways in (2, 4, 8, 16, 32):
        how = f"16 warps, lanes {4 * ways} bytes apart: a conflict of {ways} lanes a bank"
        figures.measure(
            f"shared_conflict_{ways}", "cycles/instruction", "ISSUE", how,
            scaled(rate("lds32", 4, 16, f"lane * {4 * ways}"), 1 / 16),
        )  # fmt: skip
    for warps in (1, 2, 4, 8, 16, 32):
        figures.measure(
            f"barrier_{warps}_warps", "cycles", "ISSUE", "__syncthreads() in a row",
            rate("syncthreads", 1, warps),
        )  # fmt: skip
    figures.measure("syncwarp", "cycles", "ISSUE", "__syncwarp() in a row", rate("syncwarp", 1, 1))
    for warps in (1, 4, 8):
        sample = elapsed(micro.MBARRIER, 1, 32 * warps, [OUT, 256])
        how = "every thread arrives and waits for the phase, 256 times"
        figures.measure(
            f"mbarrier_{warps}_warps", "cycles", "MBARRIER", how, scaled(sample, 1 / 256)
        )


def copy_latencies(figures: Figures, data: Any) -> None:
    """Copies with nothing else in flight: issue, and until they have landed."""
    steps = 64
    for count in (1, 4, 8):
        for place, word in ((0, "landed"), (1, "issue")):

            def sample(place: int = place, count: int = count) -> float:
                device.flush_l2()
                arguments = [data, OUT, steps]
                return elapsed(
                    micro.COPY_LATENCY, 1, 32, arguments, place=place, COUNT=count, JUMP=1 << 20
                )() / steps  # fmt: skip

            how = f"one warp, {count} cp.async.cg of 16 bytes a lane from HBM, alone"
            figures.measure(f"cp_async_{word}_{count}", "cycles", "COPY_LATENCY", how, sample)
    for size in (16, 1024, 4096, 16384):
        for jump, where in ((1 << 20, "hbm"), (0, "l2")):

            def bulk(size: int = size, jump: int = jump) -> float:
                device.flush_l2()
                arguments = [data, OUT, steps]
                return elapsed(
                    micro.BULK_LATENCY, 1, 1, arguments, 16384, BYTES=size, JUMP=jump
                )() / steps  # fmt: skip

            how = f"one bulk copy of {size} bytes and its mbarrier, from {where}, alone"
            figures.measure(f"bulk_{where}_{size}", "cycles", "BULK_LATENCY", how, bulk)


def bandwidths(figures: Figures, data: Any) -> None:
    """Bytes per cycle and SM against bytes in flight: one SM alone, all of them, from L2."""
    import numpy as np

    size = data.nbytes
    for where, blocks, span in (
        ("all_sms", 132, size), ("one_sm", 1, size), ("all_sms_l2", 132, 16 << 20),
    ):  # fmt: skip
        for depth in (1, 2, 4, 8, 16, 32):
            groups = 512
            sample = elapsed(
                micro.STREAM, blocks, 256, [data, OUT, groups, np.int64(span)],
                depth * 4096, DEPTH=depth,
            )  # fmt: skip
            how = f"256 threads, cp.async.cg 16 B, {4 * depth} KB in flight per SM"
            figures.measure(
                f"stream_{where}_{4 * depth}k", "bytes/cycle/SM", "STREAM", how,
                flushed_rate(sample, groups * 4096, where),
            )  # fmt: skip
        for depth in (1, 2, 4, 8):
            groups = 128
            sample = elapsed(
                micro.BULK_STREAM, blocks, 1, [data, OUT, groups, np.int64(span)],
                depth * 16384, DEPTH=depth, CHUNK=16384,
            )  # fmt: skip
            how = f"bulk copies of 16 KB, {16 * depth} KB in flight per SM"
            figures.measure(
                f"bulk_stream_{where}_{16 * depth}k", "bytes/cycle/SM", "BULK_STREAM", how,
                flushed_rate(sample, groups * 16384, where),
            )  # fmt: skip


def flushed_rate(sample: Callable[[], float], size: int, where: str) -> Callable[[], float]:
    """Bytes per cycle; the L2 is flushed before, unless its bandwidth is what is asked for."""

    def rate() -> float:
        if not where.endswith("l2"):
            device.flush_l2()
        return size / sample()

    return rate


def tensor_rates(figures: Figures) -> None:
    """Back-to-back wgmma of half floats from shared memory."""
    for n in (64, 128, 256):
        for warpgroups in (1, 2):
            for chained in (4, 16):
                steps = 128
                sample = elapsed(
                    micro.wgmma_source(n), 1, 128 * warpgroups, [OUT, steps], 49152,
                    CHAINED=chained,
                )  # fmt: skip
                how = (
                    f"{warpgroups} warpgroup(s) of one SM, {chained} between waits; cycles of the "
                    "tensor unit per instruction"
                )
                figures.measure(
                    f"wgmma_n{n}_{warpgroups}wg_{chained}", "cycles/instruction", "wgmma", how,
                    scaled(sample, 1 / (steps * chained * warpgroups)),
                )  # fmt: skip


def clock_rates(figures: Figures) -> None:
    """The SM's clock, and what a launch costs beside the kernel's own work."""
    import cupy
    import numpy as np

    kernel = compile_kernel(micro.CLOCK, threads=32, arch=ARCH)
    loaded = device.load_kernel(kernel)
    out = cupy.zeros(4, cupy.int64)

    def rate() -> float:
        loaded.launch(1, [out, 20000])
        cycles, nanoseconds = out.get()[:2]
        return float(cycles) / float(nanoseconds) * 1000

    figures.measure("clock", "MHz", "CLOCK", "cycles over %globaltimer, 20 M cycles", rate)
    empty = device.load_kernel(compile_kernel(micro.EMPTY, threads=256, arch=ARCH))

    def launched() -> float:
        times = device.time_interleaved([lambda: empty.launch(132, [out])], 20)
        return float(np.median(times))

    how = "CUDA events around 132 empty blocks, median of 20"
    figures.measure("launch_overhead", "us", "EMPTY", how, launched)


def provenance() -> dict[str, Any]:
    """What measured, and when."""
    about = device.properties()
    return {
        "device": about["name"], "sms": about["sms"], "driver": about["driver"],
        "runtime": about["runtime"], "date": datetime.date.today().isoformat(),
        "by": "python -m tools.calibrate", "repeats": REPEATS,
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure everything and write one file."""
    import cupy

    figures = Figures()
    data = cupy.zeros(1 << 30, cupy.uint8)
    clock_rates(figures)
    latencies(figures)
    issue_rates(figures)
    copy_latencies(figures, data)
    bandwidths(figures, data)
    tensor_rates(figures)
    target = Path(arguments[0]) if arguments else DEFAULT_FILE
    written = {"provenance": provenance(), "figures": figures.values}
    target.write_text(json.dumps(written, indent=1) + "\n")
    print(f"{len(figures.values)} figures in {target}; failed: {figures.failures or 'none'}")
    return 1 if figures.failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
