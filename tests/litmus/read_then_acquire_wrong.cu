// The acquire is of another flag than the relaxed read.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[32], flag, other;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = other = 0;
    __syncthreads();
    if (t == 0) {
        s[0] = in[0];
        st_release(&flag, 1);
    }
    if (t == 32) {
        while (ld_relaxed(&flag) != 1);
        ld_acquire(&other);
        out[0] = s[0];
    }
}
