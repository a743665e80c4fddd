// title: prologue of one tile, steady state, epilogue; copy groups
// scores: full
%%cuda two_buffers_filter --threads 256
#include <cuda_pipeline.h>
#define SAMPLES 4096       // a tile: one closed signal, 16 KB
#define THREADS 256
#define TAPS 3

constexpr unsigned weight[TAPS] = {5, 11, 3};

// Begin the copy of one tile: four copies of 16 bytes per thread, closed as one group.
__device__ void start_load(unsigned* buffer, const unsigned* from) {
    for (int i = threadIdx.x * 4; i < SAMPLES; i += THREADS * 4)
        __pipeline_memcpy_async(buffer + i, from + i, 16);
    __pipeline_commit();
}

// Compute: filter one tile around its ring.
__device__ void filter(const unsigned* buffer, unsigned* y) {
    for (int i = threadIdx.x; i < SAMPLES; i += THREADS) {
        unsigned sum = 0;
        #pragma unroll
        for (int k = 0; k < TAPS; ++k) sum += weight[k] * buffer[(i + k) % SAMPLES];
        y[i] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
two_buffers_filter(const unsigned* __restrict__ x, unsigned* y, int tiles) {
    __shared__ __align__(16) unsigned buffer[2][SAMPLES];
    x += (size_t)blockIdx.x * tiles * SAMPLES;              // this block's first tile
    y += (size_t)blockIdx.x * tiles * SAMPLES;

    start_load(buffer[0], x);                               // prologue
    for (int t = 0; t + 1 < tiles; ++t) {                   // steady state
        start_load(buffer[(t + 1) % 2], x + (size_t)(t + 1) * SAMPLES);
        __pipeline_wait_prior(1);                           // t has landed; t + 1 need not have
        __syncthreads();
        filter(buffer[t % 2], y + (size_t)t * SAMPLES);
        __syncthreads();                                    // everyone has read t
    }
    __pipeline_wait_prior(0);                               // epilogue
    __syncthreads();
    filter(buffer[(tiles - 1) % 2], y + (size_t)(tiles - 1) * SAMPLES);
}
