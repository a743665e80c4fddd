// C = A·Bᵀ of halves, warp-specialised: one producer warpgroup (one thread of it issues the tensor
// copies), two consumer warpgroups of 64 rows each, a ring of STAGES stages with full and empty
// mbarriers. Tile 128 x 128, 64 halves of k per stage, 384 threads.
#include <course_pipeline.cuh>
#include <cuda_fp16.h>

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 64, CONSUMERS = 2;
constexpr int A_BYTES = TILE_M * TILE_K * 2, STAGE_BYTES = (TILE_M + TILE_N) * TILE_K * 2;

extern "C" __global__ void __launch_bounds__(384)
    gemm(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, half* C, int m,
         int n, int k) {
  extern __shared__ __align__(1024) char stages[];
  __shared__ mbarrier full[STAGES], empty[STAGES];
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N, tiles = k / TILE_K;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], CONSUMERS);
    }
    mbarrier_init_fence();
  }
  __syncthreads();

  if (group == 0) {  // producer
    give_up_registers<40>();
    if (thread == 0)
      for (int t = 0; t < tiles; t++) {
        const int s = t % STAGES;
        mbarrier_wait(&empty[s], t / STAGES % 2 ^ 1);
        mbarrier_arrive_expect(&full[s], STAGE_BYTES);
        copy_box(stages + s * STAGE_BYTES, &A, &full[s], row, t * TILE_K);
        copy_box(stages + s * STAGE_BYTES + A_BYTES, &B, &full[s], column, t * TILE_K);
      }
    return;
  }

  take_registers<168>();
  const int part = group - 1;
  float sums[TILE_N / 2] = {};
  for (int t = 0; t < tiles; t++) {
    const int s = t % STAGES;
    const char* a = stages + s * STAGE_BYTES + part * 64 * TILE_K * 2;
    const char* b = stages + s * STAGE_BYTES + A_BYTES;
    mbarrier_wait(&full[s], t / STAGES % 2);
    wgmma_fence();
    for (int step = 0; step < TILE_K / 16; step++)
      wgmma<TILE_N>(sums, wgmma_descriptor(a + step * 32), wgmma_descriptor(b + step * 32));
    wgmma_commit();
    wgmma_wait();
    asm volatile("bar.sync %0, 128;" ::"r"(1 + part) : "memory");  // all four warps have read
    if (thread == 0) mbarrier_arrive(&empty[s]);
  }

  const int warp = thread / 32, lane = thread % 32;
  for (int j = 0; j < TILE_N / 8; j++)
    for (int i = 0; i < 4; i += 2) {
      const int r = row + 64 * part + 16 * warp + lane / 4 + 4 * i;
      const int c = column + 8 * j + 2 * (lane % 4);
      *reinterpret_cast<half2*>(&C[r * n + c]) =
          __floats2half2_rn(sums[4 * j + i], sums[4 * j + i + 1]);
    }
}
