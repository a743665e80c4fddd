"""Assembling: resources from ptxas's log, advisories, and the occupancy that follows."""

from __future__ import annotations

import pytest

from course_lib import compile_kernel, ptxas
from course_lib.diagnostics import CompileError
from course_lib.gpu_limits import limits_of, occupancy
from course_lib.nvrtc import compile_ptx

SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spill(float *x) {
  float a[100];
  for (int i = 0; i < 100; i++) a[i] = x[i];
  __syncthreads();
  for (int i = 0; i < 100; i++) x[100 - i] = a[i];
}
"""

TWO = """
extern "C" __global__ void one(float *x) { __shared__ float s[64]; s[threadIdx.x] = x[0];
  __syncthreads(); x[1] = s[threadIdx.x ^ 1]; }
extern "C" __global__ void two(float *x) { x[0] = 2; }
"""


def test_resources_of_each_kernel():
    made = ptxas.assemble(compile_ptx(TWO), "sm_90a")
    assert made.cubin[:4] == b"\x7fELF"
    assert made.kernels["one"].shared_bytes == 256
    assert made.kernels["two"].shared_bytes == 0
    assert 0 < made.kernels["two"].registers <= made.kernels["one"].registers
    assert made.kernels["one"].barriers == 1


def test_spills_are_seen():
    resources = compile_kernel(SPILLING, arch="sm_80").resources
    assert resources.registers == 32
    assert resources.spill_bytes > 100 and resources.local_bytes >= resources.spill_bytes


def test_broken_ptx_is_an_error_with_the_ptx():
    ptx = compile_ptx(TWO).replace("st.global.u32", "st.globule.u32")
    with pytest.raises(CompileError) as caught:
        ptxas.assemble(ptx, "sm_90a")
    assert "globule" in str(caught.value) and caught.value.diagnostics[0].line == 4


def test_newer_ptx_than_ptxas_takes():
    import re

    ptx = re.sub(r"\.version \d+\.\d+", ".version 99.9", compile_ptx(TWO))
    with pytest.raises(CompileError, match="NVRTC is newer than ptxas"):
        ptxas.assemble(ptx, "sm_90a")


def test_without_ptxas_kernels_still_compile(monkeypatch, tmp_path):
    from course_lib.cuda_magic import summary

    monkeypatch.setenv("COURSE_LIB_CACHE", str(tmp_path))
    monkeypatch.setattr(ptxas, "find", lambda: None)
    kernel = compile_kernel('extern "C" __global__ void lonely(float *x) { x[0] = 31; }')
    assert "no ptxas here" in summary(kernel, 1.0)
    with pytest.raises(ptxas.NoAssembler, match="nvidia-cuda-nvcc"):
        _ = kernel.resources


ADVISORY = """ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored
ptxas info    : (C7510) wgmma.mma_async instructions are serialized in the function 'gemm'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 16 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compiling entry function 'plain' for 'sm_90a'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers
"""


def test_advisories_go_to_the_kernel_that_they_name():
    kernels = ptxas.read_log(ADVISORY)
    assert [note[:7] for note in kernels["gemm"].advisories] == ["(C7504)", "(C7510)"]
    assert [note[:7] for note in kernels["plain"].advisories] == ["(C7504)"]
    found = kernels["gemm"]
    assert (found.registers, found.spill_bytes, found.local_bytes) == (168, 12, 16)
    assert found.shared_bytes == 1024


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "why"),
    [
        (256, 40, 32 * 1024, 6, "shared memory"),
        (256, 32, 0, 8, "threads"),
        (256, 64, 0, 4, "registers"),
        (384, 168, 0, 1, "registers"),
        (32, 16, 0, 32, "the SM's block slots"),
        (128, 32, 227 * 1024, 1, "shared memory"),
        (128, 32, 228 * 1024, 0, "shared memory"),
        (1024, 65, 0, 0, "registers"),
    ],
)
def test_occupancy_on_hopper(threads, registers, shared, blocks, why):
    found = occupancy("sm_90a", threads, registers, shared, 0)
    assert (found.blocks, found.limited_by) == (blocks, why)


def test_limits_differ_by_architecture():
    kb = [limits_of(arch).shared_per_block // 1024 for arch in ("sm_75", "sm_80", "sm_86", "sm_90")]
    assert kb == [64, 163, 99, 227]
    assert limits_of("sm_121").shared_per_block == 99 * 1024
    with pytest.raises(ValueError, match="no GPU architecture"):
        limits_of("hopper")
