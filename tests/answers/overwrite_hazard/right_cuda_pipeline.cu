// title: cuda::pipeline of the block, whose producer_acquire is the wait for reuse
// scores: full
%%cuda row_checksums -DREUSE=1 --threads 256
#include <cooperative_groups.h>
#include <cuda/pipeline>
extern "C" __global__ void __launch_bounds__(256)
row_checksums(const unsigned* __restrict__ x, unsigned* checksums, int tiles) {
    __shared__ __align__(16) unsigned stage[2][4096];
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const unsigned* mine = x + (size_t)blockIdx.x * tiles * 4096;
    auto produce = [&](int t) {
        if (REUSE) pipe.producer_acquire();
        cuda::memcpy_async(block, stage[t % 2], mine + (size_t)t * 4096, cuda::aligned_size_t<16>(16384), pipe);
        pipe.producer_commit();
    };
    produce(0);
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) produce(t + 1);
        pipe.consumer_wait();
        unsigned sum = 0;
        for (int c = threadIdx.x; c < 4096; c += 256) sum += (2 * c + 1) * stage[t % 2][c];
        pipe.consumer_release();
        atomicAdd(&checksums[blockIdx.x * tiles + t], sum);
    }
}
