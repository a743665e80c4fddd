"""Bulk and tensor copies against NumPy: what they move, and what orders it, right and racing.

Boxes, bounds and swizzles have their own reference in test_tensor_maps.py; here the same copies run
checked, with and without what orders them.
"""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.tensor_maps import tensor_map
from course_lib.virtual_gpu import report
from tests import test_tensor_maps as boxes
from tests.async_device import POLICIES, run, word

OUT_IN = "unsigned* out, const unsigned* x"
X = np.random.default_rng(11).integers(0, 1 << 32, 4096, dtype=np.uint64).astype(np.uint32)


def check(body, parameters, arguments, policy, threads=64):
    """The result and what its races lack."""
    result = run(body, parameters, arguments, threads=threads, check=True, **policy)
    assert result.ok, result
    return {race.missing for race in result.races}


def edited(body, old, new=""):
    assert body.count(old) == 1, old
    return body.replace(old, new)


# --- bulk copies into shared memory -----------------------------------------------------------

LOADS = r"""
    __shared__ alignas(16) unsigned tile[2048];
    __shared__ u64 full;
    if (threadIdx.x == 0) { init(&full, 1); init_fence(); }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&full, 16 + 48 + 4096);  // announce
        bulk_load(tile, x + 4, 16, &full);
        bulk_load(tile + 4, x + 100, 48, &full);
        bulk_load(tile + 1024, x + 1000, 4096, &full);
    }
    wait(&full, 0);  // ready
    for (int i = threadIdx.x; i < 16; i += 64) out[i] = tile[i];
    for (int i = threadIdx.x; i < 1024; i += 64) out[16 + i] = tile[1024 + i];
"""
LOADED = np.concatenate([X[4:8], X[100:112], X[1000:2024]])


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_bytes_come_from_where_they_were_asked_for(policy):
    out = word(16 + 1024)
    assert not check(LOADS, OUT_IN, [out, X], policy)
    np.testing.assert_array_equal(out, LOADED)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_load_that_nobody_waits_for_races(policy):
    body = edited(LOADS, "wait(&full, 0);  // ready", "__syncthreads();")
    out = word(16 + 1024)
    assert check(body, OUT_IN, [out, X], policy) == {"phase"}
    if policy["landing"] == "late":  # and then its bytes are not there
        assert not np.array_equal(out, LOADED)


# Where copies land in another order the barrier may also wait for ever, which is no race.
IN_ORDER = [policy for policy in POLICIES if policy["landing"] != "random"]


@pytest.mark.parametrize("policy", IN_ORDER, ids=str)
@pytest.mark.parametrize("expected", [16, 16 + 48, 48])
def test_copies_on_their_way_when_a_phase_completes_are_not_ready(policy, expected):
    """Even where the bytes that were read happen to be those that were announced."""
    body = edited(LOADS, "expect(&full, 16 + 48 + 4096)", f"expect(&full, {expected})")
    if expected == 48:  # the second is issued first
        first = "bulk_load(tile, x + 4, 16, &full);\n        "
        body = edited(body, first).replace(
            "        bulk_load(tile + 1024", f"        {first}bulk_load(tile + 1024"
        )
    assert check(body, OUT_IN, [word(16 + 1024), X], policy) == {"phase"}


def test_a_later_phase_says_that_they_are():
    """Copies left over from one phase are there when the next one has all of its bytes."""
    body = edited(LOADS, "expect(&full, 16 + 48 + 4096);", "expect(&full, 16);")
    late = r"""
    if (threadIdx.x == 0) expect(&full, 48 + 4096);
    wait(&full, 1);
    """
    body = edited(body, "wait(&full, 0);  // ready", "wait(&full, 0);" + late)
    for policy in POLICIES:
        out = word(16 + 1024)
        assert not check(body, OUT_IN, [out, X], policy)
        np.testing.assert_array_equal(out, LOADED)


def test_a_stage_is_loaded_again_behind_a_barrier():
    """Without it a race, named after who came first; with it at most one of the lower kind."""
    again = r"""
    __syncthreads();  // released
    if (threadIdx.x == 0) { expect(&full, 64); bulk_load(tile, x, 64, &full); }
    wait(&full, 1);
    if (threadIdx.x < 16) out[threadIdx.x] = tile[threadIdx.x];
    """
    for policy in POLICIES:
        out = word(16 + 1024)
        assert check(LOADS + again, OUT_IN, [out, X], policy) <= {"proxy-read"}
        np.testing.assert_array_equal(out[:16], X[:16])
        racing = edited(again, "__syncthreads();  // released")
        found = check(LOADS + racing, OUT_IN, [word(16 + 1024), X], policy)
        assert found & {"order", "phase"}


