// title: asynchronous copies of 16 bytes, one group per tile
// scores: full
%%cuda one_buffer_moments --threads 256
#include <cuda_pipeline.h>
#define ROWS 32
#define COLUMNS 128
extern "C" __global__ void __launch_bounds__(256)
one_buffer_moments(const unsigned* __restrict__ x, unsigned* moments, int tiles, int columns) {
    __shared__ __align__(16) unsigned tile[ROWS * COLUMNS];
    const int column = threadIdx.x % COLUMNS, half = threadIdx.x / COLUMNS;
    const unsigned* strip = x + blockIdx.x * COLUMNS;
    unsigned m[4] = {};
    for (int t = 0; t < tiles; ++t) {
        for (int word = threadIdx.x * 4; word < ROWS * COLUMNS; word += 1024)
            __pipeline_memcpy_async(&tile[word], &strip[(size_t)(t * ROWS + word / COLUMNS) * columns + word % COLUMNS], 16);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        for (int r = half; r < ROWS; r += 2) {              // even rows, odd rows
            const unsigned row = t * ROWS + r;
            unsigned v = tile[r * COLUMNS + column];
            m[0] += v;
            m[1] += v *= row;
            m[2] += v *= row;
            m[3] += v *= row;
        }
        __syncthreads();
    }
    for (int k = 0; k < 4; ++k) atomicAdd(&moments[k * columns + blockIdx.x * COLUMNS + column], m[k]);
}
