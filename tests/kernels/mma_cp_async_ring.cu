// C = A·Bᵀ of halves for sm_80 and later: cp.async into a ring of STAGES stages, ldmatrix, mma.sync.
// Four warps, each 32 x 32 of a 64 x 64 tile; 32 halves of k per stage, rows padded to 40 halves.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 32, PITCH = TILE_K + 8;

__device__ __forceinline__ void load_4(unsigned (&to)[4], const half* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((unsigned)__cvta_generic_to_shared(from))
               : "memory");
}

extern "C" __global__ void __launch_bounds__(128)
    gemm(const half* A, const half* B, half* C, int m, int n, int k) {
  __shared__ __align__(16) half a[STAGES][TILE_M][PITCH], b[STAGES][TILE_N][PITCH];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
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

  float sums[2][4][4] = {};
  for (int t = 0; t < tiles; t++) {
    load(t + STAGES - 1);
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();  // ready
    const int s = t % STAGES;
    for (int step = 0; step < TILE_K; step += 16) {
      unsigned left[2][4], right[2][4];
      for (int i = 0; i < 2; i++) {
        load_4(left[i], &a[s][wr + 16 * i + lane % 16][step + lane / 16 * 8]);
        load_4(right[i],
               &b[s][wc + 16 * i + lane % 8 + lane / 16 * 8][step + lane / 8 % 2 * 8]);
      }
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) {
          float(&d)[4] = sums[i][j];
          asm volatile(
              "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
              "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
              : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
              : "r"(left[i][0]), "r"(left[i][1]), "r"(left[i][2]), "r"(left[i][3]),
                "r"(right[j / 2][j % 2 * 2]), "r"(right[j / 2][j % 2 * 2 + 1]));
        }
    }
    __syncthreads();  // released
  }

  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 4; j++)
      for (int h = 0; h < 2; h++) {
        const int r = row + wr + 16 * i + lane / 4 + 8 * h, c = column + wc + 8 * j + lane % 4 * 2;
        *reinterpret_cast<half2*>(&C[r * n + c]) =
            __floats2half2_rn(sums[i][j][2 * h], sums[i][j][2 * h + 1]);
      }
}
