// title: 32 bulk copies per tile, one per row, and an mbarrier whose phase is the wait
// scores: full
%%cuda one_buffer_moments --threads 256
#include <course_pipeline.cuh>
#define ROWS 32
#define COLUMNS 128
__device__ void copy_row(void* to, const void* from, mbarrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(COLUMNS * 4), "r"(shared_address(barrier)) : "memory");
}

extern "C" __global__ void __launch_bounds__(256)
one_buffer_moments(const unsigned* __restrict__ x, unsigned* moments, int tiles, int columns) {
    __shared__ __align__(128) unsigned tile[ROWS][COLUMNS];
    __shared__ mbarrier full;
    const int column = threadIdx.x % COLUMNS, half = threadIdx.x / COLUMNS;
    unsigned m[4] = {};
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    for (int t = 0; t < tiles; ++t) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect(&full, ROWS * COLUMNS * 4);
            for (int r = 0; r < ROWS; ++r)
                copy_row(tile[r], x + (size_t)(t * ROWS + r) * columns + blockIdx.x * COLUMNS, &full);
        }
        mbarrier_wait(&full, t & 1);
        for (int r = half; r < ROWS; r += 2) {
            unsigned v = tile[r][column];
            for (int k = 0; k < 4; ++k, v *= t * ROWS + r) m[k] += v;
        }
        __syncthreads();
    }
    for (int k = 0; k < 4; ++k) atomicAdd(&moments[k * columns + blockIdx.x * COLUMNS + column], m[k]);
}
