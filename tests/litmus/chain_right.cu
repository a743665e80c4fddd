// Orderings add up: from the first thread by the second to the third.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[32], first, second;
    const unsigned t = threadIdx.x;
    if (t == 0) first = second = 0;
    __syncthreads();
    if (t == 0) {
        s[0] = in[0];
        st_release(&first, 1);
    }
    if (t == 32) {
        while (!ld_acquire(&first));
        st_release(&second, 1);
    }
    if (t == 64) {
        while (!ld_acquire(&second));
        out[0] = s[0];
    }
}