# --- bulk copies out of shared memory, and their groups ----------------------------------------

STORES = r"""
    __shared__ alignas(16) unsigned tile[3][256];
    for (int i = threadIdx.x; i < 768; i += 64) tile[0][i] = x[i];
    proxy_fence();  // visible to the copies
    __syncthreads();  // written by all
    if (threadIdx.x == 0) {
        for (int s = 0; s < 3; ++s) {
            bulk_store(out + 512 * s, tile[s], 1024);
            bulk_commit();
        }
        WAIT
        for (int s = 0; s < AGAIN; ++s)
            for (int i = 0; i < 256; i += 51) tile[s][i] = 7;
    }
"""
ALL_WAITS = ["bulk_wait", "bulk_wait_read"]


def stored():
    """Three stages with gaps that must stay as they are."""
    out = np.full(1536, 5, np.uint32)
    for s in range(3):
        out[512 * s : 512 * s + 256] = X[256 * s : 256 * s + 256]
    return out


def stores(wait, again):
    return STORES.replace("WAIT", wait).replace("AGAIN", str(again))


@pytest.mark.parametrize("pending", [0, 1, 2, 3])
@pytest.mark.parametrize("wait", ALL_WAITS)
def test_a_wait_frees_the_stages_of_all_but_the_youngest_groups(wait, pending):
    for policy in POLICIES:
        out = np.full(1536, 5, np.uint32)
        body = stores(f"{wait}<{pending}>();", 3 - pending)
        assert not check(body, OUT_IN, [out, X], policy)
        np.testing.assert_array_equal(out, stored())


@pytest.mark.parametrize("pending", [1, 2, 3])
@pytest.mark.parametrize("wait", ALL_WAITS)
def test_one_stage_more_may_still_be_read(wait, pending):
    for policy in POLICIES:
        out = np.full(1536, 5, np.uint32)
        body = stores(f"{wait}<{pending}>();", 4 - pending)
        assert check(body, OUT_IN, [out, X], policy) == {"group"}
        late = 512 * (3 - pending)
        if policy["landing"] == "late":
            assert (out[late : late + 256 : 51] == 7).all()
        elif policy["landing"] == "early":
            np.testing.assert_array_equal(out, stored())


@pytest.mark.parametrize(
    "old, new, missing",
    [
        ("proxy_fence();  // visible to the copies", "", {"proxy"}),
        ("__syncthreads();  // written by all", "", {"order"}),
        ("proxy_fence();  // visible to the copies\n    __syncthreads();  // written by all",
         "__syncthreads();", {"proxy"}),
        ("proxy_fence();  // visible to the copies\n    __syncthreads();  // written by all",
         "__syncthreads(); if (threadIdx.x != 0) proxy_fence();", {"proxy"}),
        ("proxy_fence();  // visible to the copies\n    __syncthreads();  // written by all",
         "__syncthreads(); if (threadIdx.x == 0) proxy_fence();", set()),
        ("            bulk_commit();\n", "", {"group"}),
        ("if (threadIdx.x == 0) {\n        for", "if (threadIdx.x == 0) {\n        bulk_commit();"
         "\n        for", set()),
    ],
    ids=["no fence", "no barrier", "a barrier alone", "fences of others after the barrier",
         "its own fence after the barrier", "no commit", "an empty group"],
)  # fmt: skip
def test_what_a_store_needs(old, new, missing):
    """A fence on every way from the writes to the copy: before the barrier, or by the issuer."""
    body = edited(stores("bulk_wait_read<0>();", 3), old, new)
    for policy in POLICIES:
        found = check(body, OUT_IN, [np.full(1536, 5, np.uint32), X], policy)
        assert found == missing or (missing == {"order"} and "order" in found), policy


