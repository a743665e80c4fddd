// title: ring of S stages, stage by modulo, one commit per tile even past the end
// problem: TileReduction.of_tiles(7, 2, tile_elements=512, threads=128)
// verdict: right
// defines: STAGES=3
// source: own
#include <cuda_pipeline.h>

constexpr int TILE = 512;

extern "C" __global__ void ring(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned stage[STAGES][TILE];
    const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
    const int e = threadIdx.x * 4;

    for (int t = 0; t < STAGES - 1; ++t) {  // prologue
        if (t < tiles) __pipeline_memcpy_async(&stage[t][e], mine + t * TILE + e, 16);
        __pipeline_commit();
    }
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();  // tile t is there for all, and all have read tile t - 1
        const int next = t + STAGES - 1;
        if (next < tiles)
            __pipeline_memcpy_async(&stage[next % STAGES][e], mine + next * TILE + e, 16);
        __pipeline_commit();
        unsigned sum = 0;
        for (int i = (threadIdx.x * 33) % TILE, n = 0; n < 4; ++n, i = (i + 128) % TILE)
            sum += stage[t % STAGES][i];
        atomicAdd(&out[blockIdx.x * tiles + t], sum);
    }
}
