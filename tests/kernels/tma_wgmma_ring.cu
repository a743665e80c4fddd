// C = A·Bᵀ of halves: tensor copies into a ring of STAGES stages, warpgroup products. One warpgroup,
// tile 64 x 128, 64 halves of k per stage.
#include <course_pipeline.cuh>
#include <cuda_fp16.h>

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64;
constexpr int A_BYTES = TILE_M * TILE_K * 2, STAGE_BYTES = (TILE_M + TILE_N) * TILE_K * 2;

extern "C" __global__ void __launch_bounds__(128)
    gemm(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, half* C, int m,
         int n, int k) {
  extern __shared__ __align__(1024) char stages[];
  __shared__ mbarrier ready[STAGES];
  const int thread = threadIdx.x, row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N;
  const int tiles = k / TILE_K;
  if (thread == 0) {
    for (int s = 0; s < STAGES; s++) mbarrier_init(&ready[s], 1);
    mbarrier_init_fence();
  }
  __syncthreads();

  auto load = [&](int tile) {
    char* stage = stages + tile % STAGES * STAGE_BYTES;
    mbarrier_arrive_expect(&ready[tile % STAGES], STAGE_BYTES);
    copy_box(stage, &A, &ready[tile % STAGES], row, tile * TILE_K);
    copy_box(stage + A_BYTES, &B, &ready[tile % STAGES], column, tile * TILE_K);
  };
  if (thread == 0)
    for (int t = 0; t < STAGES && t < tiles; t++) load(t);

  float sums[TILE_N / 2] = {};
  for (int t = 0; t < tiles; t++) {
    mbarrier_wait(&ready[t % STAGES], t / STAGES % 2);
    const char* stage = stages + t % STAGES * STAGE_BYTES;
    wgmma_fence();
    for (int step = 0; step < TILE_K / 16; step++)
      wgmma<TILE_N>(sums, wgmma_descriptor(stage + step * 32),
                    wgmma_descriptor(stage + A_BYTES + step * 32));
    wgmma_commit();
    wgmma_wait();
    __syncthreads();
    if (thread == 0 && t + STAGES < tiles) load(t + STAGES);
  }

  const int warp = thread / 32, lane = thread % 32;
  for (int j = 0; j < TILE_N / 8; j++)
    for (int i = 0; i < 4; i += 2) {
      const int r = row + 16 * warp + lane / 4 + 4 * i, c = column + 8 * j + 2 * (lane % 4);
      *reinterpret_cast<half2*>(&C[r * n + c]) =
          __floats2half2_rn(sums[4 * j + i], sums[4 * j + i + 1]);
    }
}
