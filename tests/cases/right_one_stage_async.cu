// title: one stage with cp.async: asynchronous in name only
// problem: TileReduction.of_tiles(4, 1, tile_elements=256, threads=64)
// verdict: right
// source: own
#include <cuda_pipeline.h>

template <int WORDS>
struct Panel {
    unsigned words[WORDS];
    __device__ void fetch(const unsigned* from) {
        for (int i = threadIdx.x * 4; i < WORDS; i += blockDim.x * 4)
            __pipeline_memcpy_async(words + i, from + i, 16);
        __pipeline_commit();
    }
    __device__ unsigned share() const {
        unsigned sum = 0;
        for (int i = threadIdx.x; i < WORDS; i += blockDim.x) sum += words[i];
        return sum;
    }
};

extern "C" __global__ void one(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) Panel<256> panel;
    const int first = blockIdx.x * tiles;
    for (int t = first; t < first + tiles; ++t) {
        panel.fetch(x + t * 256);
        __pipeline_wait_prior(0);
        __syncthreads();
        atomicAdd(out + t, panel.share());
        __syncthreads();  // used up
    }
}
