"""Real programs of libcu++ and cooperative groups run unmodified, with right results."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from course_lib.kernel import Kernel, compile_kernel
from course_lib.virtual_gpu.launch import launch
from tests.async_device import POLICIES

TILES = 5
X = np.random.default_rng(1).integers(0, 1 << 20, TILES * 256).astype(np.uint32)
SUMS = X.reshape(TILES, 256).sum(1, dtype=np.uint32)

BARRIER = r"""
#include <cuda/barrier>
using barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" __global__ void k(const unsigned* x, unsigned* out, int tiles) {
    __shared__ alignas(16) unsigned tile[2][256];
    __shared__ barrier bar[2];
    if (threadIdx.x == 0) { init(&bar[0], blockDim.x); init(&bar[1], blockDim.x); }
    __syncthreads();
    auto load = [&](int t) {
        cuda::memcpy_async(&tile[t % 2][threadIdx.x * 4], x + t * 256 + threadIdx.x * 4,
                           cuda::aligned_size_t<16>(16), bar[t % 2]);
    };
    load(0);
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) load(t + 1);
        bar[t % 2].arrive_and_wait();
        unsigned sum = 0;
        for (int i = 0; i < 4; ++i) sum += tile[t % 2][(threadIdx.x * 4 + i + 37) % 256];
        atomicAdd(&out[t], sum);
        __syncthreads();
    }
}
"""
PIPELINE = r"""
#include <cooperative_groups.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const unsigned* x, unsigned* out, int tiles) {
    __shared__ alignas(16) unsigned tile[2][256];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
#if ROLES
    auto role = block.thread_rank() < 32 ? cuda::pipeline_role::producer
                                         : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(block, &state, role);
    if (role == cuda::pipeline_role::producer) {
        for (int t = 0; t < tiles; ++t) {
            pipe.producer_acquire();
            for (int h = 0; h < 2; ++h) {
                const int e = (threadIdx.x + h * 32) * 4;
                cuda::memcpy_async(&tile[t % 2][e], x + t * 256 + e,
                                   cuda::aligned_size_t<16>(16), pipe);
            }
            pipe.producer_commit();
        }
    } else {
        for (int t = 0; t < tiles; ++t) {
            pipe.consumer_wait();
            unsigned sum = 0;
            for (int i = threadIdx.x - 32; i < 256; i += blockDim.x - 32) sum += tile[t % 2][i];
            atomicAdd(&out[t], sum);
            pipe.consumer_release();
        }
    }
#else
    auto pipe = cuda::make_pipeline(block, &state);
    auto load = [&](int t) {
        pipe.producer_acquire();
        if (t < tiles)
            cuda::memcpy_async(block, tile[t % 2], x + t * 256, cuda::aligned_size_t<16>(1024),
                               pipe);
        pipe.producer_commit();
    };
    load(0);
    for (int t = 0; t < tiles; ++t) {
        load(t + 1);
        pipe.consumer_wait();
        unsigned sum = 0;
        for (int i = threadIdx.x; i < 256; i += blockDim.x) sum += tile[t % 2][i];
        atomicAdd(&out[t], sum);
        pipe.consumer_release();
    }
#endif
}
"""
GROUPS = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const unsigned* x, unsigned* out, int tiles) {
    __shared__ alignas(16) unsigned tile[256];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    for (int t = 0; t < tiles; ++t) {
        cg::memcpy_async(block, tile, x + t * 256, 1024);
        cg::wait(block);
        unsigned sum = 0;
        for (int i = block.thread_rank(); i < 256; i += block.size()) sum += tile[i];
        sum = cg::reduce(warp, sum, cg::plus<unsigned>());
        if (warp.thread_rank() == 0) atomicAdd(&out[t], sum);
        if (threadIdx.x % 3 == 0) {
            auto active = cg::coalesced_threads();
            if (active.thread_rank() == 0) atomicAdd(&out[32], active.size());
        }
        block.sync();
    }
}
"""


@cache
def built(source: str) -> Kernel:
    return compile_kernel(source, "k", threads=64, arch="sm_90")


PROGRAMS = {
    "barrier": BARRIER,
    "pipeline": PIPELINE.replace("#if ROLES", "#if 0"),
    "roles": PIPELINE.replace("#if ROLES", "#if 1"),
    "groups": GROUPS,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_librarys_own_pipelines_run_unmodified(name):
    for policy in POLICIES:
        out = np.zeros(64, np.uint32)
        result = launch(built(PROGRAMS[name]), 1, [X, out, TILES], **policy)
        assert result.ok, result
        np.testing.assert_array_equal(out[:TILES], SUMS)
        if name == "groups":
            assert out[32] == TILES * sum(n % 3 == 0 for n in range(64))
