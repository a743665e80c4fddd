"""Virtual GPU against hardware: `make differential`, on a machine with an NVIDIA GPU.

    python -m tools.differential                    every right case and every lesson kernel
    python -m tools.differential --racecheck 120    and compute-sanitizer for up to 120 seconds
    python -m tools.differential --write FILE       the report, also into a file

Both devices get the same inputs. Integers must be equal bit for bit. Floats may differ by twice the
problem's tolerance, because either side may be off by it once from the float64 reference.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.problem_runs import launch_virtual, shaped_for
from course_lib.problems import Gemm, Problem, TileReduction
from tools.driver_launch import write_job

if TYPE_CHECKING:
    from course_lib.kernel import Kernel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import case_files  # noqa: E402

POLICIES: tuple[dict[str, Any], ...] = (
    {"order": "round_robin", "landing": "late"},
    {"order": "round_robin", "landing": "early"},
    {"order": "one_last", "landing": "early"},
)
# What racecheck cannot judge, or others report false alarms on (bulk copies, mbarriers).
BEYOND_RACECHECK = re.compile(r"mbarrier|bulk|wgmma|cuda/(barrier|pipeline|ptx)")
RACECHECK_DEADLINE = 60.0  # seconds for one launch
GPU_DEADLINE = 20.0


@dataclass(frozen=True)
class Subject:
    """A kernel, what it has to compute, and what is declared of it ("right", "ready", …)."""

    name: str
    kernel: Kernel
    problem: Problem
    verdict: str = "right"


@dataclass(frozen=True)
class Row:
    """The answer of both devices. ``agree`` is None where there was nothing to compare."""

    name: str
    agree: bool | None
    words: str
    virtual_ms: float
    gpu_ms: float


@dataclass(frozen=True)
class RaceRow:
    """What both checkers say of one launch; ``None``: no verdict within the time."""

    name: str
    declared: str
    virtual: bool
    racecheck: bool | None
    virtual_seconds: float
    racecheck_seconds: float


def lesson_subjects() -> Iterator[Subject]:
    """Every kernel of the notebooks that takes a problem's arguments."""
    from course_lib.cuda_magic import kernel_from_text

    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        # Read as JSON: a GPU host that only measures need not have Jupyter.
        for cell in json.loads(path.read_text())["cells"]:
            text = "".join(cell["source"])
            found = re.match(r"%%cuda (\w+)", text)
            if not found:
                continue
            problem: Problem | None = None
            if re.search(r"const float\s*\*.*const float\s*\*.*int k\)", text, re.S):
                problem = Gemm(128, 128, 96)
            elif re.search(r"unsigned\s*\*\s*out,\s*int tiles", text):
                problem = TileReduction.of_tiles(5, blocks=2)
            if problem is not None:
                name = f"{path.stem}: {found[1]}"
                yield Subject(name, kernel_from_text(text), problem)


def case_subjects() -> Iterator[Subject]:
    """Every case of the bank."""
    for case in case_files.all_cases():
        yield Subject(case.name, case.kernel, case.problem, case.verdict)


def same(problem: Problem, left: np.ndarray, right: np.ndarray) -> tuple[bool, str]:
    """Whether two results agree, and by how much they differ."""
    if left.dtype.kind in "iu":
        return bool(np.array_equal(left, right)), "bit for bit"
    bound = 2 * float(getattr(problem, "tolerance", 0.0))
    apart = float(np.max(np.abs(left.astype(np.float64) - right.astype(np.float64))))
    return apart <= bound, f"{apart:.2g} apart, {bound:.2g} allowed"


