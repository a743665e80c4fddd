// title: GEMM with two stages and cp.async, four results a thread
// problem: Gemm(32, 32, 80)
// verdict: right
// threads: 256
// tile: 32x32
// source: own
#include <cuda_pipeline.h>

extern "C" __global__ void gemm(const float* A, const float* B, float* C, int m, int n, int k) {
    __shared__ __align__(16) float a[2][32][16], b[2][32][16];
    const int r = threadIdx.x % 128 / 4, q = threadIdx.x % 4 * 4;
    const bool left = threadIdx.x < 128;
    const float* from = left ? A + (blockIdx.y * 32 + r) * k + q : B + (blockIdx.x * 32 + r) * k + q;
    float* to = left ? &a[0][r][q] : &b[0][r][q];
    const int panels = k / 16, tx = threadIdx.x % 16, ty = threadIdx.x / 16;

    __pipeline_memcpy_async(to, from, 16);
    __pipeline_commit();
    float c[2][2] = {};
    for (int p = 0; p < panels; ++p) {
        if (p + 1 < panels)
            __pipeline_memcpy_async(to + (p + 1) % 2 * 512, from + (p + 1) * 16, 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();  // panel p is there
        for (int kk = 0; kk < 16; ++kk)
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 2; ++j)
                    c[i][j] += a[p % 2][ty + i * 16][kk] * b[p % 2][tx + j * 16][kk];
        __syncthreads();  // panel p is used up
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
            C[(blockIdx.y * 32 + ty + i * 16) * n + blockIdx.x * 32 + tx + j * 16] = c[i][j];
}
