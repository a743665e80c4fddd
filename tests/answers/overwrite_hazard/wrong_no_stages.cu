// title: every word comes straight from global memory
// scores: stages 0, experiment 0, counts 0, picture 0
// says: Only 0 of 8 tiles are seen
%%cuda row_checksums -DREUSE=1 -DSLOW=1 --threads 256
extern "C" __global__ void row_checksums(const unsigned* x, unsigned* checksums, int tiles) {
    for (int t = 0; t < tiles; ++t) {
        const int row = blockIdx.x * tiles + t;
        unsigned sum = 0;
        for (int c = threadIdx.x; c < 4096; c += 256) sum += (2 * c + 1) * x[(size_t)row * 4096 + c];
        atomicAdd(&checksums[row], sum);
        if (REUSE) __syncthreads();
    }
}
