"""mbarriers: phases, tokens, counts and bytes; every misuse and deadlock in its own words."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.virtual_gpu import report
from tests.async_device import POLICIES, line_of, run, word

BUDGET = 20_000_000
ONE = "unsigned* out, const unsigned* x"
START = r"""
    __shared__ alignas(128) unsigned tile[2][256];
    __shared__ u64 full[2], empty[2];
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; ++s) { init(&full[s], 1); init(&empty[s], 2); }  // init
        init_fence();
    }
    __syncthreads();
"""
RING = (
    START
    + r"""
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles = 6;
    if (warp == 2) {
        if (lane == 0)
            for (int t = 0; t < tiles; ++t) {
                const int s = t % 2;
                wait(&empty[s], (t / 2 % 2) ^ 1);  // producer waits
                expect(&full[s], 1024);  // announce
                bulk_load(tile[s], x + t * 256, 1024, &full[s]);
            }
    } else {
        for (int t = 0; t < tiles; ++t) {
            const int s = t % 2;
            wait(&full[s], t / 2 % 2);  // consumer waits
            unsigned sum = 0;
            for (int i = threadIdx.x; i < 256; i += 64) sum += tile[s][i];
            atomicAdd(&out[t], sum);
            __syncwarp();
            if (lane == 0) arrive(&empty[s]);  // release
        }
    }
"""
)
X = np.random.default_rng(0).integers(0, 1 << 20, 6 * 256).astype(np.uint32)


def go(body, **how):
    out = word(64)
    return run(body, ONE, [out, X], threads=96, step_budget=BUDGET, **how), out


def error_of(body, **how):
    result, _ = go(body, **how)
    assert len(result.errors) == 1, result
    return result.errors[0]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_ring_of_roles_sums_every_tile(policy):
    result, out = go(RING, **policy)
    assert result.ok, result
    np.testing.assert_array_equal(out[:6], X.reshape(6, 256).sum(1, dtype=np.uint32))


TOKENS = r"""
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 64);
    __syncthreads();
    u64 token, again;
    u32 left, first, done;
    asm volatile("mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %0, [%1], 1;"
                 : "=l"(token) : "r"(at(&bar)) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(left) : "l"(token));
    out[threadIdx.x] = left;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < 32; ++i) {
            asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];"
                         : "=l"(again) : "r"(at(&bar)) : "memory");
        }
    }
    asm volatile("{ .reg .pred p; LOOP: mbarrier.test_wait.shared::cta.b64 p, [%1], %2;"
                 " @!p bra LOOP; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(at(&bar)), "l"(token) : "memory");
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(at(&bar)) : "memory");
    out[32 + threadIdx.x] = done;
"""


def test_tokens_hold_the_arrivals_that_were_pending():
    out = word(64)
    result = run(TOKENS, "unsigned* out", [out], threads=32)
    assert result.ok, result
    assert sorted(out[:32]) == list(range(33, 65))
    assert set(out[32:]) == {1}


DROP = r"""
    __shared__ u64 bar;
    if (threadIdx.x == 0) init(&bar, 64);
    __syncthreads();
    if (threadIdx.x >= 32)
        asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" ::"r"(at(&bar)) : "memory");
    else {
        for (int phase = 0; phase < 5; ++phase) {
            arrive(&bar);
            wait(&bar, phase & 1);
        }
        out[threadIdx.x] = 1;
    }
"""


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_whoever_drops_out_is_not_waited_for(policy):
    out = word(64)
    assert run(DROP, "unsigned* out", [out], threads=64, **policy).ok
    assert out[:32].all() and not out[32:].any()


POLL = (
    START
    + r"""
    if (threadIdx.x < 32) {
        unsigned polls = 0;
        while (!test_wait(&full[0], 0)) { ++polls; __nanosleep(100); }
        out[threadIdx.x] = 1;
    } else if (threadIdx.x == 64) {
        for (int i = 0; i < 50; ++i) __nanosleep(1000);
        arrive(&full[0]);
    }
