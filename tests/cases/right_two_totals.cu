// title: one thread writes two totals that all threads read
// problem: TileReduction.of_tiles(3, 1, tile_elements=64, threads=64)
// verdict: right
// source: own
extern "C" __global__ void totals(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned part[64], total[2];
    for (int t = 0; t < tiles; ++t) {
        part[threadIdx.x] = x[(blockIdx.x * tiles + t) * 64 + threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 40) {
            unsigned low = 0, high = 0;
            for (int i = 0; i < 32; ++i) low += part[i], high += part[i + 32];
            total[0] = low;
            total[1] = high;
        }
        __syncthreads();  // the totals are there
        const unsigned mine = total[0] + total[1];
        if (threadIdx.x == 5) out[blockIdx.x * tiles + t] = mine;
    }
}
