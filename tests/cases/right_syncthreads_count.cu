// title: __syncthreads_or carries the decision to stop, and orders memory like any barrier
// problem: TileReduction.of_tiles(3, 1, tile_elements=64, threads=64)
// verdict: right
// source: own
extern "C" __global__ void decide(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned s[2][64];
    int t = 0;
    do {
        s[t & 1][threadIdx.x] = x[(blockIdx.x * tiles + t) * 64 + threadIdx.x];
        const int more = __syncthreads_or(threadIdx.x == 50 && t + 1 < tiles);
        if (threadIdx.x < 32) {
            const unsigned pair = s[t & 1][63 - threadIdx.x] + s[t & 1][threadIdx.x];
            const unsigned sum = __reduce_add_sync(~0u, pair);
            if (threadIdx.x == 0) out[blockIdx.x * tiles + t] = sum;
        }
        if (!more) break;
    } while (++t);
}
