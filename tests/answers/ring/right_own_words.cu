// title: every thread copies the words that it reads itself, and needs no barrier
// scores: full
%%cuda ring_polynomials -DSTAGES=5 --threads 128
#include <cuda_pipeline.h>

extern "C" __global__ void __launch_bounds__(128)
ring_polynomials(const unsigned* __restrict__ x, unsigned* values, int tiles) {
    __shared__ unsigned ring[STAGES][8][128];
    const unsigned* mine = x + (size_t)blockIdx.x * tiles * 1024 + threadIdx.x;
    unsigned y[4] = {};
    auto load = [&](int t) {
        for (int r = 0; r < 8 && t < tiles; ++r)
            __pipeline_memcpy_async(&ring[t % STAGES][r][threadIdx.x], mine + t * 1024 + r * 128, 4);
        __pipeline_commit();
    };
    for (int t = 0; t < STAGES; ++t) load(t);
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(STAGES - 1);
        for (int r = 0; r < 8; ++r)
            for (int q = 0; q < 4; ++q) y[q] = y[q] * (2 * q + 3) + ring[t % STAGES][r][threadIdx.x];
        load(t + STAGES);
    }
    for (int q = 0; q < 4; ++q) values[(blockIdx.x * 4 + q) * 128 + threadIdx.x] = y[q];
}
