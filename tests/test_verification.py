"""Verdicts: right kernels, the two missing ordering edges, errors, and the real GPU's side."""

from __future__ import annotations

import numpy as np
import pytest
from ring_kernel import problem, ring

from course_lib.problems import Gemm
from course_lib.verification import LANDING_WORDS, ORDER_WORDS, Policy, Run, verify
from course_lib.virtual_gpu.launch import LANDINGS, ORDERS


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_right_kernels_are_right_in_every_shape(stages):
    for case in problem().awkward():
        verdict = verify(ring(stages), case, device="virtual")
        assert verdict.ok and verdict.max_error == 0 and not verdict.first_wrong, verdict
    assert bool(verdict) and "Right (virtual GPU)" in str(verdict)
    assert "7 combinations" in str(verdict)


def test_a_large_problem_is_run_whole_after_its_small_case():
    large = problem(40, 3)
    verdict = verify(ring(2), large, device="virtual")
    assert verdict.ok and [run.problem == large for run in verdict.runs] == [False] * 7 + [True]


def test_a_forgotten_wait_is_told_by_its_landing_pattern():
    verdict = verify(ring(2, "NO_WAIT"), problem(), device="virtual")
    assert not verdict.ok and verdict.max_error > 0
    assert "before its copy is complete" in verdict.why
    assert "tile 0 of block 0" in verdict.first_wrong.lower()
    by_landing = {run.policy.landing: run.ok for run in verdict.runs[:6]}
    assert by_landing == {"late": False, "early": True}


def test_luck_is_shown_where_one_policy_is_asked_for():
    lucky = verify(ring(2, "NO_WAIT"), problem(), device="virtual", landing="early")
    unlucky = verify(ring(2, "NO_WAIT"), problem(), device="virtual", landing="late")
    assert lucky.ok and len(lucky.runs) == 1 and "copies land at once" in str(lucky)
    assert not unlucky.ok and "as late as a wait allows" in str(unlucky)


def test_a_missing_reuse_barrier_is_told_by_the_warp_that_lags():
    verdict = verify(ring(2, "NO_REUSE"), problem(), device="virtual")
    assert not verdict.ok
    assert "lag" in verdict.why and "reuse edge" in verdict.why
    assert [r.ok for r in verdict.runs if r.policy == Policy("round_robin", "late")] == [True]


def test_an_error_ends_the_run_with_its_words():
    class Longer(type(problem())):
        """Tells the kernel of one tile more than there is."""

        def arguments(self, kernel, inputs, outputs):
            x, out, tiles = super().arguments(kernel, inputs, outputs)
            return [x, out, np.int32(tiles + 1)]

    case = Longer(2, 1024, 1024, 1, 128)
    verdict = verify(ring(2), case, device="virtual", landing="late")
    assert not verdict.ok and verdict.max_error == float("inf")
    assert "past the end of x" in str(verdict)
    assert len(verdict.runs) == 1


def test_html_escapes_the_learners_text():
    verdict = verify(ring(2, "NO_WAIT"), problem(), device="virtual")
    words = verdict._repr_html_()
    assert "✗ wrong" in words and "<script" not in words and "(virtual GPU)." not in words


def test_policies_of_the_virtual_gpu_all_have_words():
    assert set(ORDERS) == set(ORDER_WORDS) and set(LANDINGS) == set(LANDING_WORDS)


class FakeHelper:
    """Stands for the helper process; ``answer`` is returned or raised."""

    def __init__(self, answer):
        self.answer, self.calls = answer, []

    def call(self, name, **data):
        self.calls.append((name, data))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def real(monkeypatch):
    """Makes verify believe in a real GPU whose helper gives the answer set here."""
    from course_lib import devices
    from course_lib.real_gpu import guard

    def install(answer):
        helper = FakeHelper(answer)
        monkeypatch.setattr(devices, "resolve", lambda device, kernel=None: ("gpu", "test"))
        monkeypatch.setattr(guard, "shared_helper", lambda: helper)
        return helper

    return install


def right_answer(case):
    return {"outputs": case.reference(case.inputs()), "microseconds": 10.0, "device": "NVIDIA H200"}


def test_real_gpu_is_asked_after_the_small_case(real):
    helper = real(right_answer(problem()))
    verdict = verify(ring(2), problem())
    assert verdict.ok and verdict.device == "gpu" and "NVIDIA H200" in str(verdict)
    assert "right under 7 orders on the virtual GPU" in verdict.why
    name, data = helper.calls[0]
    assert name == "run_problem" and data["problem"] == problem().to_spec()
    assert data["kernel"]["name"] == "ring" and data["deadline"] > 0


def test_preflight_keeps_a_broken_kernel_off_the_real_gpu(real):
    helper = real(right_answer(problem()))
    verdict = verify(ring(2, "NO_WAIT"), problem())
    assert not verdict.ok and verdict.device == "virtual" and not helper.calls
    assert "preflight=False" in str(verdict)
    assert verify(ring(2, "NO_WAIT"), problem(), preflight=False).ok  # by luck
    assert len(helper.calls) == 1


def test_a_wrong_result_on_the_real_gpu_is_wrong(real):
    answer = right_answer(problem())
    answer["outputs"]["out"] = answer["outputs"]["out"] + np.uint32(1)
    real(answer)
    verdict = verify(ring(2), problem())
    assert not verdict.ok and "12 of 12 tiles" in str(verdict)


def test_a_hung_kernel_is_a_verdict(real):
    from course_lib.real_gpu.guard import GpuHung

    real(GpuHung("The kernel 'ring' did not finish within its deadline of 20 s"))
    verdict = verify(ring(2), problem(), preflight=False)
    assert not verdict.ok and "did not finish" in str(verdict)


def test_what_the_virtual_gpu_lacks_does_not_stop_the_real_one(real, monkeypatch):
    from course_lib import verification
    from course_lib.virtual_gpu.flow import Unsupported

    def refuse(*_, **__):
        raise Unsupported("wgmma is not there yet")

    monkeypatch.setattr(verification, "launch_virtual", refuse)
    real(right_answer(problem()))
    verdict = verify(ring(2), problem())
    assert verdict.ok and "could not look at it first" in str(verdict)


def test_orders_belong_to_the_virtual_gpu(real):
    real(right_answer(problem()))
    with pytest.raises(ValueError, match="virtual"):
        verify(ring(2), problem(), landing="late")


def test_tolerance_is_told():
    from course_lib.verification import _why_right

    case = Gemm(8, 8, 8)
    words = _why_right([Run(Policy(), case, "virtual", True, 1e-7)], case)
    assert "Within the tolerance" in words and "1e-07" in words


def test_a_problem_that_does_not_fit_the_kernel_is_named():
    with pytest.raises(TypeError, match="arguments were given. Does Gemm fit this kernel"):
        verify(ring(2), Gemm(128, 128, 64), device="virtual")
