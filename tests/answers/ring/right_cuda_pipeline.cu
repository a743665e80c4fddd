// title: cuda::pipeline of the block, as many stages in its shared state
// scores: full
%%cuda ring_polynomials -DSTAGES=2 --threads 128
#include <cooperative_groups.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;

extern "C" __global__ void __launch_bounds__(128)
ring_polynomials(const unsigned* __restrict__ x, unsigned* values, int tiles) {
    __shared__ __align__(16) unsigned ring[STAGES][1024];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    x += (size_t)blockIdx.x * tiles * 1024;
    unsigned y[4] = {};
    for (int t = 0, next = 0; t < tiles; ++t) {
        for (; next < tiles && next < t + STAGES; ++next) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, ring[next % STAGES], x + next * 1024, cuda::aligned_size_t<16>(4096), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        for (int r = 0; r < 8; ++r)
            for (int q = 0; q < 4; ++q) y[q] = y[q] * (2 * q + 3) + ring[t % STAGES][r * 128 + threadIdx.x];
        pipe.consumer_release();
    }
    for (int q = 0; q < 4; ++q) values[(blockIdx.x * 4 + q) * 128 + threadIdx.x] = y[q];
}
