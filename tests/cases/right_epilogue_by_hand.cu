// title: steady state and epilogue are separate loops, as long as the tiles are
// problem: TileReduction.of_tiles(5, 1, tile_elements=128, threads=32)
// verdict: right
// source: lesson
#include <cuda_pipeline.h>
#define S 3

extern "C" __global__ void drain(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned stage[S][128];
    x += blockIdx.x * tiles * 128;
    out += blockIdx.x * tiles;
    const int lane = threadIdx.x, ahead = min(S, tiles);
    for (int t = 0; t < ahead; ++t) {
        __pipeline_memcpy_async(&stage[t][lane * 4], x + t * 128 + lane * 4, 16);
        __pipeline_commit();
    }
    int t = 0;
    for (; t + S < tiles; ++t) {  // steady state
        __pipeline_wait_prior(S - 1);
        __syncwarp();
        const unsigned* tile = stage[t % S];
        atomicAdd(&out[t], tile[lane] + tile[lane + 32] + tile[lane + 64] + tile[lane + 96]);
        __syncwarp();
        __pipeline_memcpy_async(&stage[t % S][lane * 4], x + (t + S) * 128 + lane * 4, 16);
        __pipeline_commit();
    }
    __pipeline_wait_prior(0);  // drain
    __syncwarp();
    for (; t < tiles; ++t) {  // epilogue
        const unsigned* tile = stage[t % S];
        atomicAdd(&out[t], tile[lane] + tile[lane + 32] + tile[lane + 64] + tile[lane + 96]);
    }
}