def compare(subject: Subject) -> Row:
    """One subject on both devices."""
    from course_lib.real_gpu.guard import GpuFault, GpuHung, shared_helper
    from course_lib.virtual_gpu.flow import Unsupported

    kernel, problem = shaped_for(subject.kernel, subject.problem), subject.problem
    inputs = problem.inputs()
    results, begin = [], time.perf_counter()
    for policy in POLICIES:
        try:
            result, outputs = launch_virtual(kernel, problem, inputs, **policy)
        except Unsupported as refusal:
            return Row(subject.name, None, f"not on the virtual GPU: {refusal}", 0, 0)
        if not result.ok:
            return Row(subject.name, None, f"virtual GPU: {result.errors[0]}", 0, 0)
        results.append(outputs)
    virtual_ms = 1000 * (time.perf_counter() - begin) / len(POLICIES)
    first = results[0]
    if any(not same(problem, first[n], other[n])[0] for other in results[1:] for n in first):
        return Row(subject.name, None, "differs by order on the virtual GPU: racy", virtual_ms, 0)
    try:
        answer = shared_helper().call(
            "run_problem", kernel=kernel.to_spec(), problem=problem.to_spec(),
            deadline=GPU_DEADLINE,
        )  # fmt: skip
    except (GpuFault, GpuHung) as failure:
        return Row(subject.name, False, f"GPU: {failure}".splitlines()[0], virtual_ms, 0)
    verdicts = [same(problem, first[n], np.asarray(answer["outputs"][n])) for n in first]
    words = "; ".join(text for _, text in verdicts)
    agree = all(ok for ok, _ in verdicts)
    return Row(subject.name, agree, words, virtual_ms, answer["microseconds"] / 1000)


def racecheck(subject: Subject, sanitizer: str) -> RaceRow:
    """One launch under racecheck, and under the virtual GPU's own checker."""
    kernel, problem = shaped_for(subject.kernel, subject.problem), subject.problem
    inputs = problem.inputs()
    launch_virtual(kernel, problem, inputs, check=True)  # translate first: only the launch is timed
    begin = time.perf_counter()
    found = False
    for policy in POLICIES:
        result, _ = launch_virtual(kernel, problem, inputs, check=True, **policy)
        found |= bool(result.races)
    virtual_seconds = (time.perf_counter() - begin) / len(POLICIES)
    with tempfile.TemporaryDirectory(prefix="racecheck-") as name:
        folder = Path(name)
        arguments = problem.arguments(kernel, inputs, problem.outputs())
        write_job(
            folder, kernel.cubin, kernel.name, problem.grid(kernel), problem.threads(kernel),
            kernel.shared_bytes, arguments,
        )  # fmt: skip
        begin = time.perf_counter()
        verdict = _racecheck_says(folder, sanitizer)
        seconds = time.perf_counter() - begin
    return RaceRow(subject.name, subject.verdict, found, verdict, virtual_seconds, seconds)


def _racecheck_says(folder: Path, sanitizer: str) -> bool | None:
    """True for a hazard, False for none, None without a verdict."""
    launcher = [sys.executable, "-m", "tools.driver_launch", str(folder)]
    command = [sanitizer, "--tool", "racecheck", *launcher]
    options: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True}
    try:
        ran = subprocess.run(command, timeout=RACECHECK_DEADLINE, check=False, **options)
    except subprocess.TimeoutExpired:
        return None
    summary = re.search(r"RACECHECK SUMMARY: (\d+) hazard", ran.stdout)
    if summary is None or "launched and ended" not in ran.stdout:
        print(ran.stdout[-1500:], ran.stderr[-1500:], file=sys.stderr)
        return None
    return int(summary[1]) > 0


def sample(subjects: list[Subject]) -> list[Subject]:
    """What racecheck can judge; the verdicts take turns, so that a short time sees each."""
    fit = [
        s for s in subjects
        if s.verdict in ("right", "ready", "reuse", "other")
        and not BEYOND_RACECHECK.search(s.kernel.source)
    ]  # fmt: skip
    turns = [[s for s in fit if s.verdict == verdict] for verdict in ("right", "ready", "reuse")]
    longest = max(map(len, turns), default=0)
    return [turn[k] for k in range(longest) for turn in turns if k < len(turn)]


