"""Whatever a kernel does wrong ends in a report with the learner's line, never in a crash."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from course_lib.kernel import Kernel, compile_kernel
from course_lib.virtual_gpu import report
from course_lib.virtual_gpu.launch import LaunchResult, launch

BUDGET = 20_000_000


def run(body: str, threads: int = 64, budget: int = BUDGET, before: str = "", **how: object):
    """Launch `body` as a kernel of (float* x, int n) on x of 64 zeros and n = 64."""
    source = before + 'extern "C" __global__ void k(float* x, int n) {\n' + body + "\n}"
    kernel = compile_kernel(source, threads=threads)
    x = np.zeros(64, np.float32)
    result = launch(kernel, 1, [x, 64], step_budget=budget, **how)  # type: ignore[arg-type]
    return result, x


def only_error(result: LaunchResult) -> report.RunError:
    assert not result.ok
    (error,) = result.errors
    return error


# (name, lines of the kernel, line of the fault, thread, problem, words of the message)
MEMORY = [
    ("past the end", "int i = threadIdx.x;\nx[i + 1] = 1;", 3, 63, "out of bounds",
     "writes 4 bytes at x[64]: 1 element past the end of x (64 elements)"),
    ("before the start", "x[(int)threadIdx.x - 1] = 1;", 2, 0, "out of bounds",
     "x[-1]: 1 element before the start"),
    ("far past", "int i = threadIdx.x * n;\nx[0] = x[i * n];", 3, 1, "out of bounds",
     "reads 4 bytes at x[4096]: 4,033 elements past the end"),
    ("half past", "((float2*)(x + n - 2))[threadIdx.x] = float2{1, 1};", 2, 1, "out of bounds",
     "x[64]"),
    ("null", "float* p = (float*)(size_t)(n - 64);\n*p = threadIdx.x;", 3, 0, "null",
     "null pointer"),
    ("wild", "*(float*)((size_t)x * 7919 + (size_t)n * 12345678) = 1;", 2, 0, "wild",
     "belongs to no array"),
    ("misaligned", "*(double*)(x + 1) = 1;", 2, 0, "misaligned", "not a multiple of 8"),
    ("shared past", "__shared__ float s[64];\ns[threadIdx.x] = 1;\n__syncthreads();\n"
     "x[0] = s[threadIdx.x * 2];", 5, 32, "out of bounds",
     "byte 256 of shared memory: 4 bytes past its end (the block has 256 bytes)"),
    ("shared generic",
     "__shared__ float s[64];\nfloat* p = n > 3 ? s : x;\np[threadIdx.x * 2] = 1;", 4, 32,
     "out of bounds", "byte 256 of shared memory"),
    ("shared misaligned", "__shared__ __align__(16) char s[256];\n"
     "*(int*)(s + threadIdx.x * 2) = 1;\nx[0] = *(int*)s;", 3, 1, "misaligned", "multiple of 4"),
    ("local past", "float l[8];\nfor (int i = 0; i < 8; i++) l[i] = i;\nx[threadIdx.x] = l[n];",
     4, 0, "out of bounds", "local memory"),
    ("atomic past", "atomicAdd(x + threadIdx.x * 2, 1.f);", 2, 32, "out of bounds",
     "updates atomically 4 bytes at x[64]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "line", "thread", "problem", "words"), MEMORY)
@pytest.mark.parametrize("order", ["round_robin", "timed"])
def test_memory_faults(
    name: str, body: str, line: int, thread: int, problem: str, words: str, order: str
) -> None:
    error = only_error(run(body, order=order)[0])
    assert isinstance(error, report.MemoryFault)
    assert (error.line, error.thread, error.block) == (line, (thread, 0, 0), (0, 0, 0))
    assert (error.warp, error.lane) == (thread // 32, thread % 32)
    assert error.details["problem"] == problem
    assert words in error.message and f"Line {line}: `" in error.message


def test_a_fault_names_thread_and_block_in_three_dimensions() -> None:
    source = """extern "C" __global__ void k(int* table) {
  table[blockIdx.y * 1000 + threadIdx.y] = 1;
}"""
    kernel = compile_kernel(source, threads=32)
    result = launch(kernel, (2, 3), [np.zeros(1000, np.int32)], threads=(4, 8))
    error = only_error(result)
    assert error.block == (0, 1, 0) and error.thread == (0, 0, 0) and error.line == 2
    assert "table[1000]: 1 element past the end of table (1,000 elements)" in error.message


COPY = "#include <cuda_pipeline.h>\n"


def test_an_asynchronous_copy_past_the_end_is_reported_where_it_was_issued() -> None:
    body = """__shared__ __align__(16) float s[256];
