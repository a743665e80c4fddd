// The writer has no fence.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[32], flag;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        s[0] = in[0];
        *(volatile unsigned*)&flag = 1;
    }
    if (t == 32) {
        while (!*(volatile unsigned*)&flag);
        __threadfence_block();
        out[0] = s[0];
    }
}
