"""The lessons' form, and of 00 to 03 that their kernels do what the text says of them.

The kernels are read out of the notebooks; those of 04 and later are in `test_ring_lessons.py`.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

from course_lib import Gemm, PipelineModel, TileReduction, trace, verify
from course_lib.cuda_magic import kernel_from_text

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
LESSONS = tuple(sorted(path.stem for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")))
ORDERS = ("round_robin", "one_last", "one_first", "random")
LANDINGS = ("early", "late", "random")
LITTLE_WORK = {"WORK": 1}  # the amount of arithmetic per word decides time, not results


def cells(lesson: str) -> list[dict]:
    return json.loads((NOTEBOOKS / f"{lesson}.ipynb").read_text())["cells"]


def source_of(cell: dict) -> str:
    return "".join(cell["source"])


@functools.cache
def cell_of(lesson: str, name: str) -> str:
    """The %%cuda cell of that name."""
    for cell in cells(lesson):
        if re.match(rf"%%cuda {name}\b", source_of(cell)):
            return source_of(cell)
    raise LookupError(f"{lesson} has no kernel {name}")


@functools.cache
def kernel(lesson: str, name: str, **defines: int):
    """The kernel of that name, with the options of its %%cuda line and then `defines`."""
    text = cell_of(lesson, name)
    little = LITTLE_WORK if "-DWORK=" in text.partition("\n")[0] else {}
    return kernel_from_text(text).variant(**(little | defines))


def outcomes(of, problem, orders=ORDERS, landings=LANDINGS) -> set[tuple[str, bool]]:
    """(landing, whether the result was right) of every warp order and landing policy."""
    return {
        (landing, verify(of, problem, device="virtual", order=order, landing=landing).ok)
        for order in orders
        for landing in landings
    }


RIGHT_REDUCTIONS = [
    ("00_the_machine", "sum_tiles", {}),
    ("01_one_buffer", "one_buffer", {}),
    ("02_asynchronous_copies", "one_buffer_async", {}),
    ("02_asynchronous_copies", "one_buffer", {}),
    ("02_asynchronous_copies", "two_groups", {}),
    ("02_asynchronous_copies", "two_groups", {"FIRST": 0}),
    ("03_two_buffers", "one_buffer_async", {}),
    ("03_two_buffers", "two_buffers", {}),
    ("03_two_buffers", "two_buffers", {"PENDING": 0}),
    ("03_two_buffers", "two_arrays", {}),
    ("03_two_buffers", "two_arrays", {"STORE_EARLY": 0}),
    ("03_two_buffers", "fill_both", {}),
]


@pytest.mark.parametrize(
    ("lesson", "name", "defines"), RIGHT_REDUCTIONS, ids=lambda value: str(value)
)
def test_right_kernels_are_right_under_every_order_and_landing(lesson, name, defines):
    of = kernel(lesson, name, **defines)
    for tiles in (1, 2, 5):  # fewer tiles than buffers, as many, and an odd number
        results = outcomes(of, TileReduction.of_tiles(tiles, blocks=2))
        assert results == {(landing, True) for landing in LANDINGS}, f"{tiles} tiles"


@pytest.mark.parametrize(
    ("lesson", "name", "defines"),
    [
        ("01_one_buffer", "gemm_one_buffer", {}),
        ("03_two_buffers", "gemm_two_buffers", {}),
        ("03_two_buffers", "gemm_two_buffers", {"PENDING": 0}),
    ],
    ids=lambda value: str(value),
)
def test_right_products_are_right_from_one_panel_up(lesson, name, defines):
    of = kernel(lesson, name, **defines)
    for k in (32, 64, 160):
        results = outcomes(of, Gemm(64, 128, k), orders=("one_last", "random"))
        assert results == {(landing, True) for landing in LANDINGS}, f"k = {k}"


WRONG_WHEN_LATE = [
    ("02_asynchronous_copies", "forgets_to_wait", {}),
    ("02_asynchronous_copies", "two_groups", {"SECOND": 1}),
    ("02_asynchronous_copies", "two_groups", {"FIRST": 2}),
]


@pytest.mark.parametrize(
    ("lesson", "name", "defines"), WRONG_WHEN_LATE, ids=lambda value: str(value)
)
def test_a_missing_wait_is_wrong_under_late_landing_and_lucky_under_early(lesson, name, defines):
    results = outcomes(
        kernel(lesson, name, **defines),
        TileReduction.of_tiles(5, blocks=2),
        landings=("early", "late"),
    )
    assert results == {("early", True), ("late", False)}


def test_forgetting_to_wait_is_the_only_edit_of_that_kernel():
    right = cell_of("02_asynchronous_copies", "one_buffer_async")
    right = right.replace("one_buffer_async", "forgets_to_wait").splitlines()
    wrong = cell_of("02_asynchronous_copies", "forgets_to_wait").splitlines()
    missing = [line for line in right if line not in wrong]
    assert len(right) == len(wrong) + 1
    assert [line.split(";")[0].strip() for line in missing] == ["__pipeline_wait_prior(0)"]


@pytest.mark.parametrize("name", ["one_buffer", "one_buffer_async"])
def test_a_kernel_that_is_shown_again_is_the_same(name):
    shown = {
        source_of(cell)
        for lesson in LESSONS
        for cell in cells(lesson)
        if source_of(cell).startswith(f"%%cuda {name} ")
    }
    assert len(shown) == 1


def test_an_unguarded_prologue_reads_past_the_end_with_one_tile_only():
    careless = kernel("03_two_buffers", "fill_both", GUARD=0)
    for tiles in (2, 3):
        few = TileReduction.of_tiles(tiles, blocks=1)
        assert outcomes(careless, few) == {(landing, True) for landing in LANDINGS}
    verdict = verify(careless, TileReduction.of_tiles(1, blocks=1), device="virtual")
    assert not verdict.ok
    line = next(
        number
        for number, text in enumerate(cell_of("03_two_buffers", "fill_both").splitlines(), 1)
        if "__pipeline_memcpy_async" in text
    )
    assert "past the end of x" in str(verdict)
    assert f"Line {line}:" in str(verdict)


def test_register_prefetch_costs_registers_where_the_compiler_is_sparing():
    early, late = (
        kernel("03_two_buffers", "two_arrays", WORK=24, STORE_EARLY=early, BLOCKS=8).resources
        for early in (1, 0)
    )
    assert (late.registers, late.spill_bytes) > (early.registers, early.spill_bytes)


def test_two_buffers_take_twice_the_shared_memory_and_no_more():
    one = kernel("03_two_buffers", "one_buffer_async").resources
    two = kernel("03_two_buffers", "two_buffers").resources
    assert (one.shared_bytes, two.shared_bytes) == (16384, 32768)


@pytest.mark.parametrize(("load", "compute"), [(900, 300), (500, 220)])
def test_the_numbers_in_the_questions_are_the_models(load, compute):
    one, two = (PipelineModel(load, compute, stages=stages, tiles=64) for stages in (1, 2))
    assert one.iteration_cycles() == pytest.approx(load + compute)
    assert two.iteration_cycles() == pytest.approx(max(load, compute))
    assert two.uncovered_latency() == pytest.approx(max(0, load - compute))


@functools.cache
def timeline(name: str, **defines: int):
    of = kernel("03_two_buffers", name, WORK=24, **defines)
    return trace(of, TileReduction.of_tiles(20), device="virtual")


def test_one_buffer_takes_about_the_sum_and_two_buffers_the_longer():
    one, two = timeline("one_buffer_async"), timeline("two_buffers")
    load, compute = one.load_cycles(), one.compute_cycles()
    assert one.mean_iteration() == pytest.approx(load + compute, rel=0.15)
    assert two.mean_iteration() == pytest.approx(max(load, compute), rel=0.15)
    assert (one.depth(), two.depth()) == (0, 1)


def test_two_buffers_that_wait_for_everything_gain_nothing():
    one, two = timeline("one_buffer_async"), timeline("two_buffers", PENDING=0)
    assert two.mean_iteration() == pytest.approx(one.mean_iteration(), rel=0.05)


def test_plain_loads_overlap_only_if_their_words_are_used_late():
    one = timeline("one_buffer_async").mean_iteration()
    early = timeline("two_arrays").mean_iteration()
    late = timeline("two_arrays", STORE_EARLY=0).mean_iteration()
    # Plain loads arrive 75 cycles earlier than asynchronous copies, measured on the H200.
    assert early > 0.75 * one
    assert late == pytest.approx(timeline("two_buffers").mean_iteration(), rel=0.15)


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_lesson_has_its_parts(lesson):
    text = {"markdown": "", "code": ""}
    for cell in cells(lesson):
        text[cell["cell_type"]] += source_of(cell) + "\n"
    assert "**Question:" in text["markdown"]
    assert "what changed" in text["markdown"]
    assert "<details>" in text["markdown"] and "</details>" in text["markdown"]
    assert "**Predict" in text["markdown"]
    assert re.search(r"^(predicted_\w+) = None", text["code"], re.MULTILINE)
    assert "check_prediction(" in text["code"]
    assert "%%cuda " in text["code"]
    assert "verify(" in text["code"]
    assert "trace(" in text["code"] and "model=" in text["code"]


def test_a_prediction_is_compared_only_after_it_was_asked_for():
    for lesson in LESSONS:
        asked: set[str] = set()
        for cell in cells(lesson):
            if cell["cell_type"] != "code":
                continue
            source = source_of(cell)
            for name in re.findall(r"check_prediction\((\w+)", source):
                assert name in asked, f"{lesson}: {name} is compared before it is asked for"
            asked |= set(re.findall(r"^(predict\w+) = None", source, re.MULTILINE))
