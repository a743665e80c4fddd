"""Compares the virtual clock with the H200 on kernels that did not calibrate it.

    python -m tools.judge_clock measure    on the GPU: times every row into tools/judged_h200.json
    python -m tools.judge_clock write      without a GPU: runs the virtual clock and writes the
                                           table of docs/virtual_clock.md
    python -m tools.judge_clock check      the same, and fails where the document says otherwise

Judged are ratios of time between stage counts of one kernel, never absolute times. The H200's time
lies between two events, so a launch's overhead is in it; the virtual clock counts from the first
instruction of an SM, so the measured overhead is added to its cycles.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.kernel import Kernel, compile_kernel
from course_lib.tensor_maps import TensorMap, tensor_map
from course_lib.virtual_gpu.machine import H200
from tools import judging_kernels

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "tools" / "judged_h200.json"
DOCUMENT = ROOT / "docs" / "virtual_clock.md"
BEGIN, END = "<!-- table: python -m tools.judge_clock write -->", "<!-- end of the table -->"
SMS = 132
TILES = 32
GEMM_SHAPE = (22 * 64, 24 * 64, 1024)
HALF_SHAPE = (4096, 4096, 1024)
STRIP_ROWS = 96
ROUNDS = 15
TOLERANCE = 0.15
SAME = 0.03
"""Changes below 3% count as "no change" on both devices: the sign of noise is no fact."""


@dataclass(frozen=True)
class Row:
    """One kernel at one number of stages; rows of one group are compared with each other."""

    group: str
    stages: int
    build: Callable[[], Kernel]
    grid: int | tuple[int, int]
    arrays: Callable[[], list[Any]]
    seen: bool = True
    """Was its time on the H200 known while the clock was made?"""

    @property
    def key(self) -> str:
        """Name of the row in the file of measured times."""
        return f"{self.group}, S={self.stages}"


def _reduce_arrays() -> list[Any]:
    x = np.arange(SMS * TILES * 4096, dtype=np.uint32)
    return [x, np.zeros(SMS * TILES * 8, np.uint32), TILES]


def _gemm_arrays() -> list[Any]:
    m, n, k = GEMM_SHAPE
    random = np.random.default_rng(7)
    a, b = (random.random(shape, np.float32) for shape in ((m, k), (k, n)))
    return [a, b, np.zeros((m, n), np.float32), m, n, k]


def _reduce(stages: int, work: int) -> Kernel:
    return compile_kernel(
        judging_kernels.COPY_AND_REDUCE, defines={"STAGES": stages, "WORK": work}, threads=256,
        shared_bytes=stages * 16384, arch="sm_90a",
    )  # fmt: skip


def _gemm(stages: int) -> Kernel:
    return compile_kernel(
        judging_kernels.FLOAT_GEMM, defines={"STAGES": stages}, threads=256, arch="sm_90a"
    )


def rows() -> list[Row]:
    """Every row of the table, in its order."""
    found = [
        Row(
            f"copy and reduce, work {work}", stages,
            partial(_reduce, stages, work), SMS, _reduce_arrays,
        )
        for work in (1, 4, 12) for stages in (1, 2, 3, 4, 6)
    ]  # fmt: skip
    grid = GEMM_SHAPE[0] // 64 * (GEMM_SHAPE[1] // 64)
    found += [
        Row("float GEMM", stages, partial(_gemm, stages), grid, _gemm_arrays)
        for stages in (1, 2, 3)
    ]
    found += [_half_row("TMA + WGMMA ring", "tma_wgmma_ring", 64, s) for s in (1, 2, 3, 4)]
    found += [
        _half_row("TMA + WGMMA, warp-specialised", "tma_wgmma_specialised", 128, s)
        for s in (2, 3, 4)
    ]
    return found + _blind_rows()


def _blind_rows() -> list[Row]:
    """Rows that were committed before anybody had measured them, and no clock was made after."""
    found = [
        Row("small tiles, 512 threads", stages, partial(_small_tiles, stages), SMS,
            _small_tile_arrays, seen=False)
        for stages in (1, 2, 3, 4)
    ]  # fmt: skip
    m, n, _ = GEMM_SHAPE
    found += [
        Row("float GEMM, 128 × 128 × 8", stages, partial(_large_gemm, stages), m * n // 128 // 128,
            _gemm_arrays, seen=False)
        for stages in (1, 2, 3)
    ]  # fmt: skip
    found += [
        Row("stencil", stages, partial(_stencil, stages), 2 * SMS, _stencil_arrays, seen=False)
        for stages in (1, 2, 4, 6)
    ]
    return found


def _small_tiles(stages: int) -> Kernel:
    return compile_kernel(
        judging_kernels.SMALL_TILES, defines={"STAGES": stages}, threads=512,
        shared_bytes=stages * 8192, arch="sm_90a",
    )  # fmt: skip


def _small_tile_arrays() -> list[Any]:
    x = np.arange(SMS * 2 * TILES * 2048, dtype=np.uint32)
    return [x, np.zeros(SMS * 2 * TILES * 16, np.uint32), 2 * TILES]


def _large_gemm(stages: int) -> Kernel:
    return compile_kernel(
        judging_kernels.LARGE_GEMM, defines={"STAGES": stages}, threads=256, arch="sm_90a"
    )


def _stencil(stages: int) -> Kernel:
    return compile_kernel(
        judging_kernels.STENCIL, defines={"STAGES": stages}, threads=256,
        shared_bytes=(stages + 2) * 4096, arch="sm_90a",
    )  # fmt: skip


def _stencil_arrays() -> list[Any]:
    x = np.random.default_rng(7).random(2 * SMS * STRIP_ROWS * 1024, np.float32)
    return [x, np.zeros_like(x), STRIP_ROWS]


def _half_row(group: str, name: str, tile_rows: int, stages: int) -> Row:
    m, n, _ = HALF_SHAPE
    arrays = partial(_half_arrays, tile_rows)
    return Row(group, stages, partial(_half, name, stages), (n // 128, m // tile_rows), arrays)


def _half(name: str, stages: int) -> Kernel:
    """A kernel of tests/kernels, with its threads and the bytes of a stage."""
    threads, stage = {"tma_wgmma_ring": (128, 24576), "tma_wgmma_specialised": (384, 32768)}[name]
    return compile_kernel(
        (ROOT / "tests" / "kernels" / f"{name}.cu").read_text(), name="gemm", threads=threads,
        shared_bytes=stages * stage, defines={"STAGES": stages}, arch="sm_90a",
    )  # fmt: skip


def _half_arrays(tile_rows: int) -> list[Any]:
    m, n, k = HALF_SHAPE
    random = np.random.default_rng(7)
    a, b = (random.integers(-1, 2, (rows, k)).astype(np.float16) for rows in (m, n))
    maps = [tensor_map(a, (tile_rows, 64), swizzle=128), tensor_map(b, (128, 64), swizzle=128)]
    return [*maps, np.zeros((m, n), np.float16), m, n, k]


# --- the two devices --------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    """Median microseconds of every row on this GPU; rows of a group are interleaved."""
    from course_lib.real_gpu import device

    times: dict[str, dict[str, float]] = {}
    for group in dict.fromkeys(row.group for row in rows()):
        launches = []
        members = [row for row in rows() if row.group == group]
        arrays = [_on_gpu(value) for value in members[0].arrays()]
        for row in members:
            loaded = device.load_kernel(row.build())
            launches.append(partial(loaded.launch, row.grid, arrays))
        samples = device.time_interleaved(launches, ROUNDS)
        for row, column in zip(members, samples.T, strict=True):
            low, middle, high = np.percentile(column, (25, 50, 75))
            times[row.key] = {
                "us": round(float(middle), 3), "spread": round(float((high - low) / middle), 4)
            }  # fmt: skip
            print(f"{row.key:34} {middle:9.2f} us  ±{(high - low) / middle:.1%}", flush=True)
    about = device.properties()
    return {
        "provenance": {
            "device": about["name"], "driver": about["driver"], "rounds": ROUNDS,
            "date": datetime.date.today().isoformat(), "by": "python -m tools.judge_clock measure",
        },
        "times": times,
    }  # fmt: skip


def _on_gpu(value: Any) -> Any:
    """An argument of a row with its array in the GPU's memory."""
    import cupy

    if isinstance(value, TensorMap):
        return tensor_map(cupy.asarray(value.array), value.box, value.swizzle)
    return cupy.asarray(value) if isinstance(value, np.ndarray) else value


