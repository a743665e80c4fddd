"""The bonus for speed: only on a real GPU, only where it is clear, and never a loss."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import CircularFilter, checks, devices, timing
from course_lib.checks import judging, two_buffers
from course_lib.cuda_magic import kernel_from_text
from course_lib.real_gpu.guard import GpuHung
from course_lib.timing import Comparison

PROBLEM = CircularFilter(tiles=4, blocks=2)


@pytest.fixture(scope="module")
def reference():
    return kernel_from_text(two_buffers.REFERENCE)


@pytest.fixture
def on_a_gpu(monkeypatch):
    """A machine with a GPU on which the reference takes 10 us, and one's own time is given."""
    asked: list[str] = []
    kinds = {"auto": "gpu", "virtual": "virtual"}

    def at(times) -> list[str]:
        def compare(kernels, problem, device):
            asked.append(device)
            if isinstance(times, Exception):
                raise times
            measured = {"reference": np.full(20, 10.0), "yours": np.asarray(times, float)}
            assert list(kernels) == list(measured)
            return Comparison(measured, "us", "gpu", "a GPU")

        monkeypatch.setattr(devices, "resolve", lambda asked, _: (kinds[asked], ""))
        monkeypatch.setattr(timing, "compare", compare)
        return asked

    return at


def test_without_a_gpu_there_is_none_and_nothing_is_lost(reference, monkeypatch):
    monkeypatch.setattr(devices, "gpu", lambda: None)
    monkeypatch.setenv("COURSE_DEVICE", "auto")
    share, (words,) = judging.faster(reference, reference, PROBLEM)
    assert share == 0 and "nothing lost" in words and "no GPU" in words


NOISY = np.tile([6.0, 14.0], 10)


@pytest.mark.parametrize(
    ("times", "share", "words"),
    [
        (np.linspace(6.9, 7.1, 20), 1, "0.70 ["),
        (np.linspace(12.9, 13.1, 20), 0, "The reference is faster"),
        (NOISY, 0, "nothing lost"),
        (np.linspace(9.9, 10.1, 20), 0, "nothing lost"),
        (GpuHung("it did not finish"), 0, "nothing lost"),
    ],
)
def test_only_what_is_clearly_faster_earns_it(reference, on_a_gpu, times, share, words):
    asked = on_a_gpu(times)
    found, messages = judging.faster(reference, reference, PROBLEM)
    assert found == share and words in messages[0]
    assert asked == ["gpu"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("5 * s[i]", "4 * s[i]"),
        ("__pipeline_wait_prior(0);", ""),
        ("        __syncthreads();\n    }", "    }"),
    ],
)
def test_a_wrong_kernel_is_not_even_timed(reference, on_a_gpu, old, new):
    text = two_buffers.REFERENCE
    assert text.count(old) == 1
    asked = on_a_gpu(np.full(20, 1.0))
    share, (words,) = judging.faster(kernel_from_text(text.replace(old, new)), reference, PROBLEM)
    assert share == 0 and "no ordering edge" in words and not asked


def test_the_bonus_is_no_part_of_the_points():
    exercise = checks.exercise("two_buffers")
    assert exercise.bonus.name not in {part.name for part in exercise.parts}
    assert exercise.points == 20
    assert exercise.try_bonus({}) == 0
    with pytest.raises(ValueError, match="one_buffer has no bonus"):
        checks.exercise("one_buffer").try_bonus({})
