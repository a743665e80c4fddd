// title: cuda::pipeline with two stages of the whole block
// scores: full
%%cuda two_buffers_filter --threads 256
#include <cooperative_groups.h>
#include <cuda/pipeline>
__device__ unsigned filtered(const unsigned* s, int i) {
    return 5 * s[i] + 11 * s[(i + 1) & 4095] + 3 * s[(i + 2) & 4095];
}

extern "C" __global__ void __launch_bounds__(256)
two_buffers_filter(const unsigned* __restrict__ x, unsigned* y, int tiles) {
    __shared__ __align__(16) unsigned buffer[2][4096];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const unsigned* mine = x + (size_t)blockIdx.x * tiles * 4096;
    unsigned* result = y + (size_t)blockIdx.x * tiles * 4096;
    auto begin = [&](int t) {
        pipe.producer_acquire();
        for (int i = 0; i < 4; ++i) {
            const int e = (i * 256 + threadIdx.x) * 4;
            cuda::memcpy_async(&buffer[t % 2][e], mine + (size_t)t * 4096 + e, cuda::aligned_size_t<16>(16), pipe);
        }
        pipe.producer_commit();
    };
    begin(0);
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) begin(t + 1);
        pipe.consumer_wait();
        for (int i = threadIdx.x; i < 4096; i += 256) result[(size_t)t * 4096 + i] = filtered(buffer[t % 2], i);
        pipe.consumer_release();
    }
}
