// title: a producer warp with bulk copies, full and empty mbarriers
// scores: full
%%cuda ring_polynomials -DSTAGES=4 --threads 160
#include <course_pipeline.cuh>
#define TILE_BYTES 4096

__device__ void copy(unsigned* to, const unsigned* from, mbarrier* full) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(TILE_BYTES), "r"(shared_address(full)) : "memory");
}

extern "C" __global__ void __launch_bounds__(160)
ring_polynomials(const unsigned* __restrict__ x, unsigned* values, int tiles) {
    __shared__ __align__(128) unsigned ring[STAGES][1024];
    __shared__ mbarrier full[STAGES], empty[STAGES];
    x += (size_t)blockIdx.x * tiles * 1024;
    if (threadIdx.x == 128) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], 128);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128)
            for (int t = 0; t < tiles; ++t) {
                const int s = t % STAGES, turn = t / STAGES;
                if (turn > 0) mbarrier_wait(&empty[s], (turn - 1) & 1);
                mbarrier_arrive_expect(&full[s], TILE_BYTES);
                copy(ring[s], x + (size_t)t * 1024, &full[s]);
            }
        return;
    }
    unsigned y[4] = {};
    for (int t = 0; t < tiles; ++t) {
        const int s = t % STAGES;
        mbarrier_wait(&full[s], t / STAGES & 1);
        for (int r = 0; r < 8; ++r)
            for (int q = 0; q < 4; ++q) y[q] = y[q] * (2 * q + 3) + ring[s][r * 128 + threadIdx.x];
        mbarrier_arrive(&empty[s]);
    }
    for (int q = 0; q < 4; ++q) values[(blockIdx.x * 4 + q) * 128 + threadIdx.x] = y[q];
}
