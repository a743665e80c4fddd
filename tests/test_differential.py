"""The comparison of both devices, with a stand-in for the GPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ring_kernel import problem, ring

from course_lib.problem_runs import launch_virtual
from course_lib.problems import Gemm
from course_lib.real_gpu import guard
from tools import differential
from tools.differential import RaceRow, Subject
from tools.driver_launch import write_job


class StandIn:
    """Answers like the GPU's helper process, off by ``error`` in one element."""

    def __init__(self, error: int) -> None:
        self.error = error

    def call(self, task: str, *, kernel: dict, problem: dict, deadline: float) -> dict:
        _, outputs = launch_virtual(ring(), differential.TileReduction(**problem["parameters"]))
        outputs["out"][3] += self.error
        return {"outputs": outputs, "microseconds": 5.0}


@pytest.mark.parametrize(("error", "agree"), [(0, True), (1, False)])
def test_one_wrong_bit_is_seen(error: int, agree: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "shared_helper", lambda: StandIn(error))
    row = differential.compare(Subject("ring", ring(), problem()))
    assert row.agree is agree and row.virtual_ms > 0
    text = differential.report([row], [], "a card")
    assert f"{int(agree)} of 1 kernels" in text and "| ring |" in text


def test_a_racy_kernel_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "shared_helper", lambda: StandIn(0))
    row = differential.compare(Subject("ring", ring(2, "NO_WAIT"), problem()))
    assert row.agree is None and "racy" in row.words


def test_floats_have_a_bound() -> None:
    gemm = Gemm(64, 64, 32)
    zero = np.zeros((64, 64), np.float32)
    assert differential.same(gemm, zero, zero + np.float32(gemm.tolerance))[0]
    assert not differential.same(gemm, zero, zero + np.float32(3 * gemm.tolerance))[0]
    assert not differential.same(gemm, zero, zero * np.nan)[0]


def test_every_lesson_with_a_problem_is_there() -> None:
    names = [subject.name for subject in differential.lesson_subjects()]
    assert {"03_two_buffers: two_buffers", "01_one_buffer: gemm_one_buffer"} <= set(names)


def test_racecheck_gets_what_it_can_judge_in_turns() -> None:
    ringed = ring()
    bulk = Subject("bulk", ringed.variant(), problem(), "deadlock")
    kinds = ("right", "right", "ready", "reuse", "reuse")
    subjects = [Subject(f"{n}", ringed, problem(), kind) for n, kind in enumerate(kinds)]
    assert [s.name for s in differential.sample([*subjects, bulk])] == ["0", "2", "3", "1", "4"]


def test_different_verdicts_of_the_checkers_are_counted() -> None:
    rows = [
        RaceRow("a", "right", False, False, 0.01, 2),
        RaceRow("b", "ready", True, False, 0.01, 2),
    ]
    text = "\n".join(differential.race_lines(rows))
    assert "1 verdicts differ" in text and "200 times as long" in text


def test_a_job_holds_the_launch(tmp_path: Path) -> None:
    arguments = [np.arange(4, dtype=np.uint32), np.int32(7)]
    write_job(tmp_path, b"elf", "k", (3,), 64, 16, arguments)
    job = json.loads((tmp_path / "job.json").read_text())
    assert job["grid"] == [3, 1, 1] and [a["array"] for a in job["arguments"]] == [True, False]
    assert np.load(tmp_path / "1.npy").tobytes() == np.int32(7).tobytes()
