"""Comparisons: intervals that cover, inconclusive where nothing can be told, virtual cycles."""

from __future__ import annotations

import numpy as np
import pytest
from ring_kernel import problem, ring

from course_lib.problem_runs import DoesNotRun
from course_lib.timing import Comparison, compare, ratio_of


def noisy(center, rounds, rng, noise=0.02):
    return center * rng.lognormal(0, noise, rounds)


def test_intervals_cover_the_true_ratio_as_often_as_they_say():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        ratio = ratio_of(noisy(90, 20, rng), noisy(100, 20, rng))
        hits += ratio.low <= 0.9 <= ratio.high
    assert hits >= 180


def test_equal_kernels_are_inconclusive_and_different_ones_are_not():
    rng = np.random.default_rng(4)
    wrong = sum(
        ratio_of(noisy(100, 20, rng), noisy(100, 20, rng), 0.005).conclusive for _ in range(200)
    )
    assert wrong <= 20
    assert all(
        ratio_of(noisy(100, 20, rng), noisy(80, 20, rng), 0.005).conclusive for _ in range(50)
    )


def test_what_rounds_have_in_common_cancels():
    rng = np.random.default_rng(5)
    heat = np.linspace(1.0, 1.3, 20)  # the card gets slower for all candidates alike
    paired = ratio_of(noisy(100 * heat, 20, rng, 0.002), noisy(97 * heat, 20, rng, 0.002))
    assert paired.conclusive and paired.value > 1


def test_a_difference_below_the_resolution_is_not_told_apart():
    steady = np.full(20, 100.0) + np.linspace(0, 0.01, 20)
    assert not ratio_of(steady * 1.002, steady, 0.005).conclusive
    assert ratio_of(steady * 1.002, steady, 0.0).conclusive


def test_virtual_cycles_are_compared_without_intervals():
    result = compare({"one": ring(1), "two": ring(2)}, problem(12), device="virtual")
    assert result.unit == "virtual cycles" and result.device_label == "virtual GPU"
    gain = result.ratio("one", "two")
    assert float(gain) == result.median("one") / result.median("two") > 1
    assert gain.low == gain.high == gain.value and gain.conclusive
    assert not result.ratio("one", "one").conclusive
    again = compare({"one": ring(1), "two": ring(2)}, problem(12), device="virtual")
    assert again.median("two") == result.median("two")


def test_comparison_says_what_it_is_in_every_form():
    rng = np.random.default_rng(0)
    result = Comparison(
        {"a <b>": noisy(100, 20, rng), "fast": noisy(60, 20, rng), "same": noisy(100, 20, rng)},
        "us", "gpu", "NVIDIA H200",
    )  # fmt: skip
    text = str(result)
    assert "NVIDIA H200, measured" in text and "interleaved" in text and "us" in text
    assert "inconclusive" in text.splitlines()[2] and "inconclusive" not in text.splitlines()[1]
    assert "a &lt;b&gt;" in result._repr_html_()
    frame = result.to_frame()
    assert list(frame.index) == ["a <b>", "fast", "same"]
    assert frame.loc["fast", "conclusive"] and frame.ratio.iloc[0] == 1
    widths = [bar.get_width() for bar in result.plot().axes[0].patches]
    assert widths == pytest.approx(list(frame.ratio))
    with pytest.raises(KeyError, match="fast"):
        result.median("slow")


def test_a_callable_has_no_virtual_cycles():
    with pytest.raises(ValueError, match="callable"):
        compare({"ring": ring(2), "numpy": lambda x: x.sum()}, problem(), device="virtual")
    with pytest.raises(ValueError, match="at least one"):
        compare({}, problem())


def test_a_kernel_that_fails_cannot_be_compared():
    case = problem()
    case.arguments = lambda kernel, inputs, outputs: [
        inputs["x"], outputs["out"], np.int32(case.tiles * 9),
    ]  # fmt: skip
    with pytest.raises(DoesNotRun, match="past the end"):
        compare({"ring": ring(2)}, case, device="virtual")


def test_the_real_gpu_gets_specs_and_gives_rounds(monkeypatch):
    from course_lib import devices
    from course_lib.real_gpu import guard

    class Helper:
        def call(self, name, **data):
            assert name == "time_kernels" and set(data["kernels"]) == {"one", "two"}
            assert data["problem"] == problem().to_spec()
            times = np.random.default_rng(1).normal(100, 3, (2, data["rounds"]))
            rows = dict(zip(data["kernels"], (times * [[1], [0.7]]).tolist(), strict=True))
            return {"microseconds": rows, "device": "NVIDIA H200", "l2_flushed": True}

    monkeypatch.setattr(devices, "resolve", lambda device, kernel=None: ("gpu", "test"))
    monkeypatch.setattr(guard, "shared_helper", Helper)
    result = compare({"one": ring(1), "two": ring(2)}, problem(), rounds=10)
    assert result.rounds == 10 and result.unit == "us"
    ratio = result.ratio("two", "one")
    assert ratio.conclusive and ratio.low < float(ratio) < ratio.high
    assert float(ratio) == pytest.approx(0.7, rel=0.05)


def test_a_wrong_kernel_is_timed_and_its_row_says_that_it_is_wrong():
    result = compare({"one": ring(1), "lucky": ring(2, "NO_WAIT")}, problem(12), device="virtual")
    one, lucky = str(result).splitlines()[:2]
    assert "WRONG by verify" in lucky and "Its times mean nothing" in lucky
    assert "before its copy is complete" not in one and "WRONG" not in one
    assert set(result.doubts) == {"lucky"} and "WRONG by verify" in result._repr_html_()
    assert result.to_frame().doubt["one"] == "" and result.to_frame().doubt["lucky"]
    drawn = [text.get_text() for text in result.plot().axes[0].texts]
    assert ["wrong" in text for text in drawn] == [False, True]


@pytest.mark.parametrize("parsed", [True, False])
def test_a_kernel_that_the_virtual_gpu_cannot_run_is_not_doubted(monkeypatch, parsed):
    from course_lib import verification
    from course_lib.ptx.parse import PtxSyntaxError
    from course_lib.virtual_gpu.flow import Unsupported

    def refuse(*args):
        raise Unsupported("no wgmma here") if parsed else PtxSyntaxError("what is this", 1)

    monkeypatch.setattr(verification, "_run_virtual", refuse)
    monkeypatch.setattr(verification, "_DOUBTS", {})
    assert verification.doubt(ring(2, "NO_WAIT"), problem()) == ""


def test_what_is_known_of_a_kernel_is_not_found_out_twice(monkeypatch):
    from course_lib import verification

    words = verification.doubt(ring(2, "NO_WAIT"), problem(12))
    monkeypatch.setattr(verification, "_doubt", lambda *args: pytest.fail("looked again"))
    assert verification.doubt(ring(2, "NO_WAIT"), problem(12)) == words != ""


def test_kernels_may_come_in_a_list_or_alone():
    several = compare([ring(1), ring(2), ring(3)], problem(), device="virtual")
    assert several.labels == ["ring", "ring (2)", "ring (3)"]
    assert compare(ring(2), problem(), device="virtual").labels == ["ring"]
    with pytest.raises(TypeError, match="list of kernels; TileReduction is no kernel"):
        compare([ring(2), problem()], problem(), device="virtual")
    with pytest.raises(TypeError, match="by label"):
        compare({"ring": "ring"}, problem(), device="virtual")


def test_the_reason_stands_in_place_of_a_traceback():
    failure = DoesNotRun("ring cannot be measured: it reads past the end")
    assert failure._render_traceback_() == ["ring cannot be measured: it reads past the end"]
