// title: a warp-wide vote for the decision, __syncwarp for the memory
// problem: TileReduction.of_tiles(4, 1, tile_elements=32, threads=32)
// verdict: right
// source: own
extern "C" __global__ void vote(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned s[32];
    for (int t = 0; t < tiles; ++t) {
        s[threadIdx.x] = x[(blockIdx.x * tiles + t) * 32 + threadIdx.x];
        const bool more = __any_sync(~0u, t + 1 < tiles);
        __syncwarp();  // stored
        unsigned sum = 0;
        if (threadIdx.x == 9)
            for (int i = 0; i < 32; ++i) sum += s[i];
        if (threadIdx.x == 9) out[blockIdx.x * tiles + t] = sum;
        __syncwarp();
        if (!more) break;
    }
}