"""
)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_polls_that_back_off_end_when_the_phase_does(policy):
    result, out = go(POLL, **policy)
    assert result.ok, result
    assert out[:32].all()


def test_polls_that_nobody_answers_are_a_deadlock_and_no_endless_loop():
    for spin in (POLL, POLL.replace("__nanosleep(100);", "")):
        error = error_of(spin.replace("arrive(&full[0]);", "out[40] = 1;"))
        assert isinstance(error, report.MbarrierDeadlock), error
        assert error.line == line_of(spin, "while (!test_wait")


DEADLOCKS = [
    # (old, new, line waited at, barrier, reason, words)
    ("expect(&full[s], 1024);", "expect(&full[s], 2048);", "consumer waits", "full[0]",
     "too many bytes expected", ["2,048 bytes", "copies of 1,024 bytes", "1,024 bytes never come"]),
    ("expect(&full[s], 1024);", "expect(&full[s], 512);", "consumer waits", "full[0]",
     "too few bytes expected", ["512 bytes landed beyond the 512"]),
    ("(t / 2 % 2) ^ 1", "(t / 2 % 2)", "consumer waits", None,
     "nobody has ever arrived", ["begin with parity 1", "full[0]", "empty[0]",
                                 "Thread 64 (warp 2, lane 0)"]),
    ("arrive(&empty[s]);", "out[50] = 1;", "consumer waits", None,
     "nobody has ever arrived", ["empty[0]", "2 of 2 arrivals", "producer waits"]),
    ("if (lane == 0) arrive(&empty[s]);", "if (threadIdx.x == 0) arrive(&empty[s]);",
     "consumer waits", None, "arrivals missing", ["1 of 2 arrivals", "initialised for 2"]),
    ("init(&full[s], 1)", "init(&full[s], 2)", "consumer waits", "full[0]", "arrivals missing",
     ["1 of 2 arrivals", "the last arrival was at line"]),
]  # fmt: skip


@pytest.mark.parametrize("old, new, line, barrier, reason, words", DEADLOCKS,
                         ids=[d[1] for d in DEADLOCKS])  # fmt: skip
@pytest.mark.parametrize("policy", POLICIES[:4:3], ids=str)
def test_deadlocks_say_what_is_missing(policy, old, new, line, barrier, reason, words):
    assert old in RING
    error = error_of(RING.replace(old, new), **policy)
    assert isinstance(error, report.MbarrierDeadlock), error
    reasons = (
        {reason, "nobody has ever arrived", "arrivals missing"} if barrier is None else {reason}
    )
    assert error.details["reason"] in reasons
    if barrier:
        assert error.details["barrier"] == barrier
        assert error.line == line_of(RING, line)
    for text in words:
        assert text in error.message


FAULTS = [
    ("arrive(&full[1]);", "not initialised", ["uses full[1] before anybody has initialised it"]),
    ("init(&full[1], 1); asm volatile(\"mbarrier.inval.shared::cta.b64 [%0];\" ::"
     "\"r\"(at(&full[1])) : \"memory\"); arrive(&full[1]);", "invalidated",
     ["uses full[1] after mbarrier.inval"]),
    ("init(&full[0], 1); asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0], 2;\" ::\"r\"("
     "at(&full[0])) : \"memory\");", "too many arrivals", ["initialised for 1 arrivals"]),
    ("init(&full[0], n);", "count", ["not between 1 and"]),
    ("init(&full[0], 1); for (int i = 0; i < 3; ++i) asm volatile(\"mbarrier.expect_tx.relaxed.cta."
     "shared::cta.b64 [%0], %1;\" ::\"r\"(at(&full[0])), \"r\"(1000000) : \"memory\");", "bytes",
     ["beyond 1,048,575"]),
]  # fmt: skip


@pytest.mark.parametrize("code, problem, words", FAULTS, ids=[f[1] for f in FAULTS])
def test_misuse_has_its_own_words(code, problem, words):
    body = f"__shared__ u64 full[2];\nif (threadIdx.x == 7) {{ {code} }}\nout[0] = full[0];"
    result = run(body, "unsigned* out, int n", [word(), 0], threads=32)
    (error,) = result.errors
    assert isinstance(error, report.MbarrierFault), error
    assert error.details["problem"] == problem and error.lane == 7
    assert error.line is not None
    for text in words:
        assert text in error.message


@pytest.mark.parametrize(
    "address, problem",
    [("(u64*)((char*)full + 4)", "misaligned"), ("full + 100", "out of bounds")],
)
def test_an_mbarrier_lies_in_shared_memory_at_a_multiple_of_8(address, problem):
    body = f"__shared__ u64 full[2];\nif (threadIdx.x == 0) init({address}, 1);\nout[0] = full[0];"
    (error,) = run(body, "unsigned* out", [word()], threads=32).errors
    assert isinstance(error, report.MemoryFault) and error.details["problem"] == problem


def test_too_many_mbarriers_for_a_table_would_not_fit_shared_memory_either():
    body = r"""
    extern __shared__ u64 many[];
    for (int i = threadIdx.x; i < 4000; i += 32) init(&many[i], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 4000; i += 32) { arrive(&many[i]); wait(&many[i], 0); }
    out[threadIdx.x] = 1;
    """
    from tests.async_device import kernel_of

    kernel = kernel_of(body, "unsigned* out", 32).shaped(shared_bytes=32000)
    from course_lib.virtual_gpu.launch import launch

    out = word()
    assert launch(kernel, 1, [out]).ok and out[:32].all()
