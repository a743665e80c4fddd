// title: a producer and three consumer warps, named barriers full and empty for each stage
// problem: TileReduction.of_tiles(7, 1, tile_elements=96, threads=128)
// verdict: right
// source: own
__device__ __forceinline__ void meet(int barrier) {
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive(int barrier) {
    asm volatile("bar.arrive %0, 128;" ::"r"(barrier) : "memory");
}

extern "C" __global__ void roles(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned ring[2][96];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 3) {  // producer
        for (int t = 0; t < tiles; ++t) {
            if (t >= 2) meet(3 + t % 2);  // empty
            for (int i = lane; i < 96; i += 32)
                ring[t % 2][i] = x[(blockIdx.x * tiles + t) * 96 + i];
            __threadfence_block();
            arrive(1 + t % 2);  // full
        }
    } else {
        for (int t = 0; t < tiles; ++t) {
            meet(1 + t % 2);  // full
            const unsigned word = ring[t % 2][95 - threadIdx.x];
            if (t + 2 < tiles) arrive(3 + t % 2);  // empty
            atomicAdd(&out[blockIdx.x * tiles + t], word);
        }
    }
}
