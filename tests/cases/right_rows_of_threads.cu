// title: one row of threads copies, a barrier after its wait makes the tile visible to all
// problem: TileReduction.of_tiles(4, 1, tile_elements=128, threads=128)
// verdict: right
// source: own
#include <cuda_pipeline.h>

extern "C" __global__ void rows(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned t3[2][128];
    const int row = threadIdx.x / 32, column = threadIdx.x % 32;
    x += blockIdx.x * tiles * 128;
    for (int t = 0; t < tiles; ++t) {
        if (row == 0) {
            __pipeline_memcpy_async(&t3[t & 1][column * 4], x + t * 128 + column * 4, 16);
            __pipeline_commit();
            __pipeline_wait_prior(0);  // by those who copied
        }
        __syncthreads();
        atomicAdd(&out[blockIdx.x * tiles + t], t3[t & 1][column * 4 + row]);
    }
}