def test_only_the_thread_that_issued_a_store_can_wait_for_it():
    body = edited(stores("", 0), "if (threadIdx.x == 0) {", "if (threadIdx.x == 32) {")
    body += "\n    if (threadIdx.x == 0) { bulk_wait<0>(); tile[0][0] = 7; }"
    ordered = body.replace(
        "if (threadIdx.x == 0) { b", "__syncthreads(); if (threadIdx.x == 0) { b"
    )
    right = ordered.replace("__syncthreads(); if", "bulk_wait_read<0>(); __syncthreads(); if")
    for policy in POLICIES:
        for text, others in ((body, {"order"}), (ordered, set())):
            found = check(text, OUT_IN, [np.full(1536, 5, np.uint32), X], policy)
            assert found and found <= {"group", *others}, (found, policy)
        out = np.full(1536, 5, np.uint32)
        assert not check(right, OUT_IN, [out, X], policy)
        np.testing.assert_array_equal(out, stored())


def test_a_kernel_may_end_with_stores_in_flight():
    for policy in POLICIES:
        out = np.full(1536, 5, np.uint32)
        assert not check(stores("", 0), OUT_IN, [out, X], policy)
        np.testing.assert_array_equal(out, stored())


# --- tensor copies, checked -------------------------------------------------------------------

BOXES = boxes.CASES[::2]
assert {len(case[2]) for case in BOXES} | {case[4] for case in BOXES} >= {1, 2, 3, 0, 64, 128}
STORED = [case for case in BOXES if min(case[3]) >= 0]  # the hardware stores no box before it
FENCED = "proxy_fence();\n    __syncthreads();"


def boxed(text, case, seed=3):
    """(body, map's array, bytes as they lie in shared memory, coordinates) of a case."""
    dtype, shape, box, corner, swizzle = case
    array = np.random.default_rng(seed).integers(1, 100, shape).astype(dtype)
    shared = np.array(boxes.model(array, box, corner, swizzle))
    body = boxes.body_of(text, len(box), len(shared))
    return body, array, shared, (*reversed(corner), 0, 0)[:3]


@pytest.mark.parametrize("case", BOXES, ids=str)
def test_tensor_loads_are_ordered_by_their_phase_alone(case):
    body, array, expected, corner = boxed(boxes.LOAD, case)
    for policy in POLICIES[::2]:
        out = np.zeros(len(expected), np.uint8)
        arguments = [tensor_map(array, case[2], case[4]), out, *corner]
        assert not check(body, boxes.PARAMETERS, arguments, policy)
        np.testing.assert_array_equal(out, expected)
        racing = edited(body, "wait(&full, 0);", "__syncthreads();")
        assert check(racing, boxes.PARAMETERS, arguments, policy) == {"phase"}


@pytest.mark.parametrize("case", STORED, ids=str)
def test_tensor_stores_need_a_fence_and_a_wait(case):
    body, array, shared, corner = boxed(boxes.STORE, case)
    overwritten = body.rstrip() + "\n    if (threadIdx.x == 0) tile[0] = 1;\n"
    for policy in POLICIES[::2]:
        arguments = [tensor_map(array.copy(), case[2], case[4]), shared, *corner]
        assert not check(overwritten, boxes.PARAMETERS, arguments, policy)
        for old, new, missing in (
            (FENCED, "__syncthreads();", {"proxy"}), ("bulk_wait<0>();", "", {"group"}),
        ):  # fmt: skip
            racing = edited(overwritten, old, new)
            assert check(racing, boxes.PARAMETERS, arguments, policy) == missing


# --- copies of single threads that arrive on an mbarrier ---------------------------------------

ARRIVES = r"""
    __shared__ alignas(16) unsigned tile[2][256];
    __shared__ u64 full;
    const int t = threadIdx.x;
    if (t == 0) { init(&full, 64); init_fence(); }
    __syncthreads();
    for (int s = 0; s < 2; ++s)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     ::"r"(at(&tile[s][4 * t])), "l"(x + 256 * s + 4 * t) : "memory");
    ARRIVE
    wait(&full, 0);  // ready
    for (int i = t; i < 512; i += 64) out[511 - i] = tile[i / 256][i % 256];
"""
BEHIND = 'asm volatile("cp.async.mbarrier.arriveSUFFIX.shared::cta.b64 [%0];"::"r"(at(&full)));'
COUNTED = BEHIND.replace("SUFFIX", ".noinc")
ADDED = BEHIND.replace("SUFFIX", "") + " arrive(&full);"  # the phase counts one more for the first


