"""The case bank: every wrong kernel is caught with its edge and lines, no right one is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import case_files
import pytest
from case_files import Case, CaseError

from course_lib.problem_runs import launch_virtual
from course_lib.virtual_gpu import report
from course_lib.virtual_gpu.flow import Unsupported
from course_lib.virtual_gpu.launch import LaunchResult

ORDERS = [("round_robin", 0), ("one_last", 0), ("one_first", 1), ("random", 0)]
LANDINGS = ["early", "late", "random"]
POLICIES = [
    {"order": order, "victim": victim, "landing": landing, "seed": 7}
    for order, victim in ORDERS
    for landing in LANDINGS
]
BUDGET = 20_000_000

PATHS = case_files.all_paths()
CHECKER = importlib.util.find_spec("course_lib.hazards") is not None


def runs(case: Case) -> list[tuple[LaunchResult, bool]]:
    """The case under every policy: what happened, and whether the result was right."""
    inputs = case.problem.inputs()
    reference = case.problem.reference(inputs)
    found = []
    for policy in POLICIES:
        result, outputs = launch_virtual(
            case.kernel, case.problem, inputs, step_budget=BUDGET, **policy
        )
        found.append((result, case.problem.compare(outputs, reference)[0]))
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    case = case_files.load(path)
    try:
        found = runs(case)
    except Unsupported as refusal:
        pytest.xfail(f"the virtual GPU refuses it: {refusal}")
    if case.verdict == "right":
        assert [result.errors for result, _ in found] == [[]] * len(found)
        assert all(ok for _, ok in found)
    elif case.verdict == "incomplete":
        assert [result.errors for result, _ in found] == [[]] * len(found)
        assert not any(ok for _, ok in found)
    elif case.verdict in ("deadlock", "memory"):
        kind = report.MemoryFault if case.verdict == "memory" else report.Deadlock
        for result, _ in found:
            assert isinstance(result.errors[0], kind)
            assert not case.lines("first") or result.errors[0].line in case.lines("first")


def test_the_bank_is_large_enough() -> None:
    verdicts = [path.name.split("_")[0] for path in PATHS]
    assert verdicts.count("right") >= 1


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
