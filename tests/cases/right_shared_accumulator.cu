// title: the block's sum is gathered in shared memory, set to zero for every tile
// problem: TileReduction.of_tiles(5, 1, tile_elements=256, threads=128)
// verdict: right
// source: own
extern "C" __global__ void gather(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned total;
    for (int t = 0; t < tiles; ++t) {
        if (threadIdx.x == 0) total = 0;
        __syncthreads();  // the zero is there
        const unsigned* tile = x + (blockIdx.x * tiles + t) * 256;
        atomicAdd(&total, tile[threadIdx.x] + tile[threadIdx.x + 128]);
        __syncthreads();  // all have added
        if (threadIdx.x == 127) out[blockIdx.x * tiles + t] = total;
        __syncthreads();  // the total has been taken
    }
}
