// title: textbook tiled product: load, barrier, multiply, barrier
// problem: Gemm(32, 32, 48)
// verdict: right
// threads: 256
// tile: 16x16
// source: lesson
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int m, int n, int k) {
    __shared__ float a[16][17], b[16][17];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    float sum = 0;
    for (int k0 = 0; k0 < k; k0 += 16) {
        a[ty][tx] = A[(row + ty) * k + k0 + tx];
        b[ty][tx] = B[(column + ty) * k + k0 + tx];
        __syncthreads();  // loaded
        for (int kk = 0; kk < 16; ++kk) sum += a[ty][kk] * b[tx][kk];
        __syncthreads();  // multiplied
    }
    C[(row + ty) * n + column + tx] = sum;
}
