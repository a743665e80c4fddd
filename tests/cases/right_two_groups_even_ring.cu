// title: two consumer warps take turns, an even ring: each stage has one reader
// problem: TileReduction.of_tiles(13, 1, tile_elements=512, threads=96)
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
constexpr int TILE = 512, THREADS = 96;

extern "C" __global__ void k(const unsigned* x, unsigned* out, int tiles) {
  const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
  unsigned* to = out + blockIdx.x * tiles;
  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  constexpr int S = 4;
  __shared__ __align__(128) unsigned stage[S][TILE];
  __shared__ u64 full[S], empty[S];
  if (tid == 0) for (int s = 0; s < S; ++s) init(&full[s], 1), init(&empty[s], 1);
  __syncthreads();
  if (warp == 2) {
    if (lane == 0)
      for (int t = 0; t < tiles; ++t) {
        wait(&empty[t % S], t / S % 2 ^ 1);
        expect(&full[t % S], TILE * 4);
        copy(stage[t % S], mine + t * TILE, TILE * 4, &full[t % S]);
      }
  } else {
    for (int t = warp; t < tiles; t += 2) {
      wait(&full[t % S], t / S % 2);
      unsigned sum = 0;
      for (int i = lane; i < TILE; i += 32) sum += stage[t % S][i];
      __syncwarp();
      if (lane == 0) arrive(&empty[t % S]);
      add_sum(&to[t], sum);
    }
  }
}
