// title: S - 1 loads ahead and one barrier; with one stage, two
// scores: full
%%cuda ring_polynomials -DSTAGES=4 --threads 128
#include <cuda_pipeline.h>

extern "C" __global__ void ring_polynomials(const unsigned* __restrict__ x, unsigned* values, int tiles) {
    constexpr int AHEAD = STAGES > 1 ? STAGES - 1 : 1;
    __shared__ uint4 ring[STAGES][256];
    const uint4* mine = (const uint4*)x + (size_t)blockIdx.x * tiles * 256;
    unsigned y0 = 0, y1 = 0, y2 = 0, y3 = 0;

    auto load = [&](int t) {
        if (t < tiles) {
            __pipeline_memcpy_async(&ring[t % STAGES][threadIdx.x], mine + t * 256 + threadIdx.x, 16);
            __pipeline_memcpy_async(&ring[t % STAGES][threadIdx.x + 128], mine + t * 256 + threadIdx.x + 128, 16);
        }
        __pipeline_commit();
    };
    for (int t = 0; t < AHEAD; ++t) load(t);
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(AHEAD - 1);
        __syncthreads();
        if (STAGES > 1) load(t + AHEAD);
        const unsigned* tile = (const unsigned*)ring[t % STAGES];
        for (int r = 0; r < 8; ++r) {
            const unsigned a = tile[r * 128 + threadIdx.x];
            y0 = y0 * 3 + a, y1 = y1 * 5 + a, y2 = y2 * 7 + a, y3 = y3 * 9 + a;
        }
        if (STAGES == 1) {
            __syncthreads();
            load(t + 1);
        }
    }
    values += blockIdx.x * 512 + threadIdx.x;
    values[0] = y0, values[128] = y1, values[256] = y2, values[384] = y3;
}
