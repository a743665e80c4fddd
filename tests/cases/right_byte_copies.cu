// title: tiles are summed byte by byte, which reads what others copied in words
// problem: TileReduction.of_tiles(3, 1, tile_elements=64, threads=64)
// verdict: right
// source: own
extern "C" __global__ void bytes(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(4) unsigned char s[256];
    for (int t = 0; t < tiles; ++t) {
        ((unsigned*)s)[threadIdx.x] = x[(blockIdx.x * tiles + t) * 64 + threadIdx.x];
        __syncthreads();
        unsigned sum = 0;
        for (int i = 0; i < 4; ++i) {
            const int at = i * 64 + threadIdx.x;
            sum += (unsigned)s[at] << (at % 4 * 8);
        }
        atomicAdd(&out[blockIdx.x * tiles + t], sum);
        __syncthreads();
    }
}
