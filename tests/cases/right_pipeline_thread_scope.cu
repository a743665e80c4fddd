// title: cuda::pipeline of each thread, and a barrier to publish
// problem: TileReduction.of_tiles(5, 1, tile_elements=256, threads=64)
// verdict: right
// source: own
#include <cuda/pipeline>

extern "C" __global__ void piped(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned stage[2][256];
    x += blockIdx.x * tiles * 256;
    auto pipe = cuda::make_pipeline();
    auto load = [&](int t) {
        pipe.producer_acquire();
        if (t < tiles)
            cuda::memcpy_async(&stage[t % 2][threadIdx.x * 4], x + t * 256 + threadIdx.x * 4,
                               cuda::aligned_size_t<16>(16), pipe);
        pipe.producer_commit();
    };
    load(0);
    for (int t = 0; t < tiles; ++t) {
        load(t + 1);
        cuda::pipeline_consumer_wait_prior<1>(pipe);
        __syncthreads();  // ready
        unsigned sum = 0;
        for (int i = 0; i < 4; ++i) sum += stage[t % 2][i * 64 + (threadIdx.x ^ 33)];
        atomicAdd(&out[blockIdx.x * tiles + t], sum);
        __syncthreads();  // free
        pipe.consumer_release();
    }
}
