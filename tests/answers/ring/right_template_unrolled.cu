// title: a template over the stages whose loop is unrolled by them, so that no index is computed
// scores: full
%%cuda ring_polynomials -DSTAGES=4 --threads 128
#include <cuda_pipeline.h>

template <int S>
struct Ring {
    uint4 stage[S][256];
    __device__ void load(int s, const uint4* from) {
        __pipeline_memcpy_async(&stage[s][threadIdx.x], from + threadIdx.x, 16);
        __pipeline_memcpy_async(&stage[s][128 + threadIdx.x], from + 128 + threadIdx.x, 16);
    }
    __device__ void consume(int s, unsigned (&y)[4]) const {
        for (int r = 0; r < 8; ++r) {
            const unsigned a = ((const unsigned*)stage[s])[r * 128 + threadIdx.x];
            for (int q = 0; q < 4; ++q) y[q] = y[q] * (2 * q + 3) + a;
        }
    }
};

template <int S>
__device__ void walk(Ring<S>& ring, const uint4* mine, int tiles, unsigned (&y)[4]) {
    #pragma unroll
    for (int s = 0; s < S; ++s) {
        if (s < tiles) ring.load(s, mine + s * 256);
        __pipeline_commit();
    }
    for (int turn = 0; turn < tiles; turn += S) {
        #pragma unroll
        for (int s = 0; s < S; ++s) {
            if (turn + s >= tiles) break;
            __pipeline_wait_prior(S - 1);
            __syncthreads();
            ring.consume(s, y);
            __syncthreads();
            if (turn + s + S < tiles) ring.load(s, mine + (turn + s + S) * 256);
            __pipeline_commit();
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
ring_polynomials(const unsigned* __restrict__ x, unsigned* values, int tiles) {
    __shared__ Ring<STAGES> ring;
    unsigned y[4] = {};
    walk(ring, (const uint4*)x + (size_t)blockIdx.x * tiles * 256, tiles, y);
    for (int q = 0; q < 4; ++q) values[(blockIdx.x * 4 + q) * 128 + threadIdx.x] = y[q];
}
