"""The PTX parser, over a corpus compiled on the spot, and over text written by hand."""

from __future__ import annotations

import re
import subprocess

import pytest

from course_lib.nvrtc import compile_ptx
from course_lib.ptx.parse import (
    Address,
    Immediate,
    Instruction,
    Label,
    Module,
    Negated,
    Pair,
    PtxSyntaxError,
    Register,
    Special,
    Symbol,
    Vector,
    parse,
)

RING = """\
#include <cuda_pipeline.h>
__device__ __forceinline__ void fetch(unsigned* to, const unsigned* from, int n) {
  if (n > 0)
    __pipeline_memcpy_async(to, from, 16);
  __pipeline_commit();
}
extern "C" __global__ void __launch_bounds__(128) ring(const unsigned* x, unsigned* out, int n) {
  __shared__ __align__(16) unsigned tile[512];
  fetch(tile + threadIdx.x * 4, x + threadIdx.x * 4, n);
  __pipeline_wait_prior(0);
  __syncthreads();
  out[threadIdx.x] = tile[511 - threadIdx.x];
}
"""

CORPUS = {
    "ring": RING,
    "switch": """
extern "C" __global__ void k(int* x, int n) {
  int v = x[threadIdx.x];
  switch (n) {
    case 0: v += 1; x[7] = v; break;
    case 1: v *= 3; x[9] = v; break;
    case 2: v ^= 5; x[8] = 1; break;
    case 3: v -= n; x[6] = 2; break;
    case 4: v = v / n; break;
    case 5: v = __popc(v); x[3] = 0; break;
    default: v = 0;
  }
  x[threadIdx.x] = v;
}""",
    "call": """
__device__ __noinline__ float twice(float a, float* p) { *p += a; return a * 2; }
__constant__ float table[4] = {1.f, 2.f, 3.f, 4.f};
__device__ int counter = 5;
extern __shared__ float dynamic[];
extern "C" __global__ void k(float* x) {
  dynamic[threadIdx.x] = twice(x[threadIdx.x], x + 1) + table[threadIdx.x & 3];
  if (atomicAdd(&counter, 1) > 7) printf("%d %f\\n", counter, x[0]);
  x[threadIdx.x] = dynamic[threadIdx.x ^ 1];
}""",
    "asm": """
extern "C" __global__ void k(unsigned* x) {
  unsigned r;
  #pragma unroll
  for (int i = 0; i < 3; i++) {
    asm volatile("{ .reg .pred p; .reg .b32 t; L: add.u32 t, %1, 1; setp.gt.u32 p, t, 5;"
                 " @!p bra L; mov.b32 %0, t; }" : "=r"(r) : "r"(x[i]));
    x[i] = r;
  }
}""",
    "wide": """
#include <cuda_fp16.h>
extern "C" __global__ void k(const uint4* a, uint4* b, __half2* h, double d) {
  b[threadIdx.x] = a[threadIdx.x];
  h[threadIdx.x] = __hfma2(h[threadIdx.x], h[0], h[1]);
  ((double*)b)[70] = d * 3.25;
}""",
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus() -> dict[str, tuple[str, Module]]:
    texts = {name: compile_ptx(source) for name, source in CORPUS.items()}
    return {name: (text, parse(text)) for name, text in texts.items()}


def test_every_instruction_of_the_corpus_is_read(corpus: dict[str, tuple[str, Module]]) -> None:
    """Independent count: semicolons that do not end a directive."""
    for name, (text, module) in corpus.items():
        plain = re.sub(r"//[^\n]*", "", text.partition("\t.section")[0])
        statements = [s.strip(" \t\n{}") for s in plain.split(";")]
        statements = [re.sub(r"(?m)^\s*\.loc[^\n]*\n?", "", s).strip(" \t\n{}") for s in statements]
        statements = [re.sub(r"^(?:[\w$]+:\s*)+", "", s) for s in statements]
        expected = [s for s in statements if s and not s.startswith(".")]
        found = sum(1 for f in module.functions.values() for _ in f.instructions)
        assert found == len(expected), name


def test_text_lines_point_at_the_opcode(corpus: dict[str, tuple[str, Module]]) -> None:
    for text, module in corpus.values():
        lines = text.split("\n")
        for function in module.functions.values():
            for instruction in function.instructions:
                assert instruction.opcode in lines[instruction.text_line]


def test_registers_in_operands_are_declared(corpus: dict[str, tuple[str, Module]]) -> None:
    from course_lib.virtual_gpu.flow import registers_in

    for _, module in corpus.values():
        for function in module.functions.values():
            for instruction in function.instructions:
                for operand in instruction.operands:
                    assert all(name in function.registers for name in registers_in(operand))


def test_sites_lead_to_the_cell_through_the_inlining(
    corpus: dict[str, tuple[str, Module]],
) -> None:
    module = corpus["ring"][1]
    instructions = list(module.functions["ring"].instructions)
    copy = next(i for i in instructions if i.opcode.startswith("cp.async.c") and i.operands)
    site = module.site_of(copy)
    assert site.cell_line == 4  # the call of __pipeline_memcpy_async
    assert site.cell_lines == (4, 9)  # inlined into the kernel at line 9
    assert module.files[1].endswith("cell.cu")
    assert site.chain[0][0] != 1  # innermost: NVIDIA's header
    barrier = next(i for i in instructions if i.family in ("bar", "barrier"))
    assert module.site_of(barrier).cell_line == 11


def test_functions_parameters_and_memory(corpus: dict[str, tuple[str, Module]]) -> None:
    ring = corpus["ring"][1].functions["ring"]
    assert ring.is_entry and ring.max_threads[0] == 128
    assert [p.size for p in ring.params] == [8, 8, 4]
    assert [(v.size, v.alignment) for v in ring.shared] == [(2048, 16)]
    module = corpus["call"][1]
    assert module.dynamic_shared is not None and module.dynamic_shared.unsized
    twice = next(f for f in module.functions.values() if "twice" in f.name)
    assert not twice.is_entry and len(twice.params) == 2 and len(twice.returns) == 1
    counter = next(v for v in module.globals if v.name == "counter")
    assert counter.initialiser == (Immediate(5),)
    table = next(v for v in module.globals if "table" in v.name)
    assert table.space == "const" and table.size == 16


def test_labels_of_inline_assembly_are_unique(corpus: dict[str, tuple[str, Module]]) -> None:
    body = corpus["asm"][1].functions["k"].body
    labels = [item.name for item in body if isinstance(item, Label)]
    assert len(labels) == len(set(labels)) >= 3
    for item in body:
        if isinstance(item, Instruction) and item.family == "bra":
            assert isinstance(item.operands[0], Symbol) and item.operands[0].name in labels


def test_branch_tables(corpus: dict[str, tuple[str, Module]]) -> None:
    function = corpus["switch"][1].functions["k"]
    labels = {item.name for item in function.body if isinstance(item, Label)}
    for targets in function.branch_targets.values():
        assert set(targets) <= labels
    indexed = [i for i in function.instructions if i.family == "brx"]
    assert len(indexed) == len(function.branch_targets)


HAND = """
.version 8.0
.target sm_90
.address_size 64
.shared .align 8 .b8 pool[64];
.global .align 4 .u32 numbers[3] = {1, 0x10, -1};
.visible .entry k(.param .u64 k_param_0, .param .align 16 .b8 k_param_1[32])
.maxntid 64, 2, 1
{
  .reg .b32 %r<5>; .reg .pred %p<3>; .reg .f32 f; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [k_param_0];   // a comment; with a semicolon
  mov.u32 %r1, %tid.x; @!%p1 bra $done;
  setp.lt.and.s32 %p1|%p2, %r1, -7, !%p1;
  mov.f32 f, 0fBF800000;
  /* { not a scope } */
  ld.shared.v2.u32 {%r2, _}, [pool+8];
  st.global.u32 [%rd1+-4], %r2;
  // probe begin
  { .reg .b32 %r1; mov.u32 %r1, 3; $in: }
  // probe end
$done: ret;
}
"""


def test_operands_are_typed() -> None:
    module = parse(HAND)
    function = module.functions["k"]
    by_opcode = {i.opcode: i for i in function.instructions}
    assert by_opcode["ld.param.u64"].operands == (Register("%rd1"), Address(Symbol("k_param_0")))
    assert by_opcode["bra"].predicate == "%p1" and by_opcode["bra"].negated
    compare = by_opcode["setp.lt.and.s32"].operands
    assert compare[0] == Pair(Register("%p1"), Register("%p2"))
    assert compare[2] == Immediate(-7) and compare[3] == Negated(Register("%p1"))
    assert by_opcode["mov.f32"].operands == (Register("f"), Immediate(0xBF800000, 32))
    vector = by_opcode["ld.shared.v2.u32"].operands
    assert vector == (Vector((Register("%r2"), Register("_"))), Address(Symbol("pool"), 8))
    assert by_opcode["st.global.u32"].operands[0] == Address(Register("%rd1"), -4)
    moves = [i for i in function.instructions if i.opcode == "mov.u32"]
    assert moves[0].operands[1] == Special("%tid.x") and not moves[0].probe
    assert moves[1].probe and moves[1].operands[0] != Register("%r1")  # the inner one
    assert [p.size for p in function.params] == [8, 32] and function.params[1].alignment == 16
    assert function.max_threads == (64, 2, 1)
    assert module.globals[0].initialiser == (Immediate(1), Immediate(16), Immediate(-1))
    assert by_opcode["ret"].text_line == HAND.split("\n").index("$done: ret;")
    assert module.version == "8.0" and module.target == "sm_90"


@pytest.mark.parametrize(
    "broken",
    [
        HAND.replace("ret;\n}", "ret;\n"),
        HAND.replace("ret;\n}", "ret\n}"),
        HAND.replace("[pool+8]", "[pool+?]"),
        HAND.replace(".reg .f32 f", ".reg .f33 f"),
        HAND.replace("mov.u32 %r1, 3", ".nonsense 3"),
    ],
)
def test_broken_text_is_refused_with_its_line(broken: str) -> None:
    with pytest.raises(PtxSyntaxError, match=r"line \d+ of the PTX"):
        parse(broken)


def test_parsing_is_quick_and_imports_nothing_heavy() -> None:
    import sys

    code = (
        "import sys, course_lib.ptx.parse; "
        "print([m for m in ('numpy', 'numba', 'cupy', 'llvmlite') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
