// title: GEMM ring of three stages in dynamic shared memory, one barrier a panel
// problem: Gemm(64, 32, 72)
// verdict: right
// threads: 128
// tile: 32x32
// shared: STAGES*2*32*8*4
// defines: STAGES=3
// source: own
extern __shared__ float4 pool[];

struct Panels {
    float4* first;
    __device__ float4* a(int stage) const { return first + stage * 128; }
    __device__ float4* b(int stage) const { return first + stage * 128 + 64; }
};

__device__ inline void fetch(float4* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"(from)
                 : "memory");
}

extern "C" __global__ void gemm(const float* A, const float* B, float* C, int m, int n, int k) {
    const Panels panels{pool};
    const int row = threadIdx.x % 64 / 2, half = threadIdx.x % 2, count = k / 8;
    const bool left = threadIdx.x < 64;
    const float* from = left ? A + (size_t)(blockIdx.y * 32 + row) * k + half * 4
                             : B + (size_t)(blockIdx.x * 32 + row) * k + half * 4;
    auto load = [&](int panel) {
        const int stage = panel % STAGES;
        if (panel < count)
            fetch((left ? panels.a(stage) : panels.b(stage)) + row * 2 + half, from + panel * 8);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int p = 0; p < STAGES - 1; ++p) load(p);
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float c[4][2] = {};
    for (int p = 0; p < count; ++p) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        load(p + STAGES - 1);
        const float* a = (const float*)panels.a(p % STAGES);
        const float* b = (const float*)panels.b(p % STAGES);
        for (int kk = 0; kk < 8; ++kk)
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 2; ++j)
                    c[i][j] += a[(ty + 8 * i) * 8 + kk] * b[(tx + 16 * j) * 8 + kk];
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j)
            C[(blockIdx.y * 32 + ty + 8 * i) * n + blockIdx.x * 32 + tx + 16 * j] = c[i][j];
}
