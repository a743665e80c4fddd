// title: one buffer is filled and read in turn
// scores: stages 0, picture 0
// says: All tiles go through one buffer
%%cuda row_checksums -DREUSE=1 -DSLOW=1 --threads 256
extern "C" __global__ void __launch_bounds__(256)
row_checksums(const unsigned* __restrict__ x, unsigned* checksums, int tiles) {
    __shared__ unsigned row[4096];
    for (int t = 0; t < tiles; ++t) {
        const int r = blockIdx.x * tiles + t;
        for (int c = threadIdx.x; c < 4096; c += 256) row[c] = x[(size_t)r * 4096 + c];
        __syncthreads();
        unsigned sum = 0;
        for (int c = 16 * threadIdx.x; c < 16 * threadIdx.x + 16; ++c) sum += (2 * c + 1) * row[c];
        atomicAdd(&checksums[r], sum);
        if (REUSE) __syncthreads();
    }
}
