// title: each warp loads and reduces tiles of its own with plain stores
// problem: TileReduction.of_tiles(6, 1, tile_elements=64, threads=64)
// verdict: right
// source: own
extern "C" __global__ void warps(const unsigned* x, unsigned* out, int tiles) {
    __shared__ uint2 box[2][32];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    for (int t = warp; t < tiles; t += 2) {
        box[warp][lane] = ((const uint2*)(x + (blockIdx.x * tiles + t) * 64))[lane];
        __syncwarp();
        const uint2 pair = box[warp][31 - lane];
        const unsigned sum = __reduce_add_sync(0xffffffffu, pair.x + pair.y);
        if (lane == 31) out[blockIdx.x * tiles + t] = sum;
        __syncwarp();
    }
}
