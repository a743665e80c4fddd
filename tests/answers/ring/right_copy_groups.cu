// title: S loads ahead, copy groups counted, both barriers in the loop
// scores: full
%%cuda ring_polynomials -DSTAGES=3 --threads 128
#include <cuda_pipeline.h>
#define TILE 1024
#define THREADS 128

__device__ void load(unsigned* to, const unsigned* from) {
    for (int i = 0; i < TILE / THREADS / 4; ++i) {
        const int e = (i * THREADS + threadIdx.x) * 4;
        __pipeline_memcpy_async(to + e, from + e, 16);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
ring_polynomials(const unsigned* __restrict__ x, unsigned* values, int tiles) {
    __shared__ __align__(16) unsigned ring[STAGES][TILE];
    const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
    unsigned y[4] = {};

    for (int t = 0; t < STAGES; ++t) {
        if (t < tiles) load(ring[t], mine + t * TILE);
        __pipeline_commit();
    }
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();
        for (int r = 0; r < 8; ++r) {
            const unsigned a = ring[t % STAGES][r * 128 + threadIdx.x];
            for (int i = 0; i < 4; ++i) y[i] = y[i] * (2 * i + 3) + a;
        }
        __syncthreads();
        if (t + STAGES < tiles) load(ring[t % STAGES], mine + (t + STAGES) * TILE);
        __pipeline_commit();
    }
    for (int i = 0; i < 4; ++i) values[(blockIdx.x * 4 + i) * 128 + threadIdx.x] = y[i];
}
