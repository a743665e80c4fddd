"""Mutated PTX must be run, or refused in words; never crash or hang the process.

A few hundred seeded edits of real kernels' PTX (5,000 by `make fuzz`, which sets MUTATIONS): other
operands, immediates, opcodes, types and predicates, deleted and repeated instructions.  They run
in one child process, so that a crash of it is a failure with a seed, and not the end of this test
run.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from course_lib.nvrtc import compile_ptx

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.problems import Problem

# Kernels of the case bank, which the kernels here have nothing of: mbarriers, bulk copies, wgmma.
FROM_CASES = (
    "right_bulk_ring", "right_bulk_store_ring", "right_cp_async_mbarrier_arrive",
    "right_state_token_handoff", "right_two_consumer_groups", "right_wgmma_one_group_in_flight",
)  # fmt: skip
HALF = ("tma_wgmma_ring", "tma_wgmma_specialised", "mma_cp_async_ring", "wmma_cp_async_ring")
NAMES = ("tiles", "gemm", "miscellany", *FROM_CASES, *HALF)
MUTATIONS = int(os.environ.get("MUTATIONS", "450"))
PER_KERNEL = -(-MUTATIONS // (len(NAMES) - len(HALF)))
STEP_BUDGET = 200_000
# Seconds for all of them. They take a hundredth to a tenth of one each; a hang takes for ever.
TIME_LIMIT = 150 + MUTATIONS // 4

TILES = """
#include <cuda_pipeline.h>
extern "C" __global__ void k(const unsigned* __restrict__ x, unsigned* out, int tiles) {
  __shared__ __align__(16) unsigned tile[2][256];
  int i = threadIdx.x;
  auto load = [&](int t) {
    if (t < tiles) __pipeline_memcpy_async(&tile[t % 2][i * 4], x + t * 256 + i * 4, 16);
    __pipeline_commit();
  };
  load(0);
  for (int t = 0; t < tiles; t++) {
    load(t + 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    unsigned sum = 0;
    for (int j = 0; j < 4; j++) sum += tile[t % 2][j * 64 + i];
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (i % 32 == 0) atomicAdd(&out[t], sum);
    __syncthreads();
  }
}"""

GEMM = """
extern "C" __global__ void k(const float* A, float* C, int n) {
  __shared__ float a[16][17], b[16][17];
  int i = threadIdx.x % 16, j = threadIdx.x / 16; float local[4], sum = 0;
  for (int q = 0; q < 4; q++) local[q] = A[(j * 4 + q) * 16 + i];
  for (int q = 0; q < 4; q++) { a[j * 4 + q][i] = local[q]; b[i][j * 4 + q] = local[(q + n) & 3]; }
  __syncthreads();
  for (int q = 0; q < 16; q++) sum = fmaf(a[j][q], b[q][i], sum);
  C[threadIdx.x] = sum / (float)n + (float)(i / n) + sqrtf(fabsf(sum));
}"""

MISCELLANY = """
#include <cuda_fp16.h>
__device__ int table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__constant__ float scale = 2.f;
__device__ __noinline__ int pick(int v, int* p) { return v > 3 ? *p : v * 3; }
extern "C" __global__ void k(const unsigned* x, unsigned* out, double d) {
  __shared__ int count; __shared__ unsigned long long wide;
  int i = threadIdx.x; unsigned v = x[i];
  if (i == 0) { count = 0; wide = 0; }
  __syncthreads();
  atomicAdd(&count, (int)(v & 3)); atomicMax(&wide, (unsigned long long)v << 9);
  unsigned lanes = __ballot_sync(~0u, v & 1);
  switch (v % 6) {
    case 0: v += __popc(lanes); break;
    case 1: v ^= table[i & 7]; break;
    case 2: v = v / (i + 1); break;
    case 3: v = (unsigned)(scale * v); break;
    case 4: v = __half_as_ushort(__float2half((float)v) * __float2half(0.5f)); break;
    default: v = pick(v, (int*)&out[i]);
  }
  __syncthreads();
  if (v == 12345) printf("%d %f\\n", i, d);
  out[i] = v + count + (unsigned)(wide % 1000) + (unsigned)(long long)(d * i);
}"""


def mutations_of(name: str) -> int:
    """How many of a kernel; fewer where translating one takes seconds."""
    slow = name in (*HALF, "right_wgmma_one_group_in_flight")
    return -(-PER_KERNEL // 25) if slow else PER_KERNEL


def mutate(ptx: str, seed: int) -> str:
    """One to three seeded edits of the instructions of a PTX text."""
    rng = random.Random(seed)
    lines = ptx.split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        candidates = [
            k for k, line in enumerate(lines)
            if re.match(r"\s+(@!?%p\d+\s+)?[a-z][\w.:]*(\s|;).*;?\s*$", line) and ";" in line
        ]  # fmt: skip
        at = rng.choice(candidates)
        lines[at] = _edit(lines[at], lines, rng)
    return "\n".join(lines)


def _edit(line: str, lines: list[str], rng: random.Random) -> str:
    registers = re.findall(r"%[a-z]+\d+", line)
    kind = rng.randrange(9)
    if kind == 0:
        return ""
    if kind == 1:
        return line + "\n" + line
    if kind == 2 and len(registers) > 1:
        return (
            line.replace(registers[0], "%@")
            .replace(registers[-1], registers[0])
            .replace("%@", registers[-1])
        )
    if kind == 3:
        number = rng.choice(("0", "1", "-1", "2147483647", "-2147483648", "64", "12345678", "7"))
        return re.sub(r"(?<![\w.%$])-?\d+(?![\w.])", number, line, count=1)
    if kind == 4:
        types = ("u32", "s32", "b32", "u64", "s64", "b64", "f32", "f64", "u8", "u16", "f16", "pred")
        return re.sub(r"\.(u|s|b|f)(8|16|32|64)\b", "." + rng.choice(types), line, count=1)
    if kind == 5:
        words = ("add", "sub", "mul.lo", "shl", "and", "div", "rem", "min", "xor", "mov", "setp.lt")
        return re.sub(r"^(\s+(?:@!?%p\d+\s+)?)([a-z]+(?:\.lo)?)", rf"\1{rng.choice(words)}", line)
    if kind == 6:
        return line.replace("@%", "@!%") if "@%" in line else line.replace("@!%", "@%")
    if kind == 7 and registers:
        others = re.findall(re.match(r"%[a-z]+", registers[0]).group() + r"\d+", "\n".join(lines))
        return line.replace(registers[-1], rng.choice(others or registers))
    return rng.choice(lines)


def from_cases() -> Iterator[tuple[str, Kernel, tuple[int, ...], Callable[[], list[Any]]]]:
    """(name, kernel, grid, fresh arguments) of each kernel of the case bank that is here."""
    import case_files

    from course_lib.problem_runs import shaped_for

    for name in FROM_CASES:
        case = case_files.load(case_files.FOLDER / f"{name}.cu")
        kernel, problem = shaped_for(case.kernel, case.problem), case.problem

        def arguments(kernel: Kernel = kernel, problem: Problem = problem) -> list[Any]:
            return problem.arguments(kernel, problem.inputs(), problem.outputs())

        yield name, kernel, problem.grid(kernel), arguments
    yield from half_kernels()


def half_kernels() -> Iterator[tuple[str, Kernel, tuple[int, ...], Callable[[], list[Any]]]]:
    """The same of the GEMMs of tests/kernels: tensor copies, roles, wgmma, ldmatrix, mma, wmma."""
    from half_kernels import kernel, problem

    from course_lib.problem_runs import shaped_for

    for name in HALF:
        case = problem(name, 128, 128, 128)
        made = shaped_for(kernel(name, 2), case)

        def arguments(made: Kernel = made, case: Problem = case) -> list[Any]:
            return case.arguments(made, case.inputs(), case.outputs())

        yield name, made, case.grid(made), arguments


def run_all() -> None:
    """The child: prints a line before and after every mutation."""
    from course_lib.kernel import compile_kernel
    from course_lib.ptx.parse import PtxSyntaxError, parse
    from course_lib.virtual_gpu.flow import Unsupported
    from course_lib.virtual_gpu.launch import launch

    rng = np.random.default_rng(0)
    words = rng.integers(0, 1 << 32, 4096, dtype=np.uint64).astype(np.uint32)
    cases = (
        ("tiles", TILES, lambda: [words[:1024].copy(), np.zeros(8, np.uint32), np.int32(4)]),
        ("gemm", GEMM, lambda: [np.ones(256, np.float32), np.zeros(256, np.float32), np.int32(3)]),
        ("miscellany", MISCELLANY,
         lambda: [words[:64].copy(), np.zeros(64, np.uint32), np.float64(1.5)]),
    )  # fmt: skip
    for name, kernel, grid, arrays in [
        *((name, compile_kernel(source, name="k", threads=64), (1,), arrays)
          for name, source, arrays in cases),
        *from_cases(),
    ]:  # fmt: skip
        for seed in range(mutations_of(name)):
            print("start", name, seed, flush=True)
            timed, outcome = seed % 3 == 2, "refused"
            try:
                module = parse(mutate(kernel.ptx(), seed))
                result = launch(
                    kernel, grid, arrays(), module=module, step_budget=STEP_BUDGET,
                    check=seed % 2 == 0,
                    order="timed" if timed else "round_robin",
                )  # fmt: skip
                outcome = "ran" if result.ok else "reported"
            except (PtxSyntaxError, Unsupported) as refusal:
                assert len(str(refusal)) > 10
            print("end", outcome, flush=True)
    print("done", flush=True)


def test_mutated_ptx_never_crashes_or_hangs(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parent.parent
    log = tmp_path / "log"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}",
        "COURSE_LIB_CACHE": str(tmp_path / "cache"),
    }
    shared = os.environ.get("COURSE_LIB_CACHE")
    if shared:
        environment["COURSE_LIB_CACHE"] = shared
    else:
        del environment["COURSE_LIB_CACHE"]
    start = time.monotonic()
    with open(log, "w") as output:
        child = subprocess.Popen(
            [sys.executable, "-c", "import runpy, sys; sys.argv = ['m']; "
             f"runpy.run_path({str(Path(__file__))!r})['run_all']()"],
            stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=root,
        )  # fmt: skip
        try:
            code = child.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            child.kill()
            code = None
    lines = log.read_text().splitlines()
    last = next((line for line in reversed(lines) if line.startswith("start")), "nothing started")
    assert code is not None, f"still running after {TIME_LIMIT} s, at: {last}"
    assert code == 0, f"ended with {code} at: {last}\n" + "\n".join(lines[-12:])
    assert lines[-1] == "done", lines[-5:]
    outcomes = [line.split()[1] for line in lines if line.startswith("end")]
    assert len(outcomes) == sum(map(mutations_of, NAMES))
    # All three must happen, or this would test nothing.
    for outcome in ("ran", "reported", "refused"):
        assert outcomes.count(outcome) >= 15, {o: outcomes.count(o) for o in set(outcomes)}
    assert time.monotonic() - start < TIME_LIMIT


REFUSED = {
    "barrier.cluster.wait.aligned;": "barrier.cluster.wait",
    "barrier.cluster.arrive.aligned;": "barrier.cluster",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_there_yet_is_refused_by_name_and_line(text: str) -> None:
    from course_lib.ptx.parse import parse
    from course_lib.virtual_gpu import jit
    from course_lib.virtual_gpu.flow import Unsupported

    source = f"""extern "C" __global__ void k(unsigned* x) {{
  unsigned a = 0;
  asm volatile("{text}" : "+r"(a) : "r"(0));
  x[0] = a;
}}"""
    module = parse(compile_ptx(source))
    with pytest.raises(Unsupported) as caught:
        jit.build(module, "k")
    assert REFUSED[text] in str(caught.value) and "line 3" in str(caught.value)


def test_recursion_and_function_pointers_are_refused() -> None:
    from course_lib.ptx.parse import parse
    from course_lib.virtual_gpu import jit
    from course_lib.virtual_gpu.flow import Unsupported

    recursive = """
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) * n; }
extern "C" __global__ void k(int* x) { x[0] = fib(x[1]); }"""
    pointer = """
