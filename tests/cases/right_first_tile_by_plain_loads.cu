// title: the first tile comes by plain stores, the others by cp.async
// problem: TileReduction.of_tiles(4, 1, tile_elements=256, threads=64)
// verdict: right
// source: own
#include <cuda_pipeline.h>

extern "C" __global__ void mixed(const unsigned* x, unsigned* out, int tiles) {
    __shared__ uint4 stage[2][64];
    const uint4* in = (const uint4*)x + blockIdx.x * tiles * 64 + threadIdx.x;
    stage[0][threadIdx.x] = *in;
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(0);
        __syncthreads();  // tile t is there, tile t - 1 has been read
        if (t + 1 < tiles)
            __pipeline_memcpy_async(&stage[(t + 1) & 1][threadIdx.x], in + (t + 1) * 64, 16);
        __pipeline_commit();
        const uint4 v = stage[t & 1][(threadIdx.x + 17) % 64];
        atomicAdd(&out[blockIdx.x * tiles + t], v.x + v.y + v.z + v.w);
    }
}
