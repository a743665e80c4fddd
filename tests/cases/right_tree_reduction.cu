// title: tree reduction in shared memory, a barrier for each halving
// problem: TileReduction.of_tiles(4, 1, tile_elements=128, threads=128)
// verdict: right
// source: own
extern "C" __global__ void tree(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned part[128];
    for (int t = 0; t < tiles; ++t) {
        part[threadIdx.x] = x[(blockIdx.x * tiles + t) * 128 + threadIdx.x];
        __syncthreads();  // stored
        for (int half = 64; half > 0; half >>= 1) {
            if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
            __syncthreads();  // halved
        }
        const unsigned sum = part[0];
        if (threadIdx.x == 77) out[blockIdx.x * tiles + t] = sum;
        __syncthreads();  // everybody has the sum
    }
}
