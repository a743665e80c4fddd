"""Stress: right kernels never fail, faults do in the half that shows them, replays reproduce."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ring_kernel import RING, problem, ring
from test_delays import PRODUCER

from course_lib import Gemm, TileReduction, stress, stressing
from course_lib.kernel import compile_kernel
from course_lib.problems.base import random_words
from course_lib.real_gpu import guard
from course_lib.stress_plan import LONGEST, SHORTEST, consumers_of, delay_of, input_number
from course_lib.stress_report import StressReport

COUNT = 60
TAIL = ("        __pipeline_commit();", "        if (t < tiles) __pipeline_commit();")


def stressed(kernel, iterations=COUNT, case=None, **options):
    return stress(kernel, case or problem(), iterations, device="virtual", **options)


def no_tail_commit():
    """The last tiles commit no empty groups, so the last waits count one group too many."""
    source = RING.replace(*TAIL)
    assert source != RING
    return compile_kernel(source, "ring", {"STAGES": 2}, threads=128)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_right_kernel_does_not_fail(stages):
    report = stressed(ring(stages))
    assert report.ok and report and report.failures == (0, 0, 0)
    assert report.iterations == COUNT and report.delayed_iterations == COUNT // 2
    assert report.first_failure is None and report.consumers == (0, 1, 2, 3)
    assert "no proof" in report.words and "find_hazards" in report.words
    with pytest.raises(ValueError, match="no iteration failed"):
        report.replay()


def test_a_missing_reuse_edge_fails_where_a_warp_is_delayed():
    report = stressed(ring(2, "NO_REUSE"))
    assert report.failures == (COUNT // 2, COUNT // 2, 0)
    assert not report.ok and "reuse edge" in report.words
    first = report.first_failure
    assert first.iteration == 0 and first.warp in report.consumers
    assert SHORTEST <= first.factor <= LONGEST
    assert first.tile is not None and first.stage == first.tile % 2


def test_a_missing_wait_fails_undelayed_where_copies_land_late():
    report = stressed(ring(2, "NO_WAIT"))
    assert report.failures.undelayed >= COUNT // 2 // 3
    undelayed = [number for number in report.failed if number % 2]
    assert {stressing.UNDELAYED_LANDINGS[number // 2 % 3] for number in undelayed} >= {"late"}


def test_a_missing_tail_commit_fails_undelayed():
    report = stressed(no_tail_commit(), case=problem(tiles=5))
    assert report.failures.undelayed > 0
    assert stressed(ring(2), case=problem(tiles=5)).ok


@pytest.mark.parametrize("kernel", [ring(2, "NO_REUSE"), ring(2, "NO_WAIT")])
def test_the_first_failure_replays(kernel):
    report = stressed(kernel, seed=7)
    first = report.first_failure
    again = report.replay()
    assert again.failed == (first.iteration,) and again.first_failure == first
    # The line itself, with nothing else in scope.
    here = eval(first.replay, {"stress": stress, "TileReduction": TileReduction, "ring": kernel})
    assert here.failed == (first.iteration,) and here.first_failure.words == first.words


def test_every_iteration_and_seed_has_its_own_input(monkeypatch):
    seen = []
    inputs = TileReduction.inputs

    def spy(self, xp=np, iteration=0):
        made = inputs(self, xp, iteration)
        seen.append(made["x"].tobytes())
        return made

    monkeypatch.setattr(TileReduction, "inputs", spy)
    stressed(ring(2), 6)
    stressed(ring(2), 6, seed=1)
    # One more per run for the census, which has the problem's own input, as iteration 0 of seed 0.
    assert len(seen) == 14 and len(set(seen)) == 12


def test_the_plan_of_delays():
    plan = [delay_of(3, number, (2, 5, 6)) for number in range(400)]
    assert [delay is None for delay in plan] == [bool(number % 2) for number in range(400)]
    delays = [delay for delay in plan if delay]
    assert {delay.warp for delay in delays} == {2, 5, 6}
    assert all(SHORTEST <= delay.factor <= LONGEST for delay in delays)
    assert len({delay.factor for delay in delays}) == len(delays)
    assert {(delay.arrives, delay.waits) for delay in delays} == {
        (False, False), (False, True), (True, False), (True, True)
    }  # fmt: skip
    assert plan == [delay_of(3, number, (2, 5, 6)) for number in range(400)]
    assert plan != [delay_of(4, number, (2, 5, 6)) for number in range(400)]
    assert delay_of(0, 0, ()) is None
    assert input_number(1, 0) != input_number(0, 10**6)


def test_consumers_are_the_warps_that_read():
    assert consumers_of([2, 7, 3, 0]) == (1, 2)
    assert consumers_of([2, 6, 4]) == (1, 2)  # nobody reads: those that wait
    assert consumers_of([2, 0]) == (0, 1)
    roles = compile_kernel(PRODUCER, threads=128)
    report = stressed(roles, 10)
    assert report.ok and report.consumers == (1, 2, 3)


def test_a_product():
    source = """extern "C" __global__ void product(const float* A, const float* B, float* C,
                                                   int m, int n, int k) {
      __shared__ float a[16][17], b[16][17];
      const int i = threadIdx.x / 16, j = threadIdx.x % 16;
      float sum = 0;
      for (int p = 0; p < k; p += 16) {
        a[i][j] = A[(blockIdx.y * 16 + i) * k + p + j];
        b[i][j] = B[(blockIdx.x * 16 + i) * k + p + j];
        __syncthreads();
        for (int e = 0; e < 16; e++) sum += a[i][e] * b[j][e];
        EDGE
      }
      C[(blockIdx.y * 16 + i) * n + blockIdx.x * 16 + j] = sum;
    }"""
    case = Gemm(32, 32, 64)
    right = compile_kernel(source.replace("EDGE", "__syncthreads();"), threads=256, tile=(16, 16))
    wrong = compile_kernel(source.replace("EDGE", ""), threads=256, tile=(16, 16))
    assert stressed(right, 12, case).ok
    report = stressed(wrong, 12, case)
    assert report.failures.delayed == 6
    first = report.first_failure
    assert first.tile is None and first.stage is None and first.block in range(4)
    row, column = (int(n) for n in re.match(r"C\[(\d+), (\d+)\]", first.words).groups())
    assert first.block == row // 16 * 2 + column // 16 and f"(block {first.block})" in str(first)


def test_an_error_ends_the_run_in_words():
    source = RING.replace("mine + t * TILE + e", "mine + (t + 1000) * TILE + e")
    broken = compile_kernel(source, "ring", {"STAGES": 2}, threads=128)
    report = stressed(broken)
    assert not report.ok and report.iterations == 0 and report.stopped
    assert "past the end" in str(report) and str(report).startswith("Not finished")


def test_an_interrupted_run_is_reported(monkeypatch):
    iterate, begun = stressing._iterate, []

    def interrupted(run, number):
        begun.append(number)
        if number == 20:
            raise KeyboardInterrupt
        return iterate(run, number)

    monkeypatch.setattr(stressing, "_iterate", interrupted)
    report = stressed(ring(2, "NO_REUSE"), 1000)
    assert report.iterations == 20 and report.planned == 1000
    assert report.failures == (10, 10, 0)
    assert len(begun) < 100  # what was waiting for its turn was dropped
    assert "interrupted" in report.stopped and "20 of 1,000 planned" in str(report)
    assert not stressed(ring(2), 1000).ok  # nothing failed, and yet not everything was run


def test_progress(monkeypatch):
    steps = []

    class Bar:
        def __init__(self, total, words):
            steps.append((total, words))

        def __enter__(self):
            return self

        def __exit__(self, *problem):
            steps.append("closed")

        def update(self, count=1):
            steps.append(count)

    monkeypatch.setattr(stressing, "progress_bar", Bar)
    stressed(ring(2), 7)
    assert steps == [(7, "stress ring"), *[1] * 7, "closed"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"iterations": 0}, "iterations must be a whole number of at least 1, not 0"),
        ({"iterations": 2.5}, "iterations must be"),
        ({"first": -1}, "first must be"),
        ({"seed": -3}, "seed must be"),
    ],
)
def test_arguments_in_words(options, words):
    with pytest.raises(ValueError, match=words):
        stress(ring(2), problem(), device="virtual", **options)


def test_forms_of_a_report():
    report = stressed(ring(2, "NO_REUSE"), 10)
    page = report._repr_html_()
    assert "a warp delayed" in page and "✗ fails" in page and "stress(ring" in page
    axes = report.plot().axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["a warp delayed: 5 of 5 failed", "nothing delayed: 0 of 5 failed"]
    assert "✓ no failure" in stressed(ring(2), 4)._repr_html_()


def test_words_of_the_patterns():
    def words(failed):
        return StressReport(
            "k",
            problem(),
            "virtual",
            "virtual GPU",
            0,
            0,
            8,
            8,
            failed,
            None,
            (0,),
            None,
            "",
            "",
            1,
        ).words

    assert "reuse edge" in words((0, 2)) and "ready edge" in words((1, 3))
    assert "both halves" in words((0, 1)) and "every time" in words(tuple(range(8)))


# --- A real GPU's run, with the messages that its helper sends --------------------------------


class Helper:
    """Stands for the helper process: hands over prepared messages, then an error."""

    def __init__(self, messages, error=None):
        self.messages, self.error = messages, error

    def call(self, function, *, on_partial, **data):
        self.function, self.data = function, data
        for message in self.messages:
            on_partial(message)
        if self.error:
            raise self.error


FIRST_MESSAGE = {
    "device": "H200", "consumers": (0, 1), "latency_cycles": 900.0, "latency_words": "measured"
}  # fmt: skip


def on_gpu(monkeypatch, helper, kernel=None):
    from course_lib import devices

    monkeypatch.setattr(devices, "resolve", lambda device, kernel: ("gpu", ""))
    monkeypatch.setattr(guard, "shared_helper", lambda: helper)
    return stress(kernel or ring(2), problem(tiles=6, blocks=2), 100)


def test_a_real_run(monkeypatch):
    wrong = [(2, "out", 3, 7), (3, "out", 1, 0)]
    helper = Helper([FIRST_MESSAGE, {"done": 50, "wrong": wrong}, {"done": 50, "wrong": []}])
    report = on_gpu(monkeypatch, helper)
    assert helper.data["iterations"] == 100 and helper.data["problem"] == problem().to_spec()
    assert report.failures == (2, 1, 1) and report.iterations == 100
    first = report.first_failure
    assert (first.iteration, first.block, first.tile, first.stage) == (2, 1, 1, 1)
    assert "tile 1 of block 1 (out[7]) is wrong; 3 elements" in first.words
    assert report.latency_cycles == 900 and report.device_label == "H200"


def test_a_real_run_that_faults_at_once(monkeypatch):
    from course_lib import devices

    monkeypatch.setattr(devices, "gpu", lambda: devices.Gpu("H200", (9, 0), *[1] * 7, (13, 0)))
    report = on_gpu(monkeypatch, Helper([], guard.GpuFault("an illegal instruction")))
    assert report.iterations == 0 and not report.ok
    assert (
        report.device_label == "H200" and report.stopped == "At the start: an illegal instruction"
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt(), guard.GpuHung("k did not finish")])
def test_a_real_run_that_is_cut_short(monkeypatch, error):
    report = on_gpu(monkeypatch, Helper([FIRST_MESSAGE, {"done": 50, "wrong": []}], error))
    assert report.iterations == 50 and report.stopped and not report.ok


# --- Inputs made on the device ----------------------------------------------------------------


def test_random_words():
    words = random_words(np, 1 << 16, 0, 0)
    assert words.dtype == np.uint32 and len(set(words.tolist())) > 65000
    bits = np.unpackbits(words.view(np.uint8).reshape(-1, 4), axis=1).mean(axis=0)
    assert abs(bits - 0.5).max() < 0.01
    assert abs(np.corrcoef(words[1:].astype(float), words[:-1].astype(float))[0, 1]) < 0.02
    others = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    assert all((random_words(np, 1 << 16, *key) != words).mean() > 0.99 for key in others)
    assert (random_words(np, 100, 0, 0) == words[:100]).all()  # each word by its number alone


def test_fresh_inputs_are_the_problem():
    case = problem()
    x = case.fresh_inputs(iteration=3)["x"]
    assert x.shape == case.inputs()["x"].shape and x.dtype == np.uint32
    product = Gemm(32, 48, 64)
    made, usual = product.fresh_inputs(iteration=3), product.inputs()
    for name, array in made.items():
        assert array.shape == usual[name].shape and array.dtype == usual[name].dtype
        assert -1 <= array.min() < -0.9 and 0.9 < array.max() < 1


def test_wrong_elements():
    case = problem()
    right = case.reference(case.inputs())
    out = {"out": right["out"].copy()}
    out["out"][9] += 1
    assert np.flatnonzero(case.wrong_elements(out, right)["out"]).tolist() == [9]
    assert case.place_of("out", 9) == (1, 3)
    product = Gemm(8, 8, 8)
    right = product.reference(product.inputs())
    values = right["C"].astype(np.float32)
    values[1, 2] = np.nan
    assert np.argwhere(product.wrong_elements({"C": values}, right)["C"]).tolist() == [[1, 2]]
