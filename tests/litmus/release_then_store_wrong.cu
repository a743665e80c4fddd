// The release went to another flag than the relaxed store.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[32], flag, other;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        s[0] = in[0];
        st_release(&other, 1);
        st_relaxed(&flag, 2);
    }
    if (t == 32) {
        while (ld_acquire(&flag) != 2);
        out[0] = s[0];
    }
}
