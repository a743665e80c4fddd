// title: each thread reads what it copied itself: a wait, and no barrier at all
// problem: TileReduction.of_tiles(9, 1, tile_elements=512, threads=128)
// verdict: right
// source: own
#include <cuda_pipeline.h>

extern "C" __global__ void hermits(const unsigned* x, unsigned* out, int tiles) {
    __shared__ uint4 slot[4][128];
    const uint4* in = (const uint4*)x + blockIdx.x * tiles * 128 + threadIdx.x;
#pragma unroll
    for (int s = 0; s < 3; ++s) {
        if (s < tiles) __pipeline_memcpy_async(&slot[s][threadIdx.x], in + s * 128, 16);
        __pipeline_commit();
    }
    for (int t = 0; t < tiles; ++t) {
        if (t + 3 < tiles)
            __pipeline_memcpy_async(&slot[(t + 3) % 4][threadIdx.x], in + (t + 3) * 128, 16);
        __pipeline_commit();
        __pipeline_wait_prior(3);
        uint4 v = slot[t % 4][threadIdx.x];
        atomicAdd(&out[blockIdx.x * tiles + t], v.x + v.y + v.z + v.w);
    }
}
