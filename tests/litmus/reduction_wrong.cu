// A reduction returns nothing: a fence after it acquires nothing.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[32], flag, go;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = go = 0;
    __syncthreads();
    if (t == 0) {
        s[0] = in[0];
        st_release(&flag, 1);
        st_relaxed(&go, 1);
    }
    if (t == 32) {
        while (!ld_relaxed(&go));
        red_add(&flag, 1);
        __threadfence_block();
        out[0] = s[0];
    }
}
