// title: Bulk copies in, and the sums of four tiles leave by a bulk store
// problem: TileReduction.of_tiles(12, 2, tile_elements=1024, threads=128)
// verdict: right
// source: NVIDIA/TransformerEngine#3417
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

constexpr int TILE = 1024, STAGES = 2, THREADS = 128;

extern "C" __global__ void ring(const u32* x, u32* out, int tiles) {
  __shared__ __align__(128) u32 stage[STAGES][TILE];
  __shared__ __align__(16) u32 sums[4];
  __shared__ u32 partial[THREADS / 32];
  __shared__ u64 full[STAGES];
  const u32* mine = x + (size_t)blockIdx.x * tiles * TILE;
  auto load = [&](int t) {
    if (threadIdx.x != 0 || t >= tiles) return;
    expect(&full[t % STAGES], TILE * 4);
    copy(stage[t % STAGES], mine + t * TILE, TILE * 4, &full[t % STAGES]);
  };
  if (threadIdx.x == 0)
    for (int s = 0; s < STAGES; ++s) init(&full[s], 1);
  __syncthreads();
  for (int t = 0; t < STAGES; ++t) load(t);
  for (int t = 0; t < tiles; ++t) {
    wait(&full[t % STAGES], t / STAGES % 2);
    u32 sum = 0;
    for (int i = threadIdx.x; i < TILE; i += THREADS) sum += stage[t % STAGES][i];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    if (t % 4 == 0 && threadIdx.x == 0)
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    __syncthreads();
    load(t + STAGES);
    if (threadIdx.x == 32) {
      sums[t % 4] = partial[0] + partial[1] + partial[2] + partial[3];
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (t % 4 == 3 && threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" ::"l"(out + blockIdx.x * tiles + t - 3), "r"(address(sums)) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
