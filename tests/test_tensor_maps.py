"""Tensor maps and tensor copies against an independent model of boxes, bounds and swizzles."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from course_lib.real_gpu.guard import GpuFault
from course_lib.tensor_maps import TensorMapError, tensor_map
from course_lib.virtual_gpu.memory import ArgumentError
from tests.async_device import POLICIES, kernel_of, run
from tests.gpu_apart import launch_apart, needs_hopper

LOAD = r"""
    __shared__ alignas(1024) char tile[BYTES];
    __shared__ u64 full;
    if (threadIdx.x == 0) { init(&full, 1); init_fence(); }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&full, BYTES);
        asm volatile("cp.async.bulk.tensor.RANKd.shared::cluster.global"
                     ".mbarrier::complete_tx::bytes"
                     " [%0], [%1, COORDS], [%2];"
                     ::"r"(at(tile)), "l"(&map), "r"(at(&full)), "r"(x), "r"(y), "r"(z) : "memory");
    }
    wait(&full, 0);
    for (int i = threadIdx.x; i < BYTES; i += 64) out[i] = tile[i];
"""
STORE = r"""
    __shared__ alignas(1024) char tile[BYTES];
    for (int i = threadIdx.x; i < BYTES; i += 64) tile[i] = out[i];
    proxy_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.RANKd.global.shared::cta.bulk_group [%1, COORDS], [%0];"
                     ::"r"(at(tile)), "l"(&map), "r"(0), "r"(x), "r"(y), "r"(z) : "memory");
        bulk_commit();
        bulk_wait<0>();
    }