@cache
def measured() -> dict[str, Any]:
    """What `measure` found on the H200."""
    found: dict[str, Any] = json.loads(MEASURED.read_text())
    return found


def virtual_cycles(row: Row) -> int:
    """Cycles of the first SM on the virtual clock. Raises RuntimeError where the run ends badly."""
    from course_lib.virtual_gpu.launch import launch

    result = launch(
        row.build(), row.grid, row.arrays(), order="timed", landing="late",
        blocks=range(0, int(np.prod(row.grid)), SMS),
    )  # fmt: skip
    if not result.ok:
        raise RuntimeError(f"{row.key}: {result}")
    return result.cycles


# --- the comparison ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Judgement:
    """One row against the row with the fewest stages, and against the row before it."""

    row: Row
    us: float
    cycles: int  # of the first SM, without a launch's overhead
    real_ratio: float  # time / time at the fewest stages
    virtual_ratio: float
    real_step: float  # time / time of the row before
    virtual_step: float

    @property
    def virtual_us(self) -> float:
        """What stands beside `us`."""
        return virtual_us(self.cycles)

    @property
    def error(self) -> float:
        """The virtual ratio's error, as a share of the real ratio."""
        return self.virtual_ratio / self.real_ratio - 1

    @property
    def no_change_error(self) -> float:
        """The error of a predictor that says that stages change nothing."""
        return 1 / self.real_ratio - 1

    @property
    def sign_matches(self) -> bool:
        """Does the step from the row before go the same way on both?"""
        return direction(self.real_step) == direction(self.virtual_step)


