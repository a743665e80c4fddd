"""The `%%cuda` cell: its arguments, its one line, and what a failing cell leaves behind."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from course_lib.cuda_magic import kernel_from_text, parse_line, run_cell
from course_lib.diagnostics import CompileError
from course_lib.kernel import Kernel

BODY = """#ifndef STAGES
#define STAGES 2
#endif
extern "C" __global__ void ring(const unsigned *x, unsigned *out, int tiles) {
  extern __shared__ unsigned stage[];
  __shared__ unsigned more[8192];
  more[threadIdx.x] = x[threadIdx.x];
  stage[threadIdx.x] = x[threadIdx.x + 1];
  __syncthreads();
  out[threadIdx.x] = stage[threadIdx.x ^ 1] + more[threadIdx.x ^ 2];
}
"""


@pytest.fixture(scope="module")
def shell():
    interactive = pytest.importorskip(
        "IPython.core.interactiveshell", reason="IPython is not installed, so there are no cells"
    )
    shell = interactive.InteractiveShell()
    shell.run_line_magic("load_ext", "course_lib")
    return shell


def test_arguments():
    request = parse_line(
        "ring -DSTAGES=3 -D KIND=float -DFAST --threads 384 --tile=128x256 --shared STAGES*49152 "
        "--cluster 2x1 --arch sm_80 --use_fast_math -I folder --maxrregcount=64"
    )
    assert request.name == "ring"
    assert request.defines == {"STAGES": 3, "KIND": "float", "FAST": 1}
    assert (request.threads, request.tile, request.shared) == (
        "384",
        ("128", "256"),
        "STAGES*49152",
    )
    assert (request.cluster, request.arch) == ((2, 1), "sm_80")
    assert request.options == ["--use_fast_math", "-Ifolder", "--maxrregcount=64"]
    assert parse_line("--tile TILE_M,TILE_N").tile == ("TILE_M", "TILE_N")
    assert parse_line("").name is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ring --thread 256", "did you mean --threads?"),
        ("ring --threads", "needs a value"),
        ("ring rong", "one word too many"),
        ("ring -D3=4", "no name for a define"),
        ("2ring", "no name for a kernel"),
        ("ring --cluster a", "takes blocks"),
        ("ring 'open", "cannot be read"),
    ],
)
def test_wrong_arguments(line, words):
    with pytest.raises(CompileError, match=re.escape(words)):
        parse_line(line)


def test_a_cell_binds_its_kernel_and_prints_one_line(shell, capsys):
    shell.run_cell("%%cuda ring -DSTAGES=3 --threads 256 --shared STAGES*1024\n" + BODY)
    printed = capsys.readouterr().out
    assert isinstance(shell.user_ns["ring"], Kernel)
    assert re.fullmatch(
        r"ring: compiled .+ · \d+ registers · 32 KB shared \(static\) \+ 3 KB shared \(dynamic\) · "
        r"no spills · 6 blocks per SM \(limited by shared memory, sm_90\)\n",
        printed,
    )


def test_lines_count_the_magic_line_as_the_editor_does(shell, capsys):
    shell.run_cell("%%cuda ring --threads 256\n" + BODY)
    assert isinstance(shell.user_ns.get("ring"), Kernel)
    capsys.readouterr()
    result = shell.run_cell("%%cuda ring --threads 256\n" + BODY.replace("x[threadIdx.x]", "y"))
    assert isinstance(result.error_in_exec, CompileError)
    assert result.error_in_exec.diagnostics[0].line == 8
    printed = capsys.readouterr().out
    assert "Traceback" not in printed and "    8 |   more[threadIdx.x] = y;" in printed
    assert "ring" not in shell.user_ns, "a failing cell must not leave the old kernel behind"


def test_a_name_that_the_cell_does_not_have(shell):
    result = shell.run_cell("%%cuda rong --threads 256\n" + BODY)
    assert "%%cuda ring" in str(result.error_in_exec)


def test_advisories_and_warnings_are_printed(capsys):
    body = BODY.replace("__syncthreads", "float unused; unused = 1; __syncthreads")
    body = body.replace("more[thr", "__pipeline_memcpy_async(stage, x, 16); more[thr", 1)
    shell = SimpleNamespace(user_ns={})
    run_cell(shell, "ring --arch sm_75", "#include <cuda_pipeline.h>\n" + body)
    first, *rest = capsys.readouterr().out.splitlines()
    assert "with 256 threads 2 blocks per SM (limited by shared memory" in first
    assert rest[0].startswith("  advisory: line 9: __pipeline_memcpy_async became plain loads")
    assert rest[1] == '  warning in line 11: variable "unused" was set but never used'


def test_a_kernel_from_a_notebooks_text():
    kernel = kernel_from_text("%%cuda ring -DSTAGES=4 --threads 128\n" + BODY)
    assert kernel.defines == {"STAGES": 4} and kernel.threads == 128
    assert kernel.variant(STAGES=5).source == kernel.source
    with pytest.raises(ValueError, match="no %%cuda cell"):
        kernel_from_text(BODY)
