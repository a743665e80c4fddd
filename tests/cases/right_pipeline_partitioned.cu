// title: cuda::pipeline with one producer warp and consumer warps
// problem: TileReduction.of_tiles(6, 1, tile_elements=96, threads=128)
// verdict: right
// source: own
#include <cooperative_groups.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;

extern "C" __global__ void parted(const unsigned* x, unsigned* out, int tiles) {
    __shared__ unsigned stage[3][96];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
    const auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer
                                       : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(cg::this_thread_block(), &state, role);
    x += blockIdx.x * tiles * 96;
    for (int t = 0; t < tiles; ++t) {
        if (role == cuda::pipeline_role::producer) {
            pipe.producer_acquire();
            for (int i = threadIdx.x; i < 96; i += 32)
                cuda::memcpy_async(&stage[t % 3][i], x + t * 96 + i, sizeof(unsigned), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            const unsigned word = stage[t % 3][threadIdx.x - 32];
            pipe.consumer_release();
            atomicAdd(&out[blockIdx.x * tiles + t], word);
        }
    }
}
