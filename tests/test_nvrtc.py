"""Compiling: PTX of the cell's lines, errors in the cell's lines, and their hints."""

from __future__ import annotations

import re

import pytest

from course_lib import compile_kernel
from course_lib.diagnostics import CompileError, cell_lines, header_for, hint_for
from course_lib.nvrtc import arch_of, cell_is_file_one, compile_ptx


def failure(source: str, **options) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_kernel(source, **options)
    return caught.value


def wrapped(statement: str, head: str = "") -> str:
    return f'{head}\nextern "C" __global__ void k(float *x) {{\n  {statement}\n}}\n'


def test_the_cell_is_file_one_and_its_lines_are_kept():
    ptx = compile_ptx(wrapped("x[0] = 7;"))
    assert re.search(r'\.file\s+1 "cell\.cu"', ptx)
    store = next(n for n, text in enumerate(ptx.splitlines()) if "st.global" in text)
    assert cell_lines(ptx)[store] == 3
    assert ".target sm_90a" in ptx


def test_files_are_renumbered_where_a_header_came_first():
    ptx = "\t.loc\t2 7 3\n\t.loc 1 9 1, function_name $x, inlined_at 2 7 3\n"
    ptx += '\t.file\t1 "/include/a.h"\n\t.file\t2 "/home/me/cell.cu"\n'
    swapped = cell_is_file_one(ptx)
    assert '.file\t1 "cell.cu"' in swapped and '.file\t2 "/include/a.h"' in swapped
    assert cell_lines(swapped)[:2] == [7, 7]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_headers_of_the_course_compile(arch):
    source = "#include <cuda_pipeline.h>\n#include <cuda_fp16.h>\n"
    source += "#include <mma.h>\n" if arch != "sm_75" else ""
    kernel = compile_kernel(source + wrapped("x[0] = __half2float(__float2half(x[1]));"), arch=arch)
    assert kernel.name == "k"


def test_cuda_ptx_compiles():
    source = "#include <cuda/ptx>\n" + wrapped(
        "cuda::ptx::fence_proxy_async(cuda::ptx::space_shared); x[0] = 1;"
    )
    assert "fence.proxy.async" in compile_kernel(source).ptx()


def test_an_error_shows_line_caret_words_and_column():
    problem = failure(wrapped("x[0] = unknown + 1;"))
    (diagnostic,) = problem.diagnostics
    assert (diagnostic.line, diagnostic.column) == (3, 10)
    shown = str(problem).splitlines()
    at = next(i for i, text in enumerate(shown) if text.startswith("    3 | "))
    assert shown[at + 1].index("^") == shown[at].index("unknown")
    assert 'identifier "unknown" is undefined' in str(problem)


@pytest.mark.parametrize(
    ("statement", "words", "hint"),
    [
        ("__pipeline_memcpy_async(x, x, 16);", "__pipeline_memcpy_async", "<cuda_pipeline.h>"),
        ("__half h;", "__half", "<cuda_fp16.h>"),
        ("cuda::ptx::fence_proxy_async();", "namespace", "<cuda/ptx>"),
        ("using namespace nvcuda;", "namespace", "<mma.h>"),
        ("__syncthread();", "__syncthread", "__syncthreads"),
        ("x[0] = STAGES;", "STAGES", "-DSTAGES=2"),
        ("int i = threadIdx; x[i] = 1;", "uint3", "threadIdx.x"),
        ("x[0] = 1", 'expected a ";"', "semicolon"),
        ("int n = 3; float s[n * int(x[0])]; x[1] = s[0];", "constant", "constexpr"),
        ('asm("mov.b32 %0, 1;" :: "r"(x));', "constraint", "__cvta_generic_to_shared"),
        ('asm volatile("cp.asink.commit_group;");', "Unknown modifier", "PTX manual"),
        ("__shared__ float s[20000]; s[threadIdx.x] = x[1]; __syncthreads(); x[0] = s[7];",
         "48 KB allowed", "--shared"),
    ],
)  # fmt: skip
def test_common_errors_have_a_hint(statement, words, hint):
    problem = failure(wrapped(statement))
    said = [d for d in problem.diagnostics if words in d.message]
    assert said and said[0].line == (4 if ";" in words else 3)  # NVRTC points after the gap
    assert hint in str(problem)


def test_a_missing_brace_points_at_the_open_one():
    problem = failure('\nextern "C" __global__ void k(float *x) {\n  x[0] = 1;\n')
    assert problem.diagnostics[0].line == 2
    assert "count { and }" in str(problem)


def test_a_host_header_is_explained():
    assert "leave it out" in str(failure("#include <vector>\n" + wrapped("x[0] = 1;")))
    assert "<cuda/std/cstdint>" in str(failure("#include <stdint.h>\n" + wrapped("x[0] = 1;")))


def test_an_instruction_that_the_architecture_lacks():
    source = wrapped('x[0] = 4;\n  asm volatile("wgmma.fence.sync.aligned;");\n  x[1] = 3;')
    problem = failure(source, arch="sm_80")
    assert problem.diagnostics[0].line == 4
    assert "wgmma.fence" in str(problem) and "--arch sm_90a" in str(problem)
    assert compile_kernel(source, arch="sm_90a").name == "k"


def test_a_function_without_device():
    problem = failure("int two() { return 2; }" + wrapped("x[0] = two();"))
    assert "__device__" in problem.diagnostics[0].hint and problem.diagnostics[0].line == 1


def test_an_option_that_nobody_knows():
    assert "unrecognized option" in str(failure(wrapped("x[0] = 1;"), options=("--foo",)))
    assert "sm_80" in str(failure(wrapped("x[0] = 1;"), arch="sm_44"))


def test_one_hint_is_said_once():
    problem = failure(wrapped("__pipeline_commit(); __pipeline_commit();"))
    assert len(problem.diagnostics) >= 1
    assert str(problem).count("#include <cuda_pipeline.h>") == 1


def test_tables():
    assert header_for("__nv_bfloat162") == "cuda_bf16.h"
    assert header_for("my_own_name") is None
    assert "doctor()" in hint_for("Unsupported .version 9.9; current version is '9.5'")
    assert arch_of((9, 0)) == "sm_90a" and arch_of((8, 6)) == "sm_86"
