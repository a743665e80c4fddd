// title: no empty commits: the wait's count shrinks as the tiles run out
// problem: TileReduction.of_tiles(6, 1, tile_elements=256, threads=64)
// verdict: right
// source: own
#include <cuda_pipeline.h>

extern "C" __global__ void shrink(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) uint4 stage[4][64];
    const uint4* in = (const uint4*)x + blockIdx.x * tiles * 64 + threadIdx.x;
    int issued = 0;
    while (issued < 3 && issued < tiles) {
        __pipeline_memcpy_async(&stage[issued][threadIdx.x], in + issued * 64, 16);
        __pipeline_commit();
        ++issued;
    }
    for (int t = 0; t < tiles; ++t) {
        switch (issued - t) {  // tiles in flight, this one included
            case 3: __pipeline_wait_prior(2); break;
            case 2: __pipeline_wait_prior(1); break;
            default: __pipeline_wait_prior(0);
        }
        __syncthreads();
        if (issued < tiles) {
            __pipeline_memcpy_async(&stage[issued & 3][threadIdx.x], in + issued * 64, 16);
            __pipeline_commit();
            ++issued;
        }
        const uint4 v = stage[t & 3][63 - threadIdx.x];
        atomicAdd(&out[blockIdx.x * tiles + t], v.x + v.y + v.z + v.w);
    }
}
