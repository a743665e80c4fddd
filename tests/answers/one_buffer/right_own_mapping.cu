// title: dynamic shared memory, word by word; sums of the two halves meet in shared memory
// scores: full
%%cuda one_buffer_moments --threads 256 --shared 16384
extern __shared__ unsigned tile[];

extern "C" __global__ void one_buffer_moments(const unsigned* x, unsigned* moments, int tiles, int columns) {
    __shared__ unsigned total[4][128];
    const unsigned lane = threadIdx.x & 127, upper = threadIdx.x >> 7;
    unsigned a = 0, b = 0, c = 0, d = 0;
    for (int t = 0; t < tiles; t++) {
        #pragma unroll 4
        for (int r = upper; r < 32; r += 2)
            tile[r * 128 + lane] = x[((size_t)t * 32 + r) * columns + blockIdx.x * 128 + lane];
        __syncthreads();
        for (int r = 16 * upper; r < 16 * upper + 16; r++) {
            const unsigned v = tile[r * 128 + lane], n = t * 32 + r;
            a += v; b += n * v; c += n * n * v; d += n * n * n * v;
        }
        __syncthreads();
    }
    if (upper) { total[0][lane] = a; total[1][lane] = b; total[2][lane] = c; total[3][lane] = d; }
    __syncthreads();
    if (upper) return;
    unsigned* to = moments + blockIdx.x * 128 + lane;
    to[0] = a + total[0][lane];
    to[columns] = b + total[1][lane];
    to[2 * columns] = c + total[2][lane];
    to[3 * columns] = d + total[3][lane];
}
