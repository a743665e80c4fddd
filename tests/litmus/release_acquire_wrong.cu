// The store is relaxed: nothing is released.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[32], flag;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        s[0] = in[0];
        st_relaxed(&flag, 1);
    }
    if (t == 32) {
        while (!ld_acquire(&flag));
        out[0] = s[0];
    }
}
