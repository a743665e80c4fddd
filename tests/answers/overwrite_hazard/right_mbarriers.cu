// title: full and empty mbarriers for each stage; the producer's wait for empty is the wait for reuse
// scores: full
%%cuda row_checksums -DREUSE=1 -DSLOW=1 --threads 256
#include <course_pipeline.cuh>
#include <cuda_pipeline.h>
__device__ void arrive_when_copied(mbarrier* b) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}

extern "C" __global__ void __launch_bounds__(256)
row_checksums(const unsigned* __restrict__ x, unsigned* checksums, int tiles) {
    __shared__ __align__(16) unsigned stage[2][4096];
    __shared__ mbarrier full[2], empty[2];
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; ++s) {
            mbarrier_init(&full[s], 256);
            mbarrier_init(&empty[s], 256);
        }
    __syncthreads();
    for (int t = 0, begun = 0; t < tiles; ++t) {
        for (; begun < tiles && begun < t + 2; ++begun) {
            const int s = begun % 2;
#if REUSE
            if (begun >= 2) mbarrier_wait(&empty[s], (begun / 2 - 1) % 2);
#endif
            const unsigned* row = x + ((size_t)blockIdx.x * tiles + begun) * 4096;
            for (int c = threadIdx.x * 4; c < 4096; c += 1024) __pipeline_memcpy_async(&stage[s][c], row + c, 16);
            arrive_when_copied(&full[s]);
        }
        mbarrier_wait(&full[t % 2], t / 2 % 2);
        unsigned sum = 0;
        for (int c = threadIdx.x; c < 4096; c += 256) sum += (2 * c + 1) * stage[t % 2][c];
        mbarrier_arrive(&empty[t % 2]);
        atomicAdd(&checksums[blockIdx.x * tiles + t], sum);
    }
}
