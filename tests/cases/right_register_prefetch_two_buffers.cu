// title: register prefetch with two buffers needs one barrier a tile
// problem: TileReduction.of_tiles(7, 1, tile_elements=128, threads=128)
// verdict: right
// source: own
extern "C" __global__ void two(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned s[2][128];
    const unsigned* in = x + blockIdx.x * tiles * 128;
    unsigned word = in[threadIdx.x];
    int buffer = 0;
    for (int t = 0; t < tiles; ++t, buffer ^= 1) {
        s[buffer][threadIdx.x] = word;
        if (t + 1 < tiles) word = in[(t + 1) * 128 + threadIdx.x];
        __syncthreads();  // the only one
        if (threadIdx.x < 32) {
            const unsigned* mine = s[buffer] + threadIdx.x * 4;
            atomicAdd(&out[blockIdx.x * tiles + t], mine[0] + mine[1] + mine[2] + mine[3]);
        }
    }
}
