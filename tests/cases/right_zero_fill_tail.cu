// title: the last copies of a tile are cut short and filled with zeros
// problem: TileReduction.of_tiles(5, 1, tile_elements=250, threads=64)
// verdict: right
// source: own
// note: 250 words are no multiple of a 16-byte copy, so the copies are 8 bytes wide
#include <cuda_pipeline.h>

extern "C" __global__ void tail(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned stage[3][256];
    x += blockIdx.x * tiles * 250;
    auto load = [&](int t) {
        if (t < tiles)
            for (int e = threadIdx.x * 2; e < 256; e += 128) {
                const int missing = e + 2 <= 250 ? 0 : 8;
                __pipeline_memcpy_async(&stage[t % 3][e], missing ? x : x + t * 250 + e, 8, missing);
            }
        __pipeline_commit();
    };
    load(0);
    load(1);
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(1);
        __syncthreads();
        load(t + 2);
        unsigned sum = 0;
        for (int q = 0; q < 4; ++q) sum += stage[t % 3][q * 64 + (threadIdx.x ^ 63)];
        atomicAdd(&out[blockIdx.x * tiles + t], sum);
    }
}
