// title: two stages, copy groups, a barrier of the block for each edge
// scores: full
%%cuda row_checksums -DREUSE=1 -DSLOW=1 --threads 256
#include <cuda_pipeline.h>
#define COLUMNS 4096       // a tile is one row of the array: 16 KB
#define THREADS 256        // 8 warps
// REUSE is 1, and 0 in the experimental version: it may decide about the wait for reuse, nothing else.

// Arithmetic that leaves a word as it is. SLOW makes warp 3 late: so many times as much of it.
__device__ unsigned work(unsigned word) {
    const int turns = threadIdx.x / 32 == 3 ? 4 * SLOW : 4;
    for (int i = 0; i < turns; ++i) word = __funnelshift_l(word, word, blockDim.x);   // by 256 bits
    return word;
}

// Begin the copy of one row: four copies of 16 bytes per thread, closed as one group.
__device__ void start_load(unsigned* stage, const unsigned* row) {
    for (int i = threadIdx.x * 4; i < COLUMNS; i += THREADS * 4)
        __pipeline_memcpy_async(stage + i, row + i, 16);
    __pipeline_commit();
}

// This thread's part of the checksum of one row: word c, after its work, counts 2c + 1 times.
__device__ unsigned weighted(const unsigned* stage) {
    unsigned sum = 0;
    for (int c = threadIdx.x; c < COLUMNS; c += THREADS) sum += (2 * c + 1) * work(stage[c]);
    return sum;
}

// Add up the warp's parts, and add them to the checksum.
__device__ void add(unsigned* checksum, unsigned sum) {
    sum = __reduce_add_sync(~0u, sum);
    if (threadIdx.x % 32 == 0) atomicAdd(checksum, sum);
}

extern "C" __global__ void __launch_bounds__(THREADS)
row_checksums(const unsigned* __restrict__ x, unsigned* checksums, int tiles) {
    __shared__ __align__(16) unsigned stage[2][COLUMNS];
    x += (size_t)blockIdx.x * tiles * COLUMNS;              // this block's first row
    checksums += blockIdx.x * tiles;

    start_load(stage[0], x);                                // prologue
    for (int t = 0; t + 1 < tiles; ++t) {                   // steady state
        start_load(stage[(t + 1) % 2], x + (size_t)(t + 1) * COLUMNS);
        __pipeline_wait_prior(1);                           // t has landed ...
        __syncthreads();                                    // ... for everyone: ready
        add(&checksums[t], weighted(stage[t % 2]));
        if (REUSE) __syncthreads();                         // everyone has read t: reuse
    }
    __pipeline_wait_prior(0);                               // epilogue
    __syncthreads();
    add(&checksums[tiles - 1], weighted(stage[(tiles - 1) % 2]));
}
