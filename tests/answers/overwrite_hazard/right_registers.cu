// title: plain loads; the next row waits in registers, and is stored before this one is read
// scores: full
%%cuda row_checksums -DREUSE=1 --threads 256
extern "C" __global__ void __launch_bounds__(256)
row_checksums(const unsigned* __restrict__ x, unsigned* checksums, int tiles) {
    __shared__ __align__(16) uint4 stage[2][1024];
    const uint4* mine = (const uint4*)x + (size_t)blockIdx.x * tiles * 1024 + threadIdx.x;
    uint4 next[4];
    for (int i = 0; i < 4; ++i) next[i] = mine[i * 256];
    for (int i = 0; i < 4; ++i) stage[0][i * 256 + threadIdx.x] = next[i];
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) {
            mine += 1024;
            for (int i = 0; i < 4; ++i) next[i] = mine[i * 256];
            for (int i = 0; i < 4; ++i) stage[(t + 1) & 1][i * 256 + threadIdx.x] = next[i];
        }
        __syncthreads();
        unsigned sum = 0;
        for (int i = 0; i < 4; ++i) {                       // a quarter that another warp has stored
            const int q = i * 256 + (threadIdx.x ^ 32);
            const uint4 v = stage[t & 1][q];
            const unsigned c = 8 * q + 1;
            sum += c * v.x + (c + 2) * v.y + (c + 4) * v.z + (c + 6) * v.w;
        }
        if (REUSE) __syncthreads();
        atomicAdd(&checksums[blockIdx.x * tiles + t], sum);
    }
}
