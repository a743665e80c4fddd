// title: one buffer, plain loads, two barriers a tile
// problem: TileReduction.of_tiles(3, 2, tile_elements=256, threads=64)
// verdict: right
// source: lesson
extern "C" __global__ void single(const unsigned* __restrict__ x, unsigned* out, int tiles) {
    __shared__ unsigned panel[256];
    for (int t = 0; t < tiles; t++) {
        const unsigned* tile = x + (blockIdx.x * tiles + t) * 256;
        for (int i = threadIdx.x; i < 256; i += blockDim.x) panel[i] = tile[i];
        __syncthreads();  // the tile is complete
        unsigned sum = 0;
        for (int i = 0; i < 4; i++) sum += panel[threadIdx.x * 4 + i];
        atomicAdd(&out[blockIdx.x * tiles + t], sum);
        __syncthreads();  // the tile is used up
    }
}
