// A release, then a relaxed store of the same thread to the same flag: the pair releases.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[32], flag;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        s[0] = in[0];
        st_release(&flag, 1);
        st_relaxed(&flag, 2);
    }
    if (t == 32) {
        while (ld_acquire(&flag) != 2);
        out[0] = s[0];
    }
}
