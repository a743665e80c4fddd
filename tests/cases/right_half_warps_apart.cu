// title: both halves of a warp take branches of their own and write bytes side by side
// problem: TileReduction.of_tiles(4, 1, tile_elements=64, threads=32)
// verdict: right
// source: own
extern "C" __global__ void halves(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned s[64];
    const int lane = threadIdx.x;
    for (int t = 0; t < tiles; ++t) {
        const unsigned* tile = x + (blockIdx.x * tiles + t) * 64;
        if (lane < 16) {
            for (int i = lane; i < 32; i += 16) s[i] = tile[i];
        } else {
            for (int i = lane + 16; i < 64; i += 16) s[i] = tile[i];
        }
        __syncwarp();
        unsigned sum = s[lane ^ 16] + s[63 - lane];
        for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (lane == t) out[blockIdx.x * tiles + t] = sum;
        __syncwarp();
    }
}
