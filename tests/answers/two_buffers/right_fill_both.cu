// title: both buffers are filled first, and each again as soon as it has been read; empty groups keep the count
// scores: full
%%cuda two_buffers_filter --threads 256
#include <cuda_pipeline.h>
__device__ unsigned filtered(const unsigned* s, int i) {
    return 5 * s[i] + 11 * s[(i + 1) & 4095] + 3 * s[(i + 2) & 4095];
}

extern "C" __global__ void __launch_bounds__(256)
two_buffers_filter(const unsigned* __restrict__ x, unsigned* y, int tiles) {
    __shared__ __align__(16) unsigned buffer[2][4096];
    const size_t first = (size_t)blockIdx.x * tiles * 4096;
    auto begin = [&](int t) {
        if (t < tiles)
            for (int i = 0; i < 4; ++i) {
                const int e = (i * 256 + threadIdx.x) * 4;
                __pipeline_memcpy_async(&buffer[t & 1][e], &x[first + (size_t)t * 4096 + e], 16);
            }
        __pipeline_commit();
    };
    begin(0);
    begin(1);
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(1);
        __syncthreads();
        for (int i = threadIdx.x; i < 4096; i += 256) y[first + (size_t)t * 4096 + i] = filtered(buffer[t & 1], i);
        __syncthreads();
        begin(t + 2);
    }
}
