// title: lane 0 asks, the answer goes round by shuffle, then __syncwarp
// problem: TileReduction.of_tiles(7, 2, tile_elements=512, threads=128)
// verdict: right
// source: own
using u32 = unsigned;
using u64 = unsigned long long;
__device__ u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u64* bar, u32 count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(bar)), "r"(count) : "memory");
}
__device__ void arrive(u64* bar) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address(bar)) : "memory");
}
__device__ void expect(u64* bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address(bar)), "r"(bytes) : "memory");
}
__device__ void wait(u64* bar, u32 parity) {
  u32 done = 0;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(address(bar)), "r"(parity) : "memory");
}
__device__ void copy(void* to, const void* from, u32 bytes, u64* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(to)), "l"(from), "r"(bytes), "r"(address(bar)) : "memory");
}
__device__ void add_sum(unsigned* where, unsigned sum) {
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) atomicAdd(where, sum);
}
constexpr int TILE = 512, THREADS = 128;

extern "C" __global__ void k(const unsigned* x, unsigned* out, int tiles) {
  const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
  unsigned* to = out + blockIdx.x * tiles;
  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  constexpr int S = 2;
  __shared__ __align__(128) unsigned stage[S][TILE];
  __shared__ u64 full[S];
  if (tid == 0) for (int s = 0; s < S; ++s) init(&full[s], 1);
  __syncthreads();
  if (tid == 0) for (int t = 0; t < S && t < tiles; ++t) expect(&full[t], TILE * 4), copy(stage[t], mine + t * TILE, TILE * 4, &full[t]);
  for (int t = 0; t < tiles; ++t) {
    u32 done = 0;
    do {
      if (lane == 0)
        asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(address(&full[t % S])), "r"(t / S % 2) : "memory");
      done = __shfl_sync(~0u, done, 0);
    } while (!done);
    __syncwarp();
    unsigned sum = 0;
    for (int i = tid; i < TILE; i += THREADS) sum += stage[t % S][i];
    __syncthreads();
    if (tid == 0 && t + S < tiles) expect(&full[t % S], TILE * 4), copy(stage[t % S], mine + (t + S) * TILE, TILE * 4, &full[t % S]);
    add_sum(&to[t], sum);
  }
}