__pipeline_memcpy_async(&s[threadIdx.x * 4], x + threadIdx.x * 4, 16);
__pipeline_commit();
__pipeline_wait_prior(0);
x[threadIdx.x] = s[threadIdx.x];"""
    error = only_error(run(body, before=COPY, landing="late")[0])
    assert isinstance(error, report.MemoryFault)
    assert (error.line, error.thread) == (4, (16, 0, 0))
    assert "x[64]" in error.message


def test_uninitialised_shared_memory_is_a_warning_and_poison() -> None:
    result, x = run("__shared__ float s[64];\nx[threadIdx.x] = s[threadIdx.x];")
    assert result.ok
    (note,) = result.warnings
    assert isinstance(note, report.UninitialisedRead) and note.line == 3
    assert "nobody has written" in note.message
    assert (x.view(np.uint32) == 0xCDCDCDCD).all()


def test_a_read_before_the_wait_names_the_line_of_the_copy() -> None:
    body = """__shared__ __align__(16) float s[256];
__pipeline_memcpy_async(&s[threadIdx.x * 4], x + threadIdx.x % 16 * 4, 16);
__pipeline_commit();
x[threadIdx.x] = s[threadIdx.x];"""
    result, _ = run(body, before=COPY, landing="late")
    (note,) = result.warnings
    assert note.line == 6 and note.details["copy_line"] == 4
    assert "this thread issued on line 4" in note.message
    assert not run(body, before=COPY, landing="early", threads=4)[0].warnings


# --- kernels that do not end ------------------------------------------------------------------


@pytest.mark.parametrize("order", ["round_robin", "timed"])
def test_an_endless_loop_is_stopped_and_its_line_named(order: str) -> None:
    error = only_error(run("volatile float* v = x;\nwhile (v[0] == 0) ;", order=order)[0])
    assert isinstance(error, report.StepBudget)
    assert error.line == 3 and "round and round" in error.message


def test_an_endless_loop_through_a_barrier_is_stopped() -> None:
    body = "volatile float* v = x;\nwhile (v[0] == 0)\n  __syncthreads();"
    error = only_error(run(body)[0])
    assert isinstance(error, report.StepBudget) and error.line in (3, 4)


def test_the_default_budget_is_a_few_seconds() -> None:
    start = time.perf_counter()
    error = only_error(run("volatile float* v = x;\nwhile (v[0] == 0) ;", 256, 1_000_000_000)[0])
    assert isinstance(error, report.StepBudget)
    assert time.perf_counter() - start < 10


def test_waiting_for_a_flag_of_another_warp_ends() -> None:
    body = """__shared__ volatile int flag;
if (threadIdx.x == 0) flag = 0;
__syncthreads();
if (threadIdx.x == 63) flag = 1;
else if (threadIdx.x < 32) while (!flag) ;
x[threadIdx.x] = 1;"""
    for order in ("round_robin", "one_first", "one_last"):
        result, x = run(body, order=order)
        assert result.ok and x.all()


def test_a_barrier_that_half_a_warp_never_reaches() -> None:
    body = """if (threadIdx.x < 16)
  __syncthreads();
