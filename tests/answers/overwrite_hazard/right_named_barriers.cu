// title: a named barrier for each edge of each stage
// scores: full
%%cuda row_checksums -DREUSE=1 --threads 256
#include <cuda_pipeline.h>
__device__ void meet(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }

extern "C" __global__ void __launch_bounds__(256)
row_checksums(const unsigned* __restrict__ x, unsigned* checksums, int tiles) {
    __shared__ __align__(16) unsigned stage[2][4096];
    const unsigned* mine = x + (size_t)blockIdx.x * tiles * 4096;
    const int first = threadIdx.x * 4;
    for (int c = first; c < 4096; c += 1024) __pipeline_memcpy_async(&stage[0][c], &mine[c], 16);
    __pipeline_commit();
    for (int t = 0; t < tiles; ++t) {
        const int s = t & 1;
        if (t + 1 < tiles) {
            for (int c = first; c < 4096; c += 1024)
                __pipeline_memcpy_async(&stage[1 - s][c], &mine[(size_t)(t + 1) * 4096 + c], 16);
            __pipeline_commit();
            __pipeline_wait_prior(1);
        } else
            __pipeline_wait_prior(0);
        meet(1 + s);                                        // ready
        unsigned sum = 0;
        for (int i = 0; i < 16; ++i) {
            const int c = i * 256 + threadIdx.x;
            sum += stage[s][c] * (c + c + 1);
        }
        sum = __reduce_add_sync(~0u, sum);
        if (threadIdx.x % 32 == 0) atomicAdd(&checksums[blockIdx.x * tiles + t], sum);
        if (REUSE) meet(3 + s);                             // reuse
    }
}
