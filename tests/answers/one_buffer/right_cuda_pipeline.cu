// title: cuda::pipeline of one thread, a barrier of the block for the others
// scores: full
%%cuda one_buffer_moments --threads 256
#include <cuda/pipeline>
#define ROWS 32
#define COLUMNS 128
extern "C" __global__ void __launch_bounds__(256)
one_buffer_moments(const unsigned* __restrict__ x, unsigned* moments, int tiles, int columns) {
    __shared__ __align__(16) unsigned tile[ROWS][COLUMNS];
    auto pipe = cuda::make_pipeline();
    const int column = threadIdx.x % COLUMNS, half = threadIdx.x / COLUMNS;
    const int row = threadIdx.x / 32, first = threadIdx.x % 32 * 4;
    unsigned m0 = 0, m1 = 0, m2 = 0, m3 = 0;
    for (int t = 0; t < tiles; ++t) {
        const unsigned* from = x + (size_t)t * ROWS * columns + blockIdx.x * COLUMNS;
        pipe.producer_acquire();
        for (int r = row; r < ROWS; r += 8)
            cuda::memcpy_async(&tile[r][first], from + (size_t)r * columns + first, cuda::aligned_size_t<16>(16), pipe);
        pipe.producer_commit();
        pipe.consumer_wait();
        __syncthreads();
        for (int r = half * 16; r < half * 16 + 16; ++r) {
            const unsigned v = tile[r][column], n = t * ROWS + r;
            m0 += v; m1 += n * v; m2 += n * n * v; m3 += n * n * n * v;
        }
        pipe.consumer_release();
        __syncthreads();
    }
    unsigned* to = moments + blockIdx.x * COLUMNS + column;
    atomicAdd(to, m0); atomicAdd(to + columns, m1); atomicAdd(to + 2 * columns, m2); atomicAdd(to + 3 * columns, m3);
}
