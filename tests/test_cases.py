"""The case bank: every wrong kernel is caught with its edge and lines, no right one is refused."""

from __future__ import annotations

from pathlib import Path

import case_files
import pytest
from case_files import Case, CaseError

from course_lib.hazards import HazardReport, find_hazards
from course_lib.problem_runs import launch_virtual
from course_lib.verification import Policy
from course_lib.virtual_gpu import report
from course_lib.virtual_gpu.launch import LaunchResult

POLICIES = [
    Policy(order, landing, victim, seed=7)
    for order, victim in (("round_robin", 0), ("one_last", 0), ("one_first", 1), ("random", 0))
    for landing in ("early", "late", "random")
]
BUDGET = 20_000_000
EDGES = ("ready", "reuse", "other")

PATHS = case_files.all_paths()


def runs(case: Case) -> list[tuple[LaunchResult, bool]]:
    """The case under every policy, unchecked: what happened, and whether the result was right."""
    inputs = case.problem.inputs()
    reference = case.problem.reference(inputs)
    found = []
    for policy in POLICIES:
        result, outputs = launch_virtual(
            case.kernel, case.problem, inputs, order=policy.order, landing=policy.landing,
            victim=policy.victim, seed=policy.seed, step_budget=BUDGET,
        )  # fmt: skip
        found.append((result, case.problem.compare(outputs, reference)[0]))
    return found


def disagreements(case: Case) -> list[str]:
    """Where a run says something else than the case declares; empty where all agree."""
    return [*_of_results(case, runs(case)), *_of_checks(case)]


def _of_results(case: Case, found: list[tuple[LaunchResult, bool]]) -> list[str]:
    wrong = []
    for policy, (result, ok) in zip(POLICIES, found, strict=True):
        if case.verdict in ("memory", "deadlock"):
            if not any(_declared_error(case, error) for error in result.errors):
                wrong.append(f"{policy}: {result!r}")
        elif result.errors and case.verdict not in EDGES:  # a race may end in anything
            wrong.append(f"{policy}: {result!r}")
        elif case.verdict in ("right", "incomplete") and ok != (case.verdict == "right"):
            wrong.append(f"{policy}: the result is {'right' if ok else 'wrong'}")
    return wrong


def _declared_error(case: Case, error: report.RunError) -> bool:
    kind = report.MemoryFault if case.verdict == "memory" else report.Deadlock
    lines = case.lines("first")
    return isinstance(error, kind) and (not lines or error.line in lines)


def _of_checks(case: Case) -> list[str]:
    """Each policy decides by itself; where timing decides on what happens, all of them together."""
    wrong = []
    merged = find_hazards(case.kernel, case.problem)
    if not _as_declared(case, merged):
        wrong.append(f"by default: {merged}")
    if not merged.scope.every_schedule and case.verdict not in ("right", "incomplete"):
        return wrong
    for policy in POLICIES:
        found = find_hazards(case.kernel, case.problem, policies=[policy])
        if not _as_declared(case, found):
            wrong.append(f"{policy}: {found}")
    return wrong


def _as_declared(case: Case, found: HazardReport) -> bool:
    if case.verdict in EDGES:
        first = found.hazards[0] if found.hazards else None
        return (
            first is not None
            and (first.edge == case.verdict)
            and any(
                hazard.edge == case.verdict
                and hazard.first.line in case.lines("first")
                and hazard.second.line in case.lines("second")
                for hazard in found.hazards
            )
        )
    if case.verdict == "memory":
        return any(_declared_error(case, error) for error in found.memory_errors)
    if case.verdict == "deadlock":
        return found.deadlock is not None and _declared_error(case, found.deadlock)
    return found.ok


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_policy_says_what_the_case_declares(path: Path) -> None:
    case = case_files.load(path)
    wrong = disagreements(case)
    if "open" not in case.keys:
        assert not wrong, "\n\n".join(wrong[:2])
        return
    assert wrong, "runs agree by now: take `open` out of the case"
    pytest.xfail(case.keys["open"])


def test_the_bank_is_large_enough() -> None:
    verdicts = [path.name.split("_")[0] for path in PATHS]
    right = verdicts.count("right")
    assert right >= 40 and len(PATHS) - right >= 60


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


BASE = """// title: t
// problem: TileReduction.of_tiles(1, 1, tile_elements=32, threads=32)
// verdict: right
// source: own
extern "C" __global__ void k(const unsigned* x, unsigned* out, int tiles) {
    int a = 1;
    out[0] = a;
}
"""


def test_an_edit_replaces_deletes_and_inherits(tmp_path: Path) -> None:
    write(tmp_path, "right_base.cu", BASE)
    head = "// base: right_base.cu\n// title: u\n// verdict: memory\n// source: own\n\n"
    path = write(
        tmp_path, "memory_x.edit", head + "-int a = 1;\n\n-out[0] = a;\n+    out[9] = 2;\n"
    )
    case = case_files.load(path)
    assert case.text.splitlines()[1:] == ["    out[9] = 2;", "}"]
    assert case.problem.threads() == 32 and case.keys["title"] == "u"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("-int b;\n", "0 times"),
        ("+int b;\n", "replaces nothing"),
        ("int b;\n", "neither"),
        ("\n", "nothing is edited"),
    ],
)
def test_edits_that_do_not_fit_are_refused(tmp_path: Path, edit: str, words: str) -> None:
    write(tmp_path, "right_base.cu", BASE)
    head = "// base: right_base.cu\n// title: u\n// verdict: memory\n// source: own\n\n"
    with pytest.raises(CaseError, match=words):
        case_files.load(write(tmp_path, "memory_x.edit", head + edit))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("// title: t\n", "", "lacks title"),
        ("// title: t\n", "// titel: t\n", "unknown"),
        ("verdict: right", "verdict: ready", "don't agree"),
        ("// source: own\n", "// source: own\n// first: nowhere\n", "no line"),
    ],
)
def test_headers_that_do_not_fit_are_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(CaseError, match=words):
        case_files.load(write(tmp_path, "right_x.cu", BASE.replace(old, new)))