else
  while (((volatile float*)x)[0] == 0) __nanosleep(100);"""
    error = only_error(run(body)[0])
    assert isinstance(error, report.StepBudget) and error.line == 5
    assert "lanes 0-15 of warp 0 wait at barrier 0 at line 3" in error.message


# --- deadlocks --------------------------------------------------------------------------------


def test_two_warps_at_different_barriers() -> None:
    body = """if (threadIdx.x < 32) {
  __syncthreads();
  asm volatile("bar.sync 1, 64;");
} else
  asm volatile("bar.sync 2, 64;");"""
    error = only_error(run(body)[0])
    assert type(error) is report.Deadlock
    assert "At barrier 0 wait warp 0 at line 3" in error.message
    assert "At barrier 2 wait warp 1 at line 6" in error.message
    assert "needs 64 threads, and 32 have arrived" in error.message


def test_a_warp_that_left_is_named() -> None:
    body = 'if (threadIdx.x >= 32) return;\nasm volatile("bar.sync 1, 64;");'
    error = only_error(run(body)[0])
    assert type(error) is report.Deadlock
    assert "Already returned from the kernel: warp 1." in error.message


def test_lanes_of_one_warp_at_one_barrier_on_two_paths() -> None:
    body = """if (threadIdx.x & 1)
  __syncthreads();
else {
  x[1] = 2;
  __syncthreads();
}
x[threadIdx.x] = 1;"""
    error = only_error(run(body)[0])
    assert isinstance(error, report.DivergentBarrier)
    assert "line 3" in error.message and "line 6" in error.message
    assert "different paths" in error.message


def test_a_syncwarp_that_waits_for_lanes_at_a_barrier() -> None:
    body = """if (threadIdx.x & 1)
  __syncwarp(0xffffffff);
else
  asm volatile("bar.sync 0;");"""
    error = only_error(run(body)[0])
    assert type(error) is report.Deadlock
    assert "in __syncwarp at line 3" in error.message
    assert "Of warp 0 only some lanes are there" in error.message


def test_a_mask_without_its_own_lane() -> None:
    error = only_error(run("x[0] = __shfl_sync(0xfe, threadIdx.x, 3);")[0])
    assert isinstance(error, report.BadMask)
    assert error.line == 2 and error.lane == 0 and "0x000000fe" in error.message


# --- traps and arithmetic -----------------------------------------------------------------------


def test_trap_and_assert() -> None:
    error = only_error(run("if (threadIdx.x == 3)\n  __trap();\nx[threadIdx.x] = 1;")[0])
    assert type(error) is report.Trap and (error.line, error.lane) == (3, 3)
    error = only_error(run("assert(threadIdx.x < 7);")[0])
    assert isinstance(error, report.AssertFailed)
    assert error.line == 2 and error.lane == 7 and "assert(threadIdx.x < 7)" in error.message


def test_division_by_zero_is_a_warning() -> None:
    body = """int i = threadIdx.x;
x[i] = n / i + n % i + (-2147483647 - 1) / (n - 65);"""
    result, x = run(body)
    assert result.ok
    (note,) = result.warnings
    assert isinstance(note, report.DivisionByZero) and note.line == 3
    assert "divides an integer by zero" in note.message


def test_the_lowest_failing_block_is_reported() -> None:
    source = """extern "C" __global__ void k(int* x) {
  if (blockIdx.x >= 5) x[100 + blockIdx.x] = 1;
}"""
    result = launch(compile_kernel(source, threads=32), 64, [np.zeros(10, np.int32)])
    assert result.errors[0].block == (5, 0, 0)


def test_a_fault_leaves_nothing_behind_for_the_next_launch() -> None:
    source = """extern "C" __global__ void k(int* x, int n) {
  __shared__ int s[32];
  if (threadIdx.x < n) __syncthreads();
  s[threadIdx.x] = 1;
  __syncwarp();
  x[threadIdx.x * n] = s[threadIdx.x];
}"""
    kernel = compile_kernel(source, threads=32)
    x = np.zeros(32, np.int32)
    assert not launch(kernel, 1, [x, 16]).ok
    assert not launch(kernel, 1, [x, 32]).ok
    assert launch(kernel, 1, [x, 0]).ok and x[0] == 1
    assert launch(kernel, 1, [x, 0]).ok


# --- what a message must not leave out or blame ---------------------------------------------------

#: Warp 0 alone passes the second barrier, so its next one pairs with the others' first.
SKIPPED = """for (int t = 0; t < 3; ++t) {
  __syncthreads();
  x[threadIdx.x] += t;
  if (threadIdx.x < 32)
    __syncthreads();
}"""


@pytest.mark.parametrize("order", ["round_robin", "one_last", "timed"])
def test_one_barrier_met_at_two_lines_is_noted_once_for_both_lines(order: str) -> None:
    result, _ = run(SKIPPED, threads=64, order=order)
    (note,) = result.warnings
    assert result.ok and isinstance(note, report.BarrierAtTwoLines)
    assert set(note.details["lines"]) == {3, 6}  # type: ignore[call-overload]
    assert "the same barrier, at different lines" in note.message
    assert "warp 0 is at line 6" in note.message or "warp 0 waits at line 6" in note.message


def test_the_note_counts_the_warps_at_both_lines_and_comes_first() -> None:
    body = "__shared__ float s[256];\n" + SKIPPED + "\nx[threadIdx.x % 64] = s[threadIdx.x];"
    body = body.replace("x[threadIdx.x] +=", "x[threadIdx.x % 64] +=")
    result, _ = run(body, threads=256)
    kinds = [type(note) for note in result.warnings]
    assert kinds == [report.BarrierAtTwoLines, report.UninitialisedRead]
    first = result.warnings[0].message
    assert "warps 1-7 wait at line 4" in first and "while warp 0 is at line 7" in first


def test_branches_by_warp_that_both_have_a_barrier_stay_right() -> None:
    body = """if (threadIdx.x < 32) {
  x[0] = 1;
  __syncthreads();
} else
  __syncthreads();
