// title: a place to read and a place to write that wrap by comparison, dynamic shared memory
// scores: full
%%cuda ring_polynomials -DSTAGES=3 --threads 256 --shared STAGES*4096
#include <cuda_pipeline.h>

extern "C" __global__ void __launch_bounds__(256)
ring_polynomials(const unsigned* __restrict__ x, unsigned* values, int tiles) {
    extern __shared__ uint4 ring[];
    const uint4* next = (const uint4*)x + (size_t)blockIdx.x * tiles * 256 + threadIdx.x;
    const int j = threadIdx.x / 2, half = threadIdx.x % 2;      // two threads for each polynomial
    const unsigned p = half ? 7 : 3;
    unsigned a = 0, b = 0;
    int write = 0, read = 0, asked = 0;
    auto ask = [&] {
        if (asked++ < tiles) __pipeline_memcpy_async(&ring[write * 256 + threadIdx.x], next, 16);
        __pipeline_commit();
        next += 256;
        if (++write == STAGES) write = 0;
    };
    while (asked < STAGES) ask();
    for (int left = tiles; left > 0; --left) {
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();
        const unsigned* tile = (const unsigned*)&ring[read * 256];
        for (int r = 0; r < 8; ++r) {
            a = a * p + tile[r * 128 + j];
            b = b * (p + 2) + tile[r * 128 + j];
        }
        __syncthreads();
        ask();
        if (++read == STAGES) read = 0;
    }
    values += blockIdx.x * 512 + half * 256 + j;
    values[0] = a, values[128] = b;
}