def racecheck_rows(subjects: list[Subject], seconds: float) -> list[RaceRow]:
    """As many as the time allows."""
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(sanitizer).exists():
        print("compute-sanitizer is not on this machine: nothing to put beside it")
        return []
    rows, end = [], time.monotonic() + seconds
    for subject in sample(subjects):
        if time.monotonic() > end:
            break
        rows.append(racecheck(subject, sanitizer))
        print(rows[-1], flush=True)
    return rows


def report(rows: list[Row], races: list[RaceRow], device: str) -> str:
    """The report, in Markdown."""
    compared = [row for row in rows if row.agree is not None]
    agree = sum(bool(row.agree) for row in compared)
    lines = [
        "# The same answers as the hardware",
        "",
        f"Made by `make differential` on {device}. {agree} of {len(compared)} kernels give the "
        "same result on the virtual GPU (under three policies) and on the GPU: integers bit for "
        "bit, floats within twice the problem's tolerance. Virtual time is wall time of a launch.",
        "",
        "| kernel | same | how | virtual ms | GPU ms |",
        "|---|---|---|---|---|",
    ]
    mark = {True: "yes", False: "**no**", None: "not compared"}
    for row in rows:
        words = " ".join(row.words.split()).replace("|", "/")[:160]
        times = f"{row.virtual_ms:.1f} | {row.gpu_ms:.3f}"
        lines.append(f"| {row.name} | {mark[row.agree]} | {words} | {times} |")
    if races:
        lines += ["", "## Beside compute-sanitizer's racecheck", "", *race_lines(races)]
    return "\n".join(lines) + "\n"


def race_lines(races: list[RaceRow]) -> list[str]:
    """The table of both checkers' verdicts and times."""
    hazard = {True: "race", False: "none", None: "no verdict"}
    differ = [r for r in races if r.racecheck is not None and r.racecheck != r.virtual]
    ratio = np.median([r.racecheck_seconds / max(r.virtual_seconds, 1e-6) for r in races])
    lines = [
        f"{len(races)} launches, each in a process that loads nothing but the kernel; "
        f"{len(differ)} verdicts differ. racecheck takes {ratio:.0f} times as long (median), its "
        "process's start included.",
        "",
        "| case | declared | virtual GPU | racecheck | virtual s | racecheck s |",
        "|---|---|---|---|---|---|",
    ]
    for r in races:
        times = f"{r.virtual_seconds:.4f} | {r.racecheck_seconds:.1f}"
        verdicts = f"{hazard[r.virtual]} | {hazard[r.racecheck]}"
        lines.append(f"| {r.name} | {r.declared} | {verdicts} | {times} |")
    return lines


def main(arguments: list[str]) -> int:
    """1 where a result differs between the devices."""
    parser = argparse.ArgumentParser(prog="make differential", description=__doc__)
    parser.add_argument("--racecheck", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    from course_lib.devices import resolve

    subjects = list(case_subjects())
    right = [*lesson_subjects(), *(s for s in subjects if s.verdict == "right")]
    where, why = resolve("auto", right[0].kernel)
    if where != "gpu":
        print(f"make differential: there is no GPU to compare with ({why})")
        return 2
    rows = []
    for subject in right:
        rows.append(compare(subject))
        print(rows[-1], flush=True)
    races = racecheck_rows(subjects, options.racecheck) if options.racecheck else []
    text = report(rows, races, device_name())
    if options.write:
        options.write.write_text(text)
    wrong = [row.name for row in rows if row.agree is False]
    compared = sum(row.agree is not None for row in rows)
    print(f"make differential: {compared - len(wrong)} of {compared} kernels the same on both")
    print("\n".join(wrong))
    return 1 if wrong else 0


def device_name() -> str:
    """The GPU's name, as its driver gives it."""
    ran = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ran.stdout.strip().splitlines()[0] if ran.returncode == 0 else "a GPU"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