@pytest.mark.parametrize("arrive", [COUNTED, ADDED], ids=["noinc", "inc"])
def test_an_arrival_behind_copies_completes_the_phase_when_they_have_landed(arrive):
    body = ARRIVES.replace("ARRIVE", arrive)
    for policy in POLICIES:
        out = word(512)
        assert not check(body, OUT_IN, [out, X], policy)
        np.testing.assert_array_equal(out, X[511::-1])
        racing = edited(body, "wait(&full, 0);  // ready", "__syncthreads();")
        assert check(racing, OUT_IN, [word(512), X], policy) == {"wait"}


def test_a_plain_arrival_says_nothing_of_copies():
    body = ARRIVES.replace("ARRIVE", "arrive(&full);")
    for policy in POLICIES:
        out = word(512)
        assert check(body, OUT_IN, [out, X], policy) == {"wait"}
        if policy["landing"] == "late":
            assert not np.array_equal(out, X[511::-1])


def test_copies_behind_the_arrival_are_not_its_own():
    first = (
        'for (int s = 0; s < 1; ++s) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"'
        '::"r"(at(&tile[s][4 * t])), "l"(x + 4 * t) : "memory");\n    '
    )
    later = edited(ARRIVES.replace("ARRIVE", ""), "for (int s", f"{first}{COUNTED}\n    for (int s")
    later = later.replace("for (int s = 0; s < 2", "for (int s = 1; s < 2")
    for policy in POLICIES:
        assert check(later, OUT_IN, [word(512), X], policy) == {"wait"}


# --- counts of bytes, and what may not be copied -----------------------------------------------


@pytest.mark.parametrize("bytes_", [4096, 4144, 4176, 8000])
def test_a_phase_that_expects_other_bytes_never_completes(bytes_):
    body = edited(LOADS, "16 + 48 + 4096", str(bytes_))
    for policy in POLICIES[:2]:
        out = word(16 + 1024)
        result = run(body, OUT_IN, [out, X], step_budget=2_000_000, check=True, **policy)
        (error,) = result.errors
        assert isinstance(error, report.MbarrierDeadlock), error
        words = "too many bytes expected" if bytes_ > 4160 else "too few bytes expected"
        assert error.details["reason"] == words
        assert f"{abs(bytes_ - 4160):,} bytes" in error.message


@pytest.mark.parametrize("bytes_", [0, 16, 64])
def test_a_phase_that_expects_the_first_copies_only_is_over_too_early(bytes_):
    """Copies that land late after all of them were issued show it by their missing bytes alone: the
    checker then takes the phase in which they were issued for theirs. Random landings may deadlock.
    """
    body = edited(LOADS, "16 + 48 + 4096", str(bytes_))
    for policy in POLICIES[:3]:
        out = word(16 + 1024)
        found = check(body, OUT_IN, [out, X], policy)
        assert found == {"phase"} or policy["landing"] != "early", policy
        assert found == {"phase"} or not np.array_equal(out, LOADED), policy


REFUSED = [
    ("bulk_load(tile + 4, x + 100, 48", "bulk_load(tile + 5, x + 100, 48", "no multiple of 16",
     "misaligned"),
    ("bulk_load(tile + 4, x + 100, 48", "bulk_load(tile + 4, x + 101, 48", "no multiple of 16",
     "misaligned"),
    ("bulk_load(tile + 4, x + 100, 48", "bulk_load(tile + 4, x + 100, 40", "no multiple of 16",
     "size"),
    ("bulk_load(tile + 1024, x", "bulk_load(tile + 1028, x", "of shared memory, past",
     "out of bounds"),
    ("x + 1000, 4096", "x + 3076, 4096", "4,096 bytes at", "out of bounds"),
]  # fmt: skip


@pytest.mark.parametrize("old, new, words, problem", REFUSED, ids=[r[1] for r in REFUSED])
def test_what_a_copy_may_not_do_has_its_words(old, new, words, problem):
    (error,) = run(edited(LOADS, old, new), OUT_IN, [word(1040), X]).errors
    assert words in error.message
    assert error.line is not None and "bulk" in error.message
    assert error.details["problem"] == problem
    kind = report.BulkCopyFault if problem == "size" else report.MemoryFault
    assert type(error) is kind
