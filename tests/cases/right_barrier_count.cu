// title: barriers by number with their counts given, for the whole block
// problem: TileReduction.of_tiles(4, 1, tile_elements=128, threads=128)
// verdict: right
// source: own
extern "C" __global__ void numbered(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned s[128];
    for (int t = 0; t < tiles; ++t) {
        s[threadIdx.x] = x[(blockIdx.x * tiles + t) * 128 + threadIdx.x];
        asm volatile("barrier.sync 5, 128;" ::: "memory");
        if (threadIdx.x < 64)
            atomicAdd(&out[blockIdx.x * tiles + t], s[127 - threadIdx.x] + s[threadIdx.x]);
        asm volatile("barrier.sync 6, 128;" ::: "memory");
    }
}
