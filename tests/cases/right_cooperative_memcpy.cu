// title: cooperative_groups::memcpy_async by the block, wait_prior, sync
// problem: TileReduction.of_tiles(5, 1, tile_elements=256, threads=64)
// verdict: right
// source: own
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;

extern "C" __global__ void together(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned stage[2][256];
    auto block = cg::this_thread_block();
    x += blockIdx.x * tiles * 256;
    cg::memcpy_async(block, stage[0], x, 1024);
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) {
            cg::memcpy_async(block, stage[(t + 1) % 2], x + (t + 1) * 256,
                             1024);
            cg::wait_prior<1>(block);
        } else {
            cg::wait(block);
        }
        unsigned sum = 0;
        for (int i = threadIdx.x; i < 256; i += 64) sum += stage[t % 2][255 - i];
        atomicAdd(&out[blockIdx.x * tiles + t], sum);
        block.sync();  // free
    }
}