x[threadIdx.x] = 1;"""
    result, x = run(body)
    assert result.ok and x.all() and not result.errors
    again, _ = run("for (int i = 0; i < n; ++i) { __syncthreads(); x[threadIdx.x] += i; }")
    assert not again.warnings
    both, _ = run('if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");\nelse\n'
                  'asm volatile("bar.sync 1, 64;");')  # fmt: skip
    assert both.ok and not both.warnings  # roles that join on purpose


def test_verify_says_first_that_a_barrier_was_met_at_two_lines() -> None:
    from course_lib.problems import TileReduction
    from course_lib.verification import verify

    source = """extern "C" __global__ void k(const unsigned* x, unsigned* out, int tiles) {
  __shared__ unsigned s[2][256];
  for (int t = 0; t < 3; ++t) {
    __syncthreads();
    s[t % 2][threadIdx.x] = t;
    if (threadIdx.x < 32)
      __syncthreads();
  }
  out[threadIdx.x % 4] = s[1][threadIdx.x ^ 64] + s[0][threadIdx.x];
}"""
    verdict = verify(compile_kernel(source, threads=256), TileReduction.of_tiles(4), "virtual")
    assert not verdict.ok
    assert "the same barrier, at different lines" in verdict.warnings[0]
    assert "the same barrier, at different lines" in str(verdict)


def test_an_endless_loop_around_a_loop_that_ends_is_named() -> None:
    body = """for (int t = 0; t < n; ) {
  for (int i = 0; i < 500; ++i)
    ((volatile float*)x)[i % 64] = i;
}"""
    error = only_error(run(body)[0])
    assert isinstance(error, report.StepBudget)
    assert error.line == 2 and error.message.startswith("Line 2: `for (int t = 0; t < n; ) {`")
    assert "The loop at line 2 has no way out" in error.message
    assert "now at line 3" in error.message
    alone = only_error(run("volatile float* v = x;\nwhile (v[0] == 0) ;")[0])
    assert "inside the loop" not in alone.message and "no way out" not in alone.message


def test_the_line_of_an_endless_loop_is_found_around_a_called_function() -> None:
    before = """__device__ void part(volatile float* x, int k) {
  for (int i = 0; i < k; ++i)
    x[i % 64] = i;
}
"""
    error = only_error(run("for (int t = 0; t < n; )\n  part(x, n * 9);", before=before)[0])
    assert error.line == 6 and "The loop at line 6 has no way out" in error.message


def lesson_kernel(old: str, new: str) -> tuple[Kernel, list[str]]:
    """`two_buffers` of lesson 03 with one change, and its lines."""
    (path,) = (Path(__file__).parents[1] / "notebooks").glob("03*.ipynb")
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    cell = next(text for text in cells if text.startswith("%%cuda two_buffers"))
    source = cell.split("\n", 1)[1]
    assert source.count(old) == 1
    source = source.replace(old, new)
    kernel = compile_kernel(source, name="two_buffers", threads=256, defines={"WORK": 2})
    return kernel, source.splitlines()


def test_the_line_of_an_endless_loop_is_not_that_of_arithmetic_moved_into_it() -> None:
    kernel, lines = lesson_kernel("t < last; ++t", "t < last; ")
    x, out = np.zeros(4 * 4096, np.uint32), np.zeros(4, np.uint32)
    error = only_error(launch(kernel, 1, [x, out, 4], step_budget=BUDGET))
    line = next(n for n, text in enumerate(lines, 1) if "t < last; )" in text)
    assert error.line == line and f"The loop at line {line} has no way out" in error.message


def test_a_skipped_barrier_in_the_lesson_is_noted() -> None:
    old = "__syncthreads();                                     // everyone"
    kernel, lines = lesson_kernel(old, "if (threadIdx.x < 32) __syncthreads();  // everyone")
    x, out = np.zeros(4 * 4096, np.uint32), np.zeros(4, np.uint32)
    result = launch(kernel, 1, [x, out, 4], step_budget=BUDGET)
    line = next(n for n, text in enumerate(lines, 1) if "threadIdx.x < 32" in text)
    note = result.warnings[0]
    assert isinstance(note, report.BarrierAtTwoLines)
    assert f"warps 1-7 wait at line {line - 3}" in note.message
    assert f"while warp 0 is at line {line}" in note.message


def test_a_loop_that_may_end_names_the_loops_around_it() -> None:
    body = """volatile float* v = x;
