// title: The ring in cuda::ptx: every instruction through its documented wrapper
// problem: TileReduction.of_tiles(7, 2, tile_elements=1024, threads=160)
// verdict: right
// source: own
#include <cuda/ptx>
#include <cuda/std/cstdint>
namespace ptx = cuda::ptx;
constexpr int TILE = 1024, STAGES = 2, CONSUMERS = 128;

extern "C" __global__ void ring(const unsigned* x, unsigned* out, int tiles) {
  __shared__ __align__(128) unsigned stage[STAGES][TILE];
  __shared__ uint64_t full[STAGES], empty[STAGES];
  const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
  if (threadIdx.x == 0)
    for (int s = 0; s < STAGES; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], CONSUMERS);
    }
  __syncthreads();
  if (threadIdx.x >= CONSUMERS) {
    if (threadIdx.x == CONSUMERS)
      for (int t = 0; t < tiles; ++t) {
        const int s = t % STAGES;
        while (!ptx::mbarrier_try_wait_parity(&empty[s], t / STAGES % 2 ^ 1)) {}
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], TILE * 4);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage[s], mine + t * TILE, TILE * 4, &full[s]);
      }
    return;
  }
  for (int t = 0; t < tiles; ++t) {
    const int s = t % STAGES;
    while (!ptx::mbarrier_try_wait_parity(&full[s], t / STAGES % 2)) {}
    unsigned sum = 0;
    for (int i = threadIdx.x; i < TILE; i += CONSUMERS)
      sum += stage[s][i];
    ptx::mbarrier_arrive(&empty[s]);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) atomicAdd(&out[blockIdx.x * tiles + t], sum);
  }
}
