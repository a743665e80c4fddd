// title: neighbouring threads copy four bytes each, and every read takes sixteen
// problem: TileReduction.of_tiles(6, 1, tile_elements=512, threads=128)
// verdict: right
// source: own
// note: no access but the copies is as narrow as four bytes; they must not seem to share a place
#include <cuda_pipeline.h>

extern "C" __global__ void narrow(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned stage[2][512];
    const unsigned* from = x + (size_t)blockIdx.x * tiles * 512;
    for (int t = -1; t < tiles; ++t) {
        if (t + 1 < tiles) {
            for (int i = threadIdx.x; i < 512; i += 128) {
                __pipeline_memcpy_async(&stage[(t + 1) % 2][i], from + (t + 1) * 512 + i, 4);
            }
        }
        __pipeline_commit();
        if (t < 0) continue;
        __pipeline_wait_prior(1);
        __syncthreads();
        uint4 four = ((const uint4*)stage[t % 2])[threadIdx.x];
        atomicAdd(out + blockIdx.x * tiles + t, four.x + four.y + four.z + four.w);
        __syncthreads();
    }
}
