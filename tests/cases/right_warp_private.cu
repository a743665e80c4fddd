// title: every warp has a ring of its own, guarded by __syncwarp alone
// problem: TileReduction.of_tiles(8, 1, tile_elements=128, threads=128)
// verdict: right
// source: own
#include <cuda_pipeline.h>

extern "C" __global__ void own_ring(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned stage[4][2][128];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned* in = x + blockIdx.x * tiles * 128;
    if (warp < tiles) __pipeline_memcpy_async(&stage[warp][0][lane * 4], in + warp * 128 + lane * 4, 16);
    __pipeline_commit();
    for (int t = warp, n = 0; t < tiles; t += 4, ++n) {
        if (t + 4 < tiles)
            __pipeline_memcpy_async(&stage[warp][(n + 1) % 2][lane * 4],
                                    in + (t + 4) * 128 + lane * 4, 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncwarp();  // all lanes' copies have landed
        unsigned sum = 0;
        for (int i = lane; i < 128; i += 32) sum += stage[warp][n % 2][i];
        sum = __reduce_add_sync(~0u, sum);
        if (lane == 0) out[blockIdx.x * tiles + t] = sum;
        __syncwarp();  // all lanes have read
    }
}
