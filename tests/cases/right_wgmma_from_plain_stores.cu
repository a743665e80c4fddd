// title: Plain stores fill two stages, fence.proxy.async publishes them, one wgmma group per step
// problem: Gemm(64, 64, 192, dtype='float16')
// verdict: right
// arch: sm_90a
// tile: 64x64
// threads: 128
// source: sgl-project/sglang#39124
#include <cuda_fp16.h>
using u32 = unsigned;
using u64 = unsigned long long;
constexpr int STEP = 64, PANEL = 64 * STEP;

// Core matrices of 8 rows by 16 bytes, one after another along k: no swizzle.
__device__ int place(int row, int k) { return (row / 8 * (STEP / 8) + k / 8) * 64 + row % 8 * 8 + k % 8; }
__device__ u64 descriptor(const half* panel, int k) {
  const u64 start = (u32)__cvta_generic_to_shared(panel + k / 8 * 64);
  return start >> 4 | (u64)(128 >> 4) << 16 | (u64)(STEP / 8 * 128 >> 4) << 32;
}
__device__ void multiply(float (&d)[32], u64 a, u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(128) gemm(const half* A, const half* B, half* C, int m, int n, int k) {
  __shared__ __align__(128) half a[2][PANEL], b[2][PANEL];
  const half* rows = A + (size_t)blockIdx.y * 64 * k;
  const half* columns = B + (size_t)blockIdx.x * 64 * k;
  float d[32] = {};
  for (int step = 0; step < k / STEP; ++step) {
    const int s = step % 2;
    for (int i = threadIdx.x; i < PANEL; i += 128) {
      const int row = i / STEP, at = i % STEP;
      a[s][place(row, at)] = rows[(size_t)row * k + step * STEP + at];
      b[s][place(row, at)] = columns[(size_t)row * k + step * STEP + at];
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int at = 0; at < STEP; at += 16)
      multiply(d, descriptor(a[s], at), descriptor(b[s], at));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int j = 0; j < 32; ++j) {
    const int row = blockIdx.y * 64 + warp * 16 + lane / 4 + (j / 2 % 2) * 8;
    const int column = blockIdx.x * 64 + j / 4 * 8 + lane % 4 * 2 + j % 2;
    C[(size_t)row * n + column] = __float2half(d[j]);
  }
}
