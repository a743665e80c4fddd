// title: a warp of its own loads; without the wait it laps the readers, and more than the reuse edge is gone
// scores: experiment 0, counts 0
// says: do all warps both load and read?
%%cuda row_checksums -DREUSE=1 --threads 160
#include <course_pipeline.cuh>
#include <cuda_pipeline.h>
__device__ void arrive_when_copied(mbarrier* b) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}
extern "C" __global__ void __launch_bounds__(160)
row_checksums(const unsigned* __restrict__ x, unsigned* checksums, int tiles) {
    __shared__ __align__(16) unsigned stage[2][4096];
    __shared__ mbarrier full[2], empty[2];
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; ++s) {
            mbarrier_init(&full[s], 32);
            mbarrier_init(&empty[s], 128);
        }
    __syncthreads();
    x += (size_t)blockIdx.x * tiles * 4096;
    if (threadIdx.x >= 128) {
        const int lane = threadIdx.x - 128;
        for (int t = 0; t < tiles; ++t) {
            if (REUSE && t >= 2) mbarrier_wait(&empty[t % 2], (t / 2 - 1) % 2);
            for (int c = lane * 4; c < 4096; c += 128) __pipeline_memcpy_async(&stage[t % 2][c], x + (size_t)t * 4096 + c, 16);
            arrive_when_copied(&full[t % 2]);
        }
        return;
    }
    for (int t = 0; t < tiles; ++t) {
        mbarrier_wait(&full[t % 2], t / 2 % 2);
        unsigned sum = 0;
        for (int c = threadIdx.x; c < 4096; c += 128) sum += (2 * c + 1) * stage[t % 2][c];
        mbarrier_arrive(&empty[t % 2]);
        atomicAdd(&checksums[blockIdx.x * tiles + t], sum);
    }
}
