// title: a warp's tree in volatile memory with __syncwarp
// problem: TileReduction.of_tiles(7, 2, tile_elements=512, threads=128)
// verdict: right
// source: own
__device__ void add_sum(unsigned* where, unsigned sum) {
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) atomicAdd(where, sum);
}
constexpr int TILE = 512, THREADS = 128;

extern "C" __global__ void k(const unsigned* x, unsigned* out, int tiles) {
  const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
  unsigned* to = out + blockIdx.x * tiles;
  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  __shared__ volatile unsigned part[THREADS];
  for (int t = 0; t < tiles; ++t) {
    unsigned sum = 0;
    for (int i = tid; i < TILE; i += THREADS) sum += mine[t * TILE + i];
    part[tid] = sum;
    __syncwarp();
    for (int n = 16; n > 0; n /= 2) {
      unsigned other = lane < n ? part[tid + n] : 0;
      __syncwarp();
      if (lane < n) part[tid] = part[tid] + other;
      __syncwarp();
    }
    if (lane == 0) atomicAdd(&to[t], part[tid]);
    __syncwarp();
  }
}
