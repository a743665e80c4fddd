// title: every round reads neighbours, meets, then updates in place
// problem: TileReduction.of_tiles(2, 1, tile_elements=64, threads=64)
// verdict: right
// source: own
extern "C" __global__ void rounds(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned cell[64];
    for (int t = 0; t < tiles; ++t) {
        cell[threadIdx.x] = x[(blockIdx.x * tiles + t) * 64 + threadIdx.x];
        __syncthreads();
        for (int k = 1; k < 64; k *= 2) {
            const unsigned other = cell[threadIdx.x ^ k];
            __syncthreads();  // all have read
            cell[threadIdx.x] += other;
            __syncthreads();  // all have written
        }
        if (threadIdx.x == 0) out[blockIdx.x * tiles + t] = cell[0];
        __syncthreads();
    }
}
