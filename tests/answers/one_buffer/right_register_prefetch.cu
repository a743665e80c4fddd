// title: the next tile is loaded into registers while this one is computed; still one buffer
// scores: full
%%cuda one_buffer_moments --threads 256
#define ROWS 32
#define COLUMNS 128
extern "C" __global__ void __launch_bounds__(256)
one_buffer_moments(const unsigned* __restrict__ x, unsigned* moments, int tiles, int columns) {
    __shared__ __align__(16) unsigned tile[ROWS][COLUMNS];
    const int column = threadIdx.x % COLUMNS, half = threadIdx.x / COLUMNS, row = threadIdx.x / 32;
    const unsigned* mine = x + blockIdx.x * COLUMNS + threadIdx.x % 32 * 4;
    unsigned m[4] = {};
    uint4 next[4];
    for (int i = 0; i < 4; ++i) next[i] = *(const uint4*)&mine[(size_t)(row + 8 * i) * columns];
    for (int t = 0; t < tiles; ++t) {
        for (int i = 0; i < 4; ++i) *(uint4*)&tile[row + 8 * i][threadIdx.x % 32 * 4] = next[i];
        __syncthreads();
        if (t + 1 < tiles)
            for (int i = 0; i < 4; ++i) next[i] = *(const uint4*)&mine[(size_t)((t + 1) * ROWS + row + 8 * i) * columns];
        for (int r = half * 16; r < half * 16 + 16; ++r) {
            unsigned v = tile[r][column];
            for (int k = 0; k < 4; ++k, v *= t * ROWS + r) m[k] += v;
        }
        __syncthreads();
    }
    for (int k = 0; k < 4; ++k) atomicAdd(&moments[k * columns + blockIdx.x * COLUMNS + column], m[k]);
}
