// title: Plain stores filled by half the warps; the waiters use the state that their own arrival returned
// problem: TileReduction.of_tiles(7, 2, tile_elements=1024, threads=128)
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
__device__ void add_sum(u32* where, u32 sum) {
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) atomicAdd(where, sum);
}

constexpr int TILE = 1024, THREADS = 128;

__device__ u64 arrive_state(u64* bar) {
  u64 state;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(address(bar)) : "memory");
  return state;
}
__device__ void wait_state(u64* bar, u64 state) {
  u32 done = 0;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(address(bar)), "l"(state) : "memory");
}

extern "C" __global__ void ring(const u32* x, u32* out, int tiles) {
  __shared__ u32 stage[TILE];
  __shared__ u64 filled, used;
  const u32* mine = x + (size_t)blockIdx.x * tiles * TILE;
  if (threadIdx.x == 0) init(&filled, THREADS), init(&used, THREADS);
  __syncthreads();
  for (int t = 0; t < tiles; ++t) {
    if (threadIdx.x < THREADS / 2)
      for (int i = threadIdx.x; i < TILE; i += THREADS / 2) stage[i] = mine[t * TILE + i];
    wait_state(&filled, arrive_state(&filled));
    u32 sum = 0;
    for (int i = threadIdx.x; i < TILE; i += THREADS)
      sum += stage[i];
    wait_state(&used, arrive_state(&used));
    add_sum(&out[blockIdx.x * tiles + t], sum);
  }
}
