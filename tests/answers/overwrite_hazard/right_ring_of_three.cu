// title: a ring of three that is filled first and refilled after each read; empty groups keep the count
// scores: full
// literals: read_tile = 4; loaded_tile = 7; stage = 1
%%cuda row_checksums -DREUSE=1 -DSLOW=1 -DSTAGES=3 --threads 128 --shared STAGES*16384
#include <cuda_pipeline.h>
extern __shared__ __align__(16) unsigned ring[];

extern "C" __global__ void row_checksums(const unsigned* x, unsigned* checksums, int tiles) {
    const unsigned* mine = x + (size_t)blockIdx.x * tiles * 4096;
    auto load = [&](int t) {
        if (t < tiles)
            for (int c = threadIdx.x * 4; c < 4096; c += blockDim.x * 4)
                __pipeline_memcpy_async(ring + t % STAGES * 4096 + c, mine + (size_t)t * 4096 + c, 16);
        __pipeline_commit();
    };
    for (int t = 0; t < STAGES; ++t) load(t);
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();
        const unsigned* row = ring + t % STAGES * 4096;
        unsigned sum = 0;
        for (int c = threadIdx.x; c < 4096; c += blockDim.x) sum += (2 * c + 1) * row[c];
        for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0) atomicAdd(&checksums[blockIdx.x * tiles + t], sum);
#if REUSE == 1
        __syncthreads();
#endif
        load(t + STAGES);
    }
}
