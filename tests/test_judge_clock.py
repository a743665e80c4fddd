"""What docs/virtual_clock.md claims about the virtual clock, recomputed without a GPU."""

from __future__ import annotations

import json

import numpy as np
import pytest

from course_lib.virtual_gpu.machine import H200, load_figures
from tools import judge_clock

CP_ASYNC = [*(f"copy and reduce, work {work}" for work in (1, 4, 12)), "float GEMM"]


@pytest.fixture(scope="module")
def judged() -> dict[str, list[judge_clock.Judgement]]:
    """A fresh run of every row that the H200 has timed."""
    return judge_clock.judge()


def test_the_document_says_what_the_clock_does_now(
    judged: dict[str, list[judge_clock.Judgement]],
) -> None:
    text = judge_clock.table(judged)
    assert judge_clock.DOCUMENT.read_text() == judge_clock.document_with(text)


def test_the_clock_is_no_worse_than_it_was(
    judged: dict[str, list[judge_clock.Judgement]],
) -> None:
    rows = judge_clock.compared({name: judged[name] for name in CP_ASYNC})
    assert len(rows) == 14
    assert all(abs(row.error) <= judge_clock.TOLERANCE for row in rows)
    assert sum(row.sign_matches for row in rows) >= 10
    assert np.mean([abs(row.error) for row in rows]) < 0.09
    # Stages pay where there are tiles to copy.
    for name in CP_ASYNC[:3]:
        ratios = [row.virtual_ratio for row in judged[name]]
        assert min(ratios) < 0.75 and ratios[0] == max(ratios)


def test_the_clock_beats_a_predictor_that_says_no_change(
    judged: dict[str, list[judge_clock.Judgement]],
) -> None:
    rows = judge_clock.compared(judged)
    error = sum(abs(row.error) for row in rows)
    lazy = sum(abs(row.no_change_error) for row in rows)
    assert error < 0.5 * lazy


def test_every_figure_says_how_it_was_measured() -> None:
    found = load_figures()
    assert {"device", "driver", "date"} <= set(found["provenance"])
    for name, figure in found["figures"].items():
        assert set(figure) == {"value", "unit", "kernel", "how", "spread"}, name
        assert figure["value"] > 0 and figure["unit"] and figure["how"], name
    assert "H200" in json.dumps(found["provenance"])


def test_figures_are_in_the_order_that_hardware_has() -> None:
    assert H200.shared_latency < H200.l1_latency < H200.l2_latency < H200.global_latency
    assert H200.global_latency < H200.copy_latency
    assert H200.bytes_per_cycle < H200.burst_bytes_per_cycle
    assert H200.barrier_cycles(8) > H200.barrier_cycles(1)


@pytest.mark.parametrize(("step", "sign"), [(1.0, 0), (1.02, 0), (0.98, 0), (1.05, 1), (0.8, -1)])
def test_small_changes_have_no_sign(step: float, sign: int) -> None:
    assert judge_clock.direction(step) == sign
