// title: the kernel has another name
// scores: runs 0, results 0, buffer 0, edges 0
// says: does not compile
%%cuda moments_of_columns --threads 256
#define ROWS 32            // a tile is 32 rows of 128 columns: 16 KB
#define COLUMNS 128
#define THREADS 256        // two threads per column, 16 rows each

extern "C" __global__ void __launch_bounds__(THREADS)
moments_of_columns(const unsigned* __restrict__ x, unsigned* moments, int tiles, int columns) {
    __shared__ __align__(16) unsigned tile[ROWS][COLUMNS];
    const int column = threadIdx.x % COLUMNS, half = threadIdx.x / COLUMNS;
    const unsigned* strip = x + blockIdx.x * COLUMNS;       // this block's columns
    unsigned m[4] = {};                                     // this thread's part of the moments

    for (int t = 0; t < tiles; ++t) {
        uint4 part[4];
        for (int i = 0; i < 4; ++i) {                       // load: 4 words at a time
            const int word = (i * THREADS + threadIdx.x) * 4;
            part[i] = *(const uint4*)&strip[(size_t)(t * ROWS + word / COLUMNS) * columns + word % COLUMNS];
        }
        for (int i = 0; i < 4; ++i) {
            const int word = (i * THREADS + threadIdx.x) * 4;
            *(uint4*)&tile[word / COLUMNS][word % COLUMNS] = part[i];
        }
        __syncthreads();                                    // wait: the whole tile is there
        for (int r = half * ROWS / 2; r < (half + 1) * ROWS / 2; ++r) {     // compute
            unsigned v = tile[r][column];
            for (int k = 0; k < 4; ++k, v *= t * ROWS + r) m[k] += v;
        }
        __syncthreads();                                    // wait: everyone has read it
    }
    for (int k = 0; k < 4; ++k) atomicAdd(&moments[k * columns + blockIdx.x * COLUMNS + column], m[k]);
}
