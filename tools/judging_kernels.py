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

# The kernels below were chosen when the clock was finished, before anybody had measured them.

SMALL_TILES = r"""
#include <cuda_pipeline.h>
constexpr int TILE = 2048;
extern "C" __global__ void __launch_bounds__(512) reduce(const unsigned* x, unsigned* out,
                                                         int tiles) {
  extern __shared__ __align__(16) unsigned stage[];
  int i = threadIdx.x, w = i / 32, l = i % 32;
  const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
  auto load = [&](int t) {
    if (t < tiles)
      __pipeline_memcpy_async(stage + t % STAGES * TILE + i * 4, mine + (size_t)t * TILE + i * 4,
                              16);
    __pipeline_commit();
  };
  for (int t = 0; t < STAGES - 1; t++) load(t);
  for (int t = 0; t < tiles; t++) {
    load(t + STAGES - 1);
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();
    unsigned sum = 0;
    for (int r = 0; r < 6; r++)
      for (int k = 0; k < 4; k++)
        sum = sum * 33 + (stage[t % STAGES * TILE + w * 128 + k * 32 + l] ^ r);
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (l == 0) out[(blockIdx.x * tiles + t) * 16 + w] = sum;
    __syncthreads();
  }
}
"""

LARGE_GEMM = r"""
#include <cuda_pipeline.h>
constexpr int BM = 128, BN = 128, BK = 8, LDA = BK + 4;
extern "C" __global__ void __launch_bounds__(256) gemm(const float* a, const float* b, float* c,
                                                       int m, int n, int k) {
  __shared__ __align__(16) float sa[STAGES][BM * LDA];
  __shared__ __align__(16) float sb[STAGES][BK * BN];
  int i = threadIdx.x, tx = i % 16, ty = i / 16, tiles = k / BK;
  int row0 = blockIdx.x / (n / BN) * BM, col0 = blockIdx.x % (n / BN) * BN;
  auto load = [&](int t) {
    if (t < tiles) {
      __pipeline_memcpy_async(&sa[t % STAGES][i / 2 * LDA + i % 2 * 4],
                              a + (size_t)(row0 + i / 2) * k + t * BK + i % 2 * 4, 16);
      __pipeline_memcpy_async(&sb[t % STAGES][i / 32 * BN + i % 32 * 4],
                              b + (size_t)(t * BK + i / 32) * n + col0 + i % 32 * 4, 16);
    }
    __pipeline_commit();
  };
  float sum[8][8] = {};
  for (int t = 0; t < STAGES - 1; t++) load(t);
  for (int t = 0; t < tiles; t++) {
    load(t + STAGES - 1);
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();
    const float *pa = sa[t % STAGES], *pb = sb[t % STAGES];
    #pragma unroll
    for (int q = 0; q < BK; q++) {
      float4 y = *(const float4*)(pb + q * BN + tx * 4);
      float4 z = *(const float4*)(pb + q * BN + 64 + tx * 4);
      #pragma unroll
      for (int r = 0; r < 8; r++) {
        float x = pa[(ty * 8 + r) * LDA + q];
        sum[r][0] += x * y.x; sum[r][1] += x * y.y; sum[r][2] += x * y.z; sum[r][3] += x * y.w;
        sum[r][4] += x * z.x; sum[r][5] += x * z.y; sum[r][6] += x * z.z; sum[r][7] += x * z.w;
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < 8; r++)
    for (int h = 0; h < 2; h++)
      *(float4*)(c + (size_t)(row0 + ty * 8 + r) * n + col0 + h * 64 + tx * 4) = make_float4(
          sum[r][h * 4], sum[r][h * 4 + 1], sum[r][h * 4 + 2], sum[r][h * 4 + 3]);
}
"""

STENCIL = r"""
// Each block takes a strip of 1,024 columns down its rows: y[r] from rows r - 1, r and r + 1. They
// wait in a ring of STAGES + 2 slots: STAGES are on their way or new, two were new before.
#include <cuda_pipeline.h>
constexpr int WIDTH = 1024, SLOTS = STAGES + 2;
extern "C" __global__ void __launch_bounds__(256) stencil(const float* x, float* y, int rows) {
  extern __shared__ __align__(16) float ring[];
  int i = threadIdx.x * 4;
  const float* from = x + (size_t)blockIdx.x * rows * WIDTH;
  float* to = y + (size_t)blockIdx.x * rows * WIDTH;
  auto load = [&](int r) {
    if (r < rows)
      __pipeline_memcpy_async(ring + r % SLOTS * WIDTH + i, from + (size_t)r * WIDTH + i, 16);
    __pipeline_commit();
  };
  load(0);
  for (int r = 1; r < STAGES; r++) load(r);
  for (int r = 0; r < rows; r++) {
    load(r + STAGES);
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();
    const float* above = ring + (r ? r - 1 : r) % SLOTS * WIDTH;
    const float* here = ring + r % SLOTS * WIDTH;
    const float* below = ring + (r + 1 < rows ? r + 1 : r) % SLOTS * WIDTH;
    float4 a = *(const float4*)(above + i), h = *(const float4*)(here + i);
    float4 b = *(const float4*)(below + i);
    float left = here[i ? i - 1 : i], right = here[i + 4 < WIDTH ? i + 4 : i + 3];
    *(float4*)(to + (size_t)r * WIDTH + i) = make_float4(
        a.x + b.x + left + h.y - 4 * h.x, a.y + b.y + h.x + h.z - 4 * h.y,
        a.z + b.z + h.y + h.w - 4 * h.z, a.w + b.w + h.z + right - 4 * h.w);
    __syncthreads();
  }
}
"""
