// title: two stages, a lambda that loads, barriers on both sides of the reads
// problem: TileReduction.of_tiles(7, 2, tile_elements=512, threads=128)
// verdict: right
// source: own
#include <cuda_pipeline.h>

constexpr int TILE = 512;

extern "C" __global__ void pair(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned buffer[2][TILE];
    x += (size_t)blockIdx.x * tiles * TILE;
    out += blockIdx.x * tiles;

    auto load = [&](int tile) {
        if (tile < tiles)
            __pipeline_memcpy_async(buffer[tile & 1] + threadIdx.x * 4,
                                    x + tile * TILE + threadIdx.x * 4, 16);
        __pipeline_commit();
    };

    load(0);
    load(1);
    for (int tile = 0; tile < tiles; ++tile) {
        __pipeline_wait_prior(1);
        __syncthreads();  // ready
        unsigned sum = 0;
        for (int i = threadIdx.x / 32; i < TILE / 32; i += 4)
            sum += buffer[tile & 1][i * 32 + threadIdx.x % 32];
        for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0) atomicAdd(out + tile, sum);
        __syncthreads();  // free
        load(tile + 2);
    }
}
