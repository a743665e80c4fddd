// C = A·Bᵀ of halves with wmma: cp.async into a ring of STAGES stages. Four warps, each 32 x 32 of a
// 64 x 64 tile; 32 halves of k per stage, rows padded to 48 halves (32-byte aligned fragments).
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda;

constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 32, PITCH = TILE_K + 16;

extern "C" __global__ void __launch_bounds__(128)
    gemm(const half* A, const half* B, half* C, int m, int n, int k) {
  __shared__ __align__(32) half a[STAGES][TILE_M][PITCH], b[STAGES][TILE_N][PITCH];
  const int thread = threadIdx.x, warp = thread / 32;
  const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N, tiles = k / TILE_K;
  const int wr = warp / 2 * 32, wc = warp % 2 * 32;

  auto load = [&](int t) {
    if (t < tiles)
      for (int i = thread; i < TILE_M * TILE_K / 8; i += 128) {
        const int r = i / 4, c = i % 4 * 8;
        __pipeline_memcpy_async(&a[t % STAGES][r][c], &A[(row + r) * k + t * TILE_K + c], 16);
        __pipeline_memcpy_async(&b[t % STAGES][r][c], &B[(column + r) * k + t * TILE_K + c], 16);
      }
    __pipeline_commit();
  };
  for (int t = 0; t < STAGES - 1; t++) load(t);

  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][2];
  for (auto& pair : sums)
    for (auto& d : pair) wmma::fill_fragment(d, 0.f);
  for (int t = 0; t < tiles; t++) {
    load(t + STAGES - 1);
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();  // ready
    const int s = t % STAGES;
    for (int step = 0; step < TILE_K; step += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right[2];
      for (int i = 0; i < 2; i++) {
        wmma::load_matrix_sync(left[i], &a[s][wr + 16 * i][step], PITCH);
        wmma::load_matrix_sync(right[i], &b[s][wc + 16 * i][step], PITCH);
      }
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
    }
    __syncthreads();  // released
  }

  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      wmma::fragment<wmma::accumulator, 16, 16, 16, half> rounded;
      for (int e = 0; e < rounded.num_elements; e++) rounded.x[e] = __float2half(sums[i][j].x[e]);
      wmma::store_matrix_sync(&C[(row + wr + 16 * i) * n + column + wc + 16 * j], rounded, n,
                              wmma::mem_row_major);
    }
}