"""
PARAMETERS = "const __grid_constant__ TensorMap map, char* out, int x, int y, int z"
COORDS = {1: "{%3}", 2: "{%3, %4}", 3: "{%3, %4, %5}"}


def body_of(text, rank, size):
    text = text.replace("RANK", str(rank)).replace("COORDS", COORDS[rank])
    return text.replace("BYTES", str(size))


SWIZZLED = {
    0: [(0, 1, 2, 3, 4, 5, 6, 7)],
    32: [(0, 1, 2, 3, 4, 5, 6, 7), (1, 0, 3, 2, 5, 4, 7, 6)],
    64: [(0, 1, 2, 3, 4, 5, 6, 7), (1, 0, 3, 2, 5, 4, 7, 6), (2, 3, 0, 1, 6, 7, 4, 5),
         (3, 2, 1, 0, 7, 6, 5, 4)],
    128: [(0, 1, 2, 3, 4, 5, 6, 7), (1, 0, 3, 2, 5, 4, 7, 6), (2, 3, 0, 1, 6, 7, 4, 5),
          (3, 2, 1, 0, 7, 6, 5, 4), (4, 5, 6, 7, 0, 1, 2, 3), (5, 4, 7, 6, 1, 0, 3, 2),
          (6, 7, 4, 5, 2, 3, 0, 1), (7, 6, 5, 4, 3, 2, 1, 0)],
}  # fmt: skip


def model(array, box, corner, swizzle):
    """What lies in shared memory, element by element: the slow and obvious way.

    Memory is seen as lines of 8 chunks of 16 bytes. SWIZZLED says which chunk of its own line each
    chunk goes to, as PTX's pictures of the swizzling modes have it.
    """
    itemsize = array.dtype.itemsize
    flat = b""
    for index in np.ndindex(*box):
        place = tuple(c + i for c, i in zip(corner, index, strict=True))
        inside = all(0 <= p < n for p, n in zip(place, array.shape, strict=True))
        flat += array[place].tobytes() if inside else bytes(itemsize)
    shared = bytearray(len(flat))
    for at in range(0, len(flat), 16):
        line, chunk = divmod(at // 16, 8)
        patterns = SWIZZLED[swizzle]
        chunk = patterns[line % len(patterns)][chunk]
        shared[(line * 8 + chunk) * 16 : (line * 8 + chunk) * 16 + 16] = flat[at : at + 16]
    return np.frombuffer(bytes(shared), np.uint8)


CASES = [
    # (dtype, shape, box, corner, swizzle)
    (np.float32, (200,), (64,), (0,), 0),
    (np.float32, (200,), (64,), (-4,), 0),
    (np.float32, (200,), (64,), (168,), 0),
    (np.float16, (48, 72), (16, 64), (8, 0), 128),
    (np.float16, (48, 72), (16, 64), (-3, -8), 128),
    (np.float16, (48, 72), (16, 64), (40, 64), 128),
    (np.float16, (40, 40), (32, 32), (3, 8), 64),
    (np.uint8, (40, 48), (64, 32), (1, 16), 32),
    (np.int32, (20, 12), (8, 8), (30, 0), 0),
    (np.float64, (6, 10, 8), (2, 4, 8), (1, 2, 0), 64),
    (np.float16, (5, 9, 64), (3, 8, 64), (3, -2, 8), 128),
    (np.uint16, (5, 9, 64), (3, 8, 24), (-1, 4, -8), 0),
    (np.uint16, (5, 9, 64), (3, 8, 24), (3, 4, 48), 0),
]
STORES = [case for case in CASES if min(case[3]) >= 0]
FAULTS = [
    # (text, case, what is wrong with it)
    (LOAD, (np.float16, (48, 72), (16, 64), (0, 1), 128), "begins between two pieces of 16"),
    (LOAD, (np.uint8, (40, 48), (64, 32), (1, 20), 32), "begins between two pieces of 16"),
    (STORE, (np.float16, (48, 72), (16, 64), (0, 60), 0), "begins between two pieces of 16"),
    (STORE, (np.float32, (200,), (64,), (-4,), 0), "begins before the array"),
    (STORE, (np.float16, (48, 72), (16, 64), (-3, 0), 128), "begins before the array"),
    (STORE, (np.float16, (5, 9, 64), (3, 8, 64), (3, -2, 8), 128), "begins before the array"),
]


def on_gpu(text, case, array, out):
    """The array and `out` after one launch on a real GPU."""
    _, _, box, corner, swizzle = case
    kernel = kernel_of(body_of(text, len(box), len(out)), PARAMETERS)
    xyz = (*reversed(corner), 0, 0)[:3]
    return launch_apart(kernel, 1, [tensor_map(array, box, swizzle), out, *xyz])[:2]


def loaded(case):
    """An array, and the bytes of its box in shared memory."""
    dtype, shape, box, corner, swizzle = case
    array = np.random.default_rng(3).integers(1, 100, shape).astype(dtype)
    return array, model(array, box, corner, swizzle)


def stored(case):
    """The bytes of a box, an array, and what the array holds once the box has been stored."""
    dtype, shape, box, corner, swizzle = case
    rng = np.random.default_rng(4)
    values = rng.integers(1, 100, box).astype(dtype)
    # `model` of the values themselves says how they must lie in shared memory.
    shared = np.array(model(values, box, (0,) * len(box), swizzle))
    array = rng.integers(1, 100, shape).astype(dtype)
    expected = array.copy()
    for index in np.ndindex(*box):
        place = tuple(c + i for c, i in zip(corner, index, strict=True))
        if all(0 <= p < n for p, n in zip(place, shape, strict=True)):
            expected[place] = values[index]
    return shared, array, expected


def name_of(case):
    return f"{case[0].__name__}-{case[2]}-{case[3]}-{case[4]}"


each_case = pytest.mark.parametrize("case", CASES, ids=name_of)
each_store = pytest.mark.parametrize("case", STORES, ids=name_of)
each_fault = pytest.mark.parametrize(
    "text, case, words", FAULTS, ids=[f"{name_of(case)}: {words}" for _, case, words in FAULTS]
)


@each_case
def test_a_box_lands_as_the_model_says(case):
    _, _, box, corner, swizzle = case
    array, expected = loaded(case)
    x, y, z = (*reversed(corner), 0, 0)[:3]
    for policy in (POLICIES[0], POLICIES[1], POLICIES[3]):
        out = np.zeros(len(expected), np.uint8)
        arguments = [tensor_map(array, box, swizzle), out, x, y, z]
        result = run(body_of(LOAD, len(box), len(out)), PARAMETERS, arguments, **policy)
        assert result.ok, result
        np.testing.assert_array_equal(out, expected)


@each_store
def test_a_box_is_stored_where_the_array_is_and_nowhere_else(case):
    _, _, box, corner, swizzle = case
    shared, guarded, expected = stored(case)
    x, y, z = (*reversed(corner), 0, 0)[:3]
    for policy in (POLICIES[0], POLICIES[1]):
        array = guarded.copy()
        arguments = [tensor_map(array, box, swizzle), shared, x, y, z]
        result = run(body_of(STORE, len(box), len(shared)), PARAMETERS, arguments, **policy)
        assert result.ok, result
        np.testing.assert_array_equal(array, expected)


@needs_hopper
@each_case
def test_a_real_gpu_loads_what_the_model_says(case):
    array, expected = loaded(case)
    np.testing.assert_array_equal(on_gpu(LOAD, case, array, expected * 0)[1], expected)


@needs_hopper
@each_store
def test_a_real_gpu_stores_where_the_array_is_and_nowhere_else(case):
    shared, array, expected = stored(case)
    np.testing.assert_array_equal(on_gpu(STORE, case, array, shared)[0], expected)


@each_fault
def test_what_a_real_gpu_stops_at_is_stopped_at(text, case, words):
    array, expected = loaded(case)
    x, y, z = (*reversed(case[3]), 0, 0)[:3]
    arguments = [tensor_map(array, case[2], case[4]), expected * 0, x, y, z]
    result = run(body_of(text, len(case[2]), len(expected)), PARAMETERS, arguments)
    assert not result.ok and words in result.errors[0].message
    assert result.errors[0].line is not None


@needs_hopper
@each_fault
def test_a_real_gpu_stops_at(text, case, words):
    array, expected = loaded(case)
    with pytest.raises(GpuFault, match="IllegalInstruction"):
        on_gpu(text, case, array, expected * 0)


REFUSED = [
    (np.zeros((8, 8), np.complex64), (8, 8), 0, "elements of type complex64"),
    (np.zeros((2, 2, 2, 8), np.float32), (1, 1, 1, 8), 0, "4 dimensions"),
    (np.zeros((8, 6), np.float32), (8, 4), 0, "steps 24 bytes"),
    (np.zeros((8, 16), np.float32)[:, :8], (8, 8), 0, "not contiguous"),
    (np.zeros((8, 8), np.float32).reshape(-1)[1:57].reshape(7, 8), (7, 8), 0, "does not begin"),
    (np.zeros((8, 8), np.float32), (8,), 0, "has 1 dimensions"),
    (np.zeros((512, 8), np.float32), (512, 8), 0, "512 elements long along axis 0"),
    (np.zeros((8, 8), np.float32), (8, 3), 0, "12 bytes: it must be a multiple of 16"),
    (np.zeros((8, 8), np.float32), (8, 8), 16, "none of 0, 32, 64 and 128"),
    (np.zeros((8, 128), np.float16), (8, 128), 128, "at most 64 elements"),
    (np.zeros((0, 8), np.float32), (1, 8), 0, "cannot be mapped"),
]


@pytest.mark.parametrize("array, box, swizzle, words", REFUSED, ids=[r[3] for r in REFUSED])
def test_what_cuda_refuses_is_refused_in_words(array, box, swizzle, words):
    with pytest.raises(TensorMapError, match=words):
        tensor_map(array, box, swizzle)


def test_a_map_is_128_bytes_and_knows_how_many_its_box_has():
    made = tensor_map(np.zeros((40, 64), np.float16), (16, 32), 64)
    assert len(made.virtual_bytes(0)) == 128
    assert made.box_bytes == 16 * 32 * 2
    assert struct.unpack("<16Q", made.virtual_bytes(7 << 40))[1] == 7 << 40


def test_an_array_for_a_map_and_a_map_for_an_array_are_told_apart():
    array = np.zeros(64, np.uint8)
    with pytest.raises(ArgumentError, match=r"pass tensor_map\(array, box=...\)"):
        run("out[0] = x;", PARAMETERS, [array, array, 0, 0, 0])
    with pytest.raises(ArgumentError, match="has 8 bytes, and a tensor map of 128"):
        run("out[0] = 1;", "char* out", [tensor_map(array, (64,))])