while (v[0] == 0) {
  for (int i = 0; i < 1000003; ++i)
    v[1 + i % 63] = i;
}"""
    error = only_error(run(body)[0])
    assert error.line == 4 and "inside the loop at line 3 `while (v[0] == 0) {`" in error.message
    assert "conditions of all these loops" in error.message


@pytest.mark.parametrize(
    ("body", "present", "absent"),
    [
        ("x[threadIdx.x + 1] = 1;", "threads or blocks beyond the last", "tiles ahead"),
        ("atomicAdd(x + threadIdx.x * 2, 1.f);", "threads or blocks beyond the last", "STAGES"),
        ("x[0] = x[n + threadIdx.x];", "loads tiles ahead", "beyond the last element"),
        ("extern __shared__ float s[];\ns[threadIdx.x] = 1;\nx[0] = s[n - 1];",
         "give its size in bytes with --shared", "stage"),
    ],
)  # fmt: skip
def test_the_advice_on_bounds_fits_the_access(body: str, present: str, absent: str) -> None:
    error = only_error(run(body)[0])
    assert isinstance(error, report.MemoryFault)
    assert present in error.message and absent not in error.message


def test_two_barriers_on_one_line_are_told_as_two_paths() -> None:
    body = "if (threadIdx.x & 1) __syncthreads(); else { x[1] = 2; __syncthreads(); }"
    error = only_error(run(body)[0])
    assert isinstance(error, report.DivergentBarrier)
    assert "on one, lane" in error.message and "on another, all at line 2" in error.message
    assert "2 branches each have a barrier" in error.message


def test_a_barrier_number_that_no_block_has_is_named() -> None:
    source = """extern "C" __global__ void f(int n) {
      asm volatile("bar.sync %0, 64;" :: "r"(n) : "memory");
    }"""
    result = launch(compile_kernel(source, threads=64), 1, [16])
    assert "meets barrier 16, and a block has barriers 0 to 15" in result.errors[0].message
    assert result.errors[0].line == 2


def test_of_several_blocks_that_fault_the_first_is_told_whichever_worker_was_faster() -> None:
    source = """extern "C" __global__ void k(int* out) {
      if (blockIdx.x == 1)  // the first that faults takes long before it does
        for (int i = 0; i < 20000; ++i) *(volatile int*)out = i;
      if (blockIdx.x >= 1) __trap();
    }"""
    for _ in range(3):
        result = launch(compile_kernel(source, threads=1), 64, [np.zeros(4, np.int32)], workers=4)
        (error,) = result.errors
        assert isinstance(error, report.Trap) and error.block == (1, 0, 0)
