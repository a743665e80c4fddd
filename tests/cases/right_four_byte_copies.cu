// title: copies of 4 bytes, spread over the threads word by word
// problem: TileReduction.of_tiles(5, 1, tile_elements=160, threads=96)
// verdict: right
// source: own
#include <cuda_pipeline_primitives.h>

__device__ void bring(unsigned* to, const unsigned* from) {
    for (int i = threadIdx.x; i < 160; i += blockDim.x) __pipeline_memcpy_async(to + i, from + i, 4);
    __pipeline_commit();
}

extern "C" __global__ void words(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned memory[2][160];
    int index = 0;
    x += blockIdx.x * tiles * 160;
    bring(memory[0], x);
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) bring(memory[index ^ 1], x + (t + 1) * 160);
        else __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        unsigned sum = 0;
        for (int i = threadIdx.x; i < 160; i += blockDim.x) sum += memory[index][159 - i];
        atomicAdd(&out[blockIdx.x * tiles + t], sum);
        __syncthreads();  // read
        index ^= 1;
    }
}
