// title: a value is handed to all threads through shared memory in every turn
// problem: TileReduction.of_tiles(4, 1, tile_elements=4, threads=64)
// verdict: right
// source: own
extern "C" __global__ void hand_on(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned value;
    for (int t = 0; t < tiles; ++t) {
        unsigned sum = 0;
        for (int i = 0; i < 4; ++i) {
            if (threadIdx.x == 0) value = x[(blockIdx.x * tiles + t) * 4 + i];
            __syncthreads();  // there
            sum += value;
            __syncthreads();  // taken
        }
        if (threadIdx.x == 63) out[blockIdx.x * tiles + t] = sum;
    }
}
