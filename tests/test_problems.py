"""Problems: inputs by seed, references against slow independent ones, comparison, shapes."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from course_lib.problems import (
    CircularFilter,
    ColumnMoments,
    Gemm,
    RowChecksums,
    TileReduction,
    from_spec,
)


def slow_sums(x: np.ndarray, tile: int) -> list[int]:
    return [sum(int(v) for v in x[i : i + tile]) % 2**32 for i in range(0, x.size, tile)]


def test_reduction_reference_is_the_sum_modulo_two_to_the_32():
    problem = TileReduction.of_tiles(3, blocks=2, tile_elements=128)
    inputs = problem.inputs()
    assert problem.reference(inputs)["out"].tolist() == slow_sums(inputs["x"], 128)


def test_default_reduction_is_the_4096_square_of_the_course():
    problem = TileReduction()
    assert problem.tiles == 16 and problem.grid() == (256,) and problem.threads(None) == 256
    x, out, tiles = problem.arguments(None, problem.inputs(), problem.outputs())
    assert x.size == 4096 * 4096 and out.size == 4096 and tiles.dtype == np.int32
    assert not out.any()


def test_default_reduction_inputs_and_reference_are_fast():
    problem = TileReduction()
    start = time.perf_counter()
    problem.reference(problem.inputs())
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize("problem", [TileReduction.of_tiles(5), Gemm(64, 64, 64)])
def test_inputs_depend_on_seed_and_iteration_only(problem):
    again = from_spec(problem.to_spec())
    other = from_spec({**problem.to_spec(), "parameters": {**problem.parameters(), "seed": 1}})
    assert again == problem and other != problem
    for name, array in problem.inputs(iteration=7).items():
        assert np.array_equal(array, again.inputs(iteration=7)[name])
        assert not np.array_equal(array, again.inputs(iteration=8)[name])
        assert not np.array_equal(array, other.inputs(iteration=7)[name])


def test_the_input_bits_are_pinned():
    x = TileReduction.of_tiles(1).inputs()["x"]
    a = Gemm(2, 2, 2).inputs()["A"]
    assert (int(x[0]), int(x[-1])) == (X_FIRST, X_LAST)
    assert a.ravel()[0] == np.float32(A_FIRST)


X_FIRST, X_LAST, A_FIRST = 3110757170, 1820212398, 0.44855917


def test_another_array_module_gets_the_same_bits():
    class Copying:
        """Stands for CuPy: arrays of its own, made by asarray."""

        @staticmethod
        def asarray(array):
            return ("device", array.copy())

    problem = TileReduction.of_tiles(2)
    kind, x = problem.inputs(Copying)["x"]
    assert kind == "device" and np.array_equal(x, problem.inputs()["x"])


def test_reduction_compare_names_the_first_wrong_tile():
    problem = TileReduction.of_tiles(4, blocks=2, tile_elements=64)
    right = problem.reference(problem.inputs())
    assert problem.compare(right, right) == (True, 0.0, "")
    out = right["out"].copy()
    out[6] = out[4]
    ok, error, words = problem.compare({"out": out}, right)
    assert not ok and error > 0
    assert "tile 2 of block 1" in words and "the sum of tile 0" in words and "1 of 8" in words
    words = problem.compare(problem.outputs(), right)[2]
    assert "zero from before the launch" in words


def test_reduction_that_does_not_divide_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="of_tiles"):
        TileReduction(rows=100, columns=100)
    with pytest.raises(ValueError, match="tiles"):
        TileReduction.of_tiles(0)


def test_reduction_tile_of_counts_within_the_block():
    problem = TileReduction.of_tiles(5, blocks=3)
    offset = (2 * 5 + 4) * problem.tile_bytes() + 64
    assert problem.tile_of("x", offset, 2) == 4
    assert problem.tile_of("out", 0, 2) is None


def test_small_reduction_keeps_tile_and_parity():
    small = TileReduction.of_tiles(33, blocks=100).small()
    assert small.tiles == 9 and small.block_count == 2
    already = TileReduction.of_tiles(3)
    assert already.small() is already


def test_row_checksums_against_one_row_at_a_time():
    problem = RowChecksums.of_tiles(2, blocks=2, seed=5)
    inputs = problem.inputs()
    rows = inputs["x"].reshape(4, 4096).tolist()
    slow = [sum((2 * c + 1) * word for c, word in enumerate(row)) % 2**32 for row in rows]
    right = problem.reference(inputs)
    assert right["checksums"].tolist() == slow and right["checksums"].dtype == np.uint32
    assert from_spec(problem.to_spec()) == problem


def test_row_checksums_change_with_any_single_word():
    problem = RowChecksums.of_tiles(1)
    x = problem.inputs()["x"]
    before = problem.reference({"x": x})
    for column in (0, 2047, 4095):
        other = x.copy()
        other[column] ^= np.uint32(1 << 31)
        after = problem.reference({"x": other})
        ok, _, words = problem.compare(after, before)
        assert not ok and "tile 0 of block 0, which is row 0" in words


def test_gemm_reference_against_einsum():
    problem = Gemm(3, 5, 7)
    inputs = problem.inputs()
    a, b = inputs["A"].astype(float), inputs["B"].astype(float)
    right = problem.reference(inputs)["C"]
    assert right.dtype == np.float64
    assert np.allclose(right, np.einsum("ik,jk->ij", a, b), rtol=0, atol=1e-14)


@pytest.mark.parametrize("k", [1, 96, 1024])
def test_gemm_tolerance_admits_any_order_and_refuses_coarser_arithmetic(k):
    problem = Gemm(48, 40, k)
    inputs = problem.inputs()
    a, b, right = inputs["A"], inputs["B"], problem.reference(inputs)
    forward = np.zeros((48, 40), np.float32)
    for i in range(k):
        forward += a[:, i : i + 1] * b[:, i]
    assert problem.compare({"C": forward}, right)[0]
    assert problem.compare({"C": a @ b.T}, right)[0]
    ok, error, _ = problem.compare({"C": forward}, right)
    assert ok and error < problem.tolerance / 4
    half = a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32).T
    assert not problem.compare({"C": half}, right)[0]
    missing = forward - a[:, -1:] * b[:, -1]
    assert not problem.compare({"C": missing}, right)[0]


def test_gemm_compare_reports_elements_never_written():
    problem = Gemm(4, 4, 4)
    right = problem.reference(problem.inputs())
    c = right["C"].astype(np.float32)
    c[1, 2] = np.nan
    ok, error, words = problem.compare({"C": c}, right)
    assert not ok and error == float("inf") and "C[1, 2]" in words and "never written" in words
    assert not problem.compare(problem.outputs(), right)[0]


def test_gemm_grid_takes_the_kernels_tile_and_rounds_up():
    kernel = SimpleNamespace(tile=(128, 256), threads=384, defines={})
    problem = Gemm(130, 512, 64)
    assert problem.grid(kernel) == (2, 2) and problem.threads(kernel) == 384
    assert problem.grid() == (8, 3) and problem.blocks() == 24


def test_gemm_small_keeps_divisibility():
    small = Gemm(4096, 4096, 4096 + 32).small()
    assert (small.m, small.n, small.k) == (256, 256, 288)


def test_gemm_refuses_what_is_not_there():
    with pytest.raises(ValueError, match="float32"):
        Gemm(1, 1, 1, dtype="float64")
    with pytest.raises(ValueError, match="k must be"):
        Gemm(1, 1, 0)


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="no problem"):
        from_spec({"kind": "Sorting", "parameters": {}})


@pytest.mark.parametrize("problem", [TileReduction(), Gemm(1024, 1024, 1024)])
def test_awkward_cases_are_solvable_and_small(problem):
    for case in problem.awkward():
        inputs = case.inputs()
        reference = case.reference(inputs)
        given = {n: a.astype(case.outputs()[n].dtype) for n, a in reference.items()}
        assert case.compare(given, reference)[0]
        assert case.bytes_moved() < 2**21


# --- the problems of the exercises ----------------------------------------------------------------


def test_column_moments_against_exact_integers():
    problem = ColumnMoments.of_tiles(2, blocks=2, seed=3)
    inputs = problem.inputs()
    x = inputs["x"].reshape(64, 256)
    expected = [
        sum(int(value) * row**order for row, value in enumerate(x[:, column])) % 2**32
        for order in range(4)
        for column in range(256)
    ]
    assert problem.reference(inputs)["moments"].tolist() == expected


def test_circular_filter_against_exact_integers():
    problem = CircularFilter.of_tiles(2, blocks=2, seed=3)
    inputs = problem.inputs()
    y = problem.reference(inputs)["y"].reshape(4, 4096)
    for signal, got in zip(inputs["x"].reshape(4, 4096).tolist(), y.tolist(), strict=True):
        after, next_but_one = signal[1:] + signal[:1], signal[2:] + signal[:2]
        triples = zip(signal, after, next_but_one, strict=True)
        assert got == [(5 * a + 11 * b + 3 * c) % 2**32 for a, b, c in triples]


def test_the_tile_of_a_word_is_the_one_that_the_docstrings_define():
    moments = ColumnMoments.of_tiles(3, blocks=2)
    row, column = 70, 130  # tile 2 of block 1
    assert moments.tile_of("x", 4 * (row * 256 + column), block=1) == 2
    signals = CircularFilter.of_tiles(3, blocks=2)
    assert signals.tile_of("x", 4 * ((1 * 3 + 2) * 4096 + 17), block=1) == 2
    assert moments.tile_of("moments", 0, 0) is None and signals.tile_of("y", 0, 0) is None


@pytest.mark.parametrize("kind", [ColumnMoments, CircularFilter])
def test_a_wrong_word_of_an_exercise_is_named(kind):
    problem = kind.of_tiles(2, blocks=2)
    right = problem.reference(problem.inputs())
    (name,) = right
    wrong = {name: right[name].copy()}
    wrong[name][300] ^= 1
    ok, _, words = problem.compare(wrong, right)
    assert not ok and f"{name}[300]" in words and f"1 of {right[name].size}" in words
    assert problem.compare(right, right) == (True, 0.0, "")
    assert from_spec(problem.to_spec()) == problem
