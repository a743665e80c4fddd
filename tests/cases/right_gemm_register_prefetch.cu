// title: the next panels come into registers while this one is multiplied
// problem: Gemm(32, 64, 64)
// verdict: right
// threads: 64
// tile: 32x32
// source: own
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int m, int n, int k) {
    __shared__ float4 a[32][3], b[32][3];  // eight words of k and padding
    const int r = threadIdx.x / 2, h = threadIdx.x % 2;
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8;
    const float4* pa = (const float4*)(A + (blockIdx.y * 32 + r) * k) + h;
    const float4* pb = (const float4*)(B + (blockIdx.x * 32 + r) * k) + h;
    float4 na = *pa, nb = *pb;
    float c[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 8) {
        a[r][h] = na;
        b[r][h] = nb;
        __syncthreads();
        if (k0 + 8 < k) na = pa[k0 / 4 + 2], nb = pb[k0 / 4 + 2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float4 u = a[ty + 8 * i][half], v = b[tx + 8 * j][half];
                    c[i][j] += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
                }
        __syncthreads();  // multiplied
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
            C[(blockIdx.y * 32 + ty + 8 * i) * n + blockIdx.x * 32 + tx + 8 * j] = c[i][j];
}
