// title: one bulk copy per tile, an mbarrier for each buffer
// scores: full
%%cuda two_buffers_filter --threads 256
#include <course_pipeline.cuh>
__device__ unsigned filtered(const unsigned* s, int i) {
    return 5 * s[i] + 11 * s[(i + 1) & 4095] + 3 * s[(i + 2) & 4095];
}

__device__ void begin(unsigned* to, const unsigned* from, mbarrier* full) {
    mbarrier_arrive_expect(full, 16384);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(16384), "r"(shared_address(full)) : "memory");
}

extern "C" __global__ void __launch_bounds__(256)
two_buffers_filter(const unsigned* __restrict__ x, unsigned* y, int tiles) {
    __shared__ __align__(128) unsigned buffer[2][4096];
    __shared__ mbarrier full[2];
    x += (size_t)blockIdx.x * tiles * 4096;
    y += (size_t)blockIdx.x * tiles * 4096;
    const bool producer = threadIdx.x == 0;
    if (producer) {
        mbarrier_init(&full[0], 1);
        mbarrier_init(&full[1], 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (producer) begin(buffer[0], x, &full[0]);
    for (int t = 0; t < tiles; ++t) {
        const int s = t % 2;
        if (producer && t + 1 < tiles) begin(buffer[1 - s], x + (size_t)(t + 1) * 4096, &full[1 - s]);
        mbarrier_wait(&full[s], t / 2 % 2);
        for (int i = threadIdx.x; i < 4096; i += 256) y[(size_t)t * 4096 + i] = filtered(buffer[s], i);
        __syncthreads();
    }
}
