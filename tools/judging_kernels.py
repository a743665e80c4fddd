"""The kernels that judge the virtual clock. Nothing may be calibrated against them.

Both have the same loop: issue the copies of tile t + STAGES - 1, wait for tile t, barrier, compute,
barrier; with one stage the copy and the arithmetic of a tile take turns.
"""

from __future__ import annotations

COPY_AND_REDUCE = r"""
#include <cuda_pipeline.h>
constexpr int TILE = 4096;
extern "C" __global__ void __launch_bounds__(256) reduce(const unsigned* x, unsigned* out,
                                                         int tiles) {
  extern __shared__ __align__(16) unsigned stage[];
  int i = threadIdx.x, w = i / 32, l = i % 32;
  const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
  auto load = [&](int t) {
    if (t < tiles)
      for (int k = 0; k < 4; k++)
        __pipeline_memcpy_async(stage + t % STAGES * TILE + (k * 256 + i) * 4,
                                mine + (size_t)t * TILE + (k * 256 + i) * 4, 16);
    __pipeline_commit();
  };
  for (int t = 0; t < STAGES - 1; t++) load(t);
  for (int t = 0; t < tiles; t++) {
    load(t + STAGES - 1);
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();
    unsigned sum = 0;
    for (int r = 0; r < WORK; r++)
      for (int k = 0; k < 16; k++)
        sum = sum * 33 + (stage[t % STAGES * TILE + w * 512 + k * 32 + l] ^ r);
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (l == 0) out[(blockIdx.x * tiles + t) * 8 + w] = sum;
    __syncthreads();
  }
}
"""

FLOAT_GEMM = r"""
#include <cuda_pipeline.h>
constexpr int BM = 64, BN = 64, BK = 16, PAD = 4, LDA = BK + PAD;
extern "C" __global__ void __launch_bounds__(256) gemm(const float* a, const float* b, float* c,
                                                       int m, int n, int k) {
  __shared__ __align__(16) float sa[STAGES][BM * LDA];
  __shared__ __align__(16) float sb[STAGES][BK * BN];
  int i = threadIdx.x, tx = i % 16, ty = i / 16, tiles = k / BK;
  int row0 = blockIdx.x / (n / BN) * BM, col0 = blockIdx.x % (n / BN) * BN;
  auto load = [&](int t) {
    if (t < tiles) {
      __pipeline_memcpy_async(&sa[t % STAGES][i / 4 * LDA + i % 4 * 4],
                              a + (size_t)(row0 + i / 4) * k + t * BK + i % 4 * 4, 16);
      __pipeline_memcpy_async(&sb[t % STAGES][i / 16 * BN + i % 16 * 4],
                              b + (size_t)(t * BK + i / 16) * n + col0 + i % 16 * 4, 16);
    }
    __pipeline_commit();
  };
  float sum[4][4] = {};
  for (int t = 0; t < STAGES - 1; t++) load(t);
  for (int t = 0; t < tiles; t++) {
    load(t + STAGES - 1);
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();
    const float *pa = sa[t % STAGES], *pb = sb[t % STAGES];
    #pragma unroll
    for (int q = 0; q < BK; q++) {
      float4 y = *(const float4*)(pb + q * BN + tx * 4);
      #pragma unroll
      for (int r = 0; r < 4; r++) {
        float x = pa[(ty * 4 + r) * LDA + q];
        sum[r][0] += x * y.x; sum[r][1] += x * y.y;
        sum[r][2] += x * y.z; sum[r][3] += x * y.w;
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < 4; r++)
    *(float4*)(c + (size_t)(row0 + ty * 4 + r) * n + col0 + tx * 4) =
        make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}
"""
