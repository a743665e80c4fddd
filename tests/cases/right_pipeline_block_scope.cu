// title: cuda::pipeline shared by the block: acquire, commit, wait and release are the edges
// problem: TileReduction.of_tiles(6, 1, tile_elements=256, threads=64)
// verdict: right
// source: own
#include <cooperative_groups.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;

extern "C" __global__ void piped(const unsigned* x, unsigned* out, int tiles) {
    constexpr int STAGES = 2;
    __shared__ __align__(16) unsigned stage[STAGES][256];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    x += blockIdx.x * tiles * 256;
    for (int t = 0, next = 0; t < tiles; ++t) {
        for (; next < tiles && next < t + STAGES; ++next) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, stage[next % STAGES], x + next * 256,
                               cuda::aligned_size_t<16>(1024), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        unsigned sum = 0;
        for (int i = threadIdx.x; i < 256; i += 64) sum += stage[t % STAGES][255 - i];
        pipe.consumer_release();
        atomicAdd(&out[blockIdx.x * tiles + t], sum);
    }
}
