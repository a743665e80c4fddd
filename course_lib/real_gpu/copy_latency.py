"""The copy latency of this GPU: the unit in which the delays of a stress run are counted."""

from __future__ import annotations

from functools import cache

import numpy as np

from course_lib.real_gpu import device

SOURCE = r"""
#include <cuda_pipeline.h>
extern "C" __global__ void __launch_bounds__(256) copy_latency(const uint4* x, unsigned* cycles) {
    __shared__ uint4 tile[1024];
    const uint4* mine = x + (size_t)blockIdx.x * 2048;
    unsigned took = 0;
    #pragma unroll 1
    for (int round = 0; round < 2; ++round) {  // the first finds the code and the page
        __syncthreads();
        const unsigned begin = clock();
        for (int i = threadIdx.x; i < 1024; i += 256)
            __pipeline_memcpy_async(&tile[i], &mine[round * 1024 + i], 16);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        took = clock() - begin;
    }
    if (threadIdx.x % 32 == 0) cycles[blockIdx.x * 8 + threadIdx.x / 32] = took;
}
"""
WORDS = "measured just before: 16 KB per SM that no cache holds, all SMs at once, median over warps"


@cache
def measure(arch: str) -> float:
    """Cycles from the first copy of a 16 KB tile until the warp's own copies have landed.

    Every SM loads two tiles that no cache holds, one after the other, and the second counts: by
    then the code and the address of the page are at hand, as they are in a pipeline's steady state.
    The median over all warps. ``arch`` is the one to compile for, such as ``sm_90``. Kept for as
    long as the process lives.
    """
    import cupy

    from course_lib.kernel import compile_kernel

    kernel = device.load_kernel(compile_kernel(SOURCE, "copy_latency", threads=256, arch=arch))
    sms = device.properties()["sms"]
    x = cupy.zeros(sms * 2 * 16384, cupy.uint8)
    cycles = cupy.zeros((sms, 8), cupy.uint32)
    for _ in range(2):  # the first launch loads the code itself
        device.flush_l2()
        kernel.launch(sms, [x, cycles])
    return float(np.median(cupy.asnumpy(cycles)))
