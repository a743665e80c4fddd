// title: the loop is unrolled by hand over two named buffers, with an odd tail
// problem: TileReduction.of_tiles(7, 1, tile_elements=256, threads=64)
// verdict: right
// source: own
#include <cuda_pipeline.h>

__device__ void start(unsigned* to, const unsigned* from) {
    __pipeline_memcpy_async(to + threadIdx.x * 4, from + threadIdx.x * 4, 16);
}
__device__ unsigned total(const unsigned* tile) {
    return tile[threadIdx.x] + tile[threadIdx.x + 64] + tile[threadIdx.x + 128] +
           tile[threadIdx.x + 192];
}

extern "C" __global__ void unrolled(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned even[256], odd[256];
    x += blockIdx.x * tiles * 256;
    out += blockIdx.x * tiles;
    start(even, x);
    __pipeline_commit();
    int t = 0;
    for (; t + 1 < tiles; t += 2) {
        start(odd, x + (t + 1) * 256);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        atomicAdd(&out[t], total(even));
        __syncthreads();  // even is free
        if (t + 2 < tiles) start(even, x + (t + 2) * 256);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        atomicAdd(&out[t + 1], total(odd));
        __syncthreads();  // odd is free
    }
    if (t < tiles) {
        __pipeline_wait_prior(0);  // the odd tile
        __syncthreads();
        atomicAdd(&out[t], total(even));
    }
}
