"""Sweeps: what is measured is what the single calls measure, and nothing wrong is ranked."""

from __future__ import annotations

import pytest
from ring_kernel import problem, ring

from course_lib import CompileError, profile, sweep, sweeping
from course_lib.devices import gpu
from course_lib.kernel import compile_kernel
from course_lib.problem_runs import launch_timed

LONG, SHORT = problem(12), problem(3)


@pytest.fixture(scope="module")
def swept():
    return sweep(ring(2), [SHORT, LONG], device="virtual", STAGES=[1, 2, 3, 13])


def test_every_figure_is_that_of_the_variant_measured_alone(swept):
    for label, case in zip(swept.problems, (SHORT, LONG), strict=True):
        for row in swept.of(label)[:3]:
            alone = ring(2).variant(STAGES=row.defines["STAGES"])
            assert row.time == launch_timed(alone, case).cycles
            assert row.wait_cycles == profile(alone, case, "virtual").wait_cycles
            assert row.registers == alone.resources.registers
            assert row.shared_bytes == row.defines["STAGES"] * 4096
            resident = alone.blocks_per_sm(128)
            assert (row.blocks_per_sm, row.limited_by) == (resident.blocks, resident.limited_by)


def test_what_cannot_be_compiled_keeps_its_row_and_costs_no_other(swept):
    assert swept.problems == ("3 tiles", "12 tiles")
    for label in swept.problems:
        *fits, too_much = swept.of(label)
        assert "52 KB" in too_much.error and too_much.time is None
        assert all(row.ranked for row in fits)


def test_best_is_the_least_time_of_each_problem(swept):
    frame = swept.to_frame()
    for label, best in swept.best.items():
        mine = frame[frame.problem == label]
        least = mine.loc[mine["time (virtual cycles)"].idxmin()]
        assert best.defines["STAGES"] == least["STAGES"] and least["best"]
        assert mine["best"].sum() == 1
    assert "virtual cycles" in str(swept) and "virtual cycles" in swept._repr_html_()
    assert "virtual wait cycles" in frame and "virtual" in swept.figure_label()


def test_a_wrong_variant_is_never_ranked_however_fast_it_is():
    source = ring(2).source.replace("#ifndef NO_REUSE", "#if !SKIP")
    kernel = compile_kernel(source, "ring", {"STAGES": 2, "SKIP": 0}, threads=128)
    found = sweep(kernel, LONG, device="virtual", SKIP=[1, 0])
    wrong, right = found.rows
    assert wrong.right is False and not wrong.ranked and wrong.time is None
    assert "reuse edge" in wrong.wrong and "WRONG" in str(found)
    assert not right._replace(right=False).ranked
    assert right.ranked and found.best[right.problem] is right
    assert not sweep(kernel, LONG, device="virtual", SKIP=1).best


def test_a_variant_that_ends_in_an_error_says_so_and_costs_no_other():
    source = ring(2).source.replace(
        "__syncthreads();", "if (STAGES == 3) __trap(); __syncthreads();", 1
    )
    kernel = compile_kernel(source, "ring", {"STAGES": 2}, threads=128)
    two, three = sweep(kernel, LONG, device="virtual", STAGES=[2, 3]).rows
    assert two.ranked and not three.ranked and "trap" in three.state


def test_too_many_registers_for_one_block_is_an_error_in_words():
    source = """
    extern "C" __global__ void k(const unsigned* x, unsigned* out, int n) {
        unsigned v[N];
        _Pragma("unroll") for (int i = 0; i < N; ++i) v[i] = x[i * 1024 + threadIdx.x];
        for (int t = 0; t < n; ++t)
            _Pragma("unroll") for (int i = 0; i < N; ++i) v[i] = v[i] * v[(i + 7) % N] + t;
        _Pragma("unroll") for (int i = 0; i < N; ++i) out[i * 1024 + threadIdx.x] = v[i];
    }"""
    kernel = compile_kernel(source, defines={"N": 100}, threads=1024)
    assert kernel.blocks_per_sm().blocks == 0
    (row,) = sweep(kernel, LONG, device="virtual", N=100).rows
    assert not row.ranked and "registers" in row.error


def test_an_interrupted_sweep_keeps_what_is_done(monkeypatch):
    judged = sweeping._judged
    seen = []

    def interrupt_at_the_second(*case):
        seen.append(case)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return judged(*case)

    monkeypatch.setattr(sweeping, "_judged", interrupt_at_the_second)
    found = sweep(ring(2), [SHORT, LONG], device="virtual", STAGES=[1, 2])
    assert found.interrupted and "INTERRUPTED" in str(found)
    done, open_ = found.of("3 tiles"), found.of("12 tiles")
    assert all(row.ranked for row in done)
    assert [row.state for row in open_] == ["not reached", "not reached"]
    assert list(found.best) == ["3 tiles"]


def test_all_combinations_are_run_and_misspelt_names_are_refused():
    found = sweep(ring(2), SHORT, device="virtual", STAGES=[2, 3], TILE=[1024])
    assert [row.defines["STAGES"] for row in found.rows] == [2, 3] and found.varied == ("STAGES",)
    with pytest.raises(CompileError, match="no variant"):
        sweep(ring(2), SHORT, device="virtual", STAGE=[2, 3])
    with pytest.raises(ValueError, match="no values"):
        sweep(ring(2), SHORT, device="virtual", STAGES=[])
    with pytest.raises(ValueError, match="at least one problem"):
        sweep(ring(2), [], device="virtual", STAGES=[2])


def test_the_picture_has_a_point_for_each_ranked_row_and_a_cross_for_the_rest(swept):
    figure = swept.plot()
    times, waits, blocks = figure.axes
    lines = [line for line in waits.lines if len(line.get_xdata())]
    for line, label in zip(lines, swept.problems, strict=True):
        shares = [100 * row.wait_share for row in swept.of(label) if row.ranked]
        assert list(line.get_ydata()) == shares
    heights = [bar.get_height() for bar in blocks.patches]
    assert heights == [row.blocks_per_sm for row in swept.of("3 tiles")[:3]]
    assert sum(text.get_text() == "does not run" for text in times.texts) == 2
    assert any(
        "virtual" in text.get_text() for text in figure.findobj() if hasattr(text, "get_text")
    )


@pytest.mark.skipif(gpu() is None, reason="needs an NVIDIA GPU")
def test_on_the_real_gpu_times_have_intervals():
    found = sweep(ring(2), [problem(64, 264)], device="gpu", STAGES=range(1, 5), rounds=10)
    assert found.unit == "us" and all(row.ranked for row in found.rows)
    assert all(row.low <= row.time <= row.high and len(row.times) == 10 for row in found.rows)
    best = next(iter(found.best.values()))
    assert best.time == min(row.time for row in found.rows)