__device__ __noinline__ int one(int n) { return n * n; }
__device__ __noinline__ int two(int n) { return n + 7; }
extern "C" __global__ void k(int* x) { int (*f)(int) = x[2] > 3 ? one : two; x[0] = f(x[1]); }"""
    with pytest.raises(Unsupported, match="fib.*recursion"):
        jit.build(parse(compile_ptx(recursive)), "k")
    with pytest.raises(Unsupported, match="function pointer"):
        jit.build(parse(compile_ptx(pointer)), "k")


@pytest.mark.parametrize("space", ["local", "shared"])
def test_a_global_access_to_another_window_is_a_fault_and_no_crash(space: str) -> None:
    """``ld.global`` of a generic address that lies in local or shared memory."""
    from course_lib.kernel import compile_kernel
    from course_lib.virtual_gpu.launch import launch

    declared = {"local": "volatile unsigned v[8];", "shared": "__shared__ unsigned v[8];"}[space]
    source = f"""extern "C" __global__ void k(unsigned* x) {{
  {declared}
  v[x[0]] = 3;
  unsigned r;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(r) : "l"(&v[x[0]]) : "memory");
  x[0] = r + v[x[1]];
}}"""
    result = launch(compile_kernel(source, name="k", threads=1), (1,), [np.zeros(2, np.uint32)])
    assert not result.ok and result.errors[0].line == 5
