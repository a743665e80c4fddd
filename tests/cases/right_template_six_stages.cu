// title: six stages, template over stage count, a counter that wraps, fewer tiles than stages
// problem: TileReduction.of_tiles(4, 1, tile_elements=256, threads=64)
// verdict: right
// kernel: deep
// source: own
#include <cuda_pipeline.h>

template <int STAGES, int TILE>
__device__ void ring(const unsigned* in, unsigned* out, int tiles) {
    static_assert(STAGES >= 2, "a ring has two stages at least");
    __shared__ __align__(16) unsigned stage[STAGES * TILE];
    int filled = 0;
    auto fetch = [&](int into) {
        if (filled < tiles)
            __pipeline_memcpy_async(stage + into * TILE + threadIdx.x * 4,
                                    in + filled * TILE + threadIdx.x * 4, 16);
        ++filled;
        __pipeline_commit();
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) fetch(s);
    int read = 0, write = STAGES - 1;
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        fetch(write);
        const unsigned* tile = stage + read * TILE;
        unsigned sum = 0;
        for (int i = threadIdx.x; i < TILE; i += 64) sum += tile[i];
        atomicAdd(out + t, sum);
        if (++read == STAGES) read = 0;
        if (++write == STAGES) write = 0;  // wrap
    }
}

extern "C" __global__ void deep(const unsigned* x, unsigned* out, int tiles) {
    ring<6, 256>(x + blockIdx.x * tiles * 256, out + blockIdx.x * tiles, tiles);
}
