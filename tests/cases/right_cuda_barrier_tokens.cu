// title: cuda::barrier with arrival tokens: memcpy_async by bulk copy, every thread arrives and waits
// problem: TileReduction.of_tiles(7, 2, tile_elements=1024, threads=128)
// verdict: right
// source: own
#include <cuda/barrier>
using barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int TILE = 1024, STAGES = 2, THREADS = 128;

extern "C" __global__ void ring(const unsigned* x, unsigned* out, int tiles) {
  __shared__ __align__(128) unsigned stage[STAGES][TILE];
  __shared__ barrier full[STAGES];
  const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
  if (threadIdx.x == 0)
    for (int s = 0; s < STAGES; ++s) init(&full[s], THREADS);
  __syncthreads();
  auto load = [&](int t) {
    barrier& bar = full[t % STAGES];
    if (threadIdx.x != 0) return bar.arrive();
    cuda::device::memcpy_async_tx(stage[t % STAGES], mine + t * TILE, cuda::aligned_size_t<16>(TILE * 4), bar);
    return cuda::device::barrier_arrive_tx(bar, 1, TILE * 4);
  };
  barrier::arrival_token now = load(0);
  for (int t = 0; t < tiles; ++t) {
    barrier::arrival_token next;
    if (t + 1 < tiles) next = load(t + 1);
    full[t % STAGES].wait(cuda::std::move(now));
    unsigned sum = 0;
    for (int i = threadIdx.x; i < TILE; i += THREADS)
      sum += stage[t % STAGES][i];
    __syncthreads();
    if (t + 1 < tiles) now = cuda::std::move(next);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) atomicAdd(&out[blockIdx.x * tiles + t], sum);
  }
}