def virtual_us(cycles: int) -> float:
    """Microseconds from event to event: an SM's cycles and the measured overhead of a launch."""
    return cycles / H200.clock_mhz + H200.launch_us


def direction(step: float) -> int:
    """-1 faster, 0 no change (within `SAME`), 1 slower."""
    return 0 if abs(step - 1) < SAME else (1 if step > 1 else -1)


def ranking_matches(judged: list[Judgement]) -> bool:
    """Is every pair of stage counts in the H200's order? Pairs within `SAME` are ties."""
    return not any(
        direction(a.us / b.us) * direction(a.virtual_us / b.virtual_us) < 0
        or (direction(a.us / b.us) == 0) != (direction(a.virtual_us / b.virtual_us) == 0)
        for a in judged for b in judged
    )  # fmt: skip


def judge() -> dict[str, list[Judgement]]:
    """Every group of rows, judged."""
    found: dict[str, list[Judgement]] = {}
    times = measured()["times"]
    for row in rows():
        if row.key not in times:  # chosen, and not yet measured
            continue
        us, cycles = times[row.key]["us"], virtual_cycles(row)
        group = found.setdefault(row.group, [])
        first, before = (group[0], group[-1]) if group else (None, None)
        group.append(Judgement(
            row, us, cycles,
            us / first.us if first else 1.0,
            virtual_us(cycles) / first.virtual_us if first else 1.0,
            us / before.us if before else 1.0,
            virtual_us(cycles) / before.virtual_us if before else 1.0,
        ))  # fmt: skip
    return found


def compared(judged: dict[str, list[Judgement]]) -> list[Judgement]:
    """The rows that have something to be compared with."""
    return [one for group in judged.values() for one in group[1:]]


def table(judged: dict[str, list[Judgement]]) -> str:
    """The table of the document, in Markdown, with its summary."""
    lines = [
        "| kernel | | S | H200 µs | virtual µs | ratio H200 | ratio virtual | error "
        "| error of “no change” | sign | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for group, members in judged.items():
        for one in members:
            known = "seen" if one.row.seen else "blind"
            start = f"| {group} | {known} | {one.row.stages} | {one.us:.1f} | {one.virtual_us:.1f} "
            if one is members[0]:
                lines.append(start + "| 1 | 1 | | | | |")
                continue
            miss = "" if abs(one.error) <= TOLERANCE and one.sign_matches else "**miss**"
            lines.append(
                f"{start}| {one.real_ratio:.2f} | {one.virtual_ratio:.2f} | {one.error:+.0%} "
                f"| {one.no_change_error:+.0%} | {'same' if one.sign_matches else 'differs'} "
                f"| {miss} |"
            )
    for words, seen in (("Seen", True), ("Blind", False)):
        some = {name: group for name, group in judged.items() if group[0].row.seen == seen}
        if some:
            lines += ["", f"{words} rows:", "", *summary(some)]
    return "\n".join(lines)


def summary(judged: dict[str, list[Judgement]]) -> list[str]:
    """What the table says, in four lines."""
    all_rows = compared(judged)
    within = sum(abs(one.error) <= TOLERANCE for one in all_rows)
    signs = sum(one.sign_matches for one in all_rows)
    ranked = [group for group, members in judged.items() if ranking_matches(members)]
    mean, lazy = (
        float(np.mean([abs(getattr(one, name)) for one in all_rows]))
        for name in ("error", "no_change_error")
    )
    return [
        f"- Ratios within {TOLERANCE:.0%}: {within} of {len(all_rows)}.",
        f"- Signs of the change from the row before: {signs} of {len(all_rows)} the same "
        f"(changes below {SAME:.0%} count as none).",
        f"- Ranking of S the same: {len(ranked)} of {len(judged)} kernels"
        + (f" ({', '.join(ranked)})." if ranked else "."),
        f"- Mean error {mean:.0%}; a predictor that always says “no change” has {lazy:.0%}.",
    ]


def document_with(text: str) -> str:
    """The document with this table in its place."""
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Measure, write or check."""
    what = arguments[0] if arguments else ""
    if what == "measure":
        target = Path(arguments[1]) if len(arguments) > 1 else MEASURED
        target.write_text(json.dumps(measure(), indent=1) + "\n")
    elif what in ("write", "check"):
        text = table(judge())
        print(text)
        wanted = document_with(text)
        if what == "check":
            return int(DOCUMENT.read_text() != wanted)
        DOCUMENT.write_text(wanted)
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
