// A plain relaxed store of another thread ends the release sequence. (The gate keeps the reader from
// seeing the released value itself, and orders nothing.)
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[32], flag, gate;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = gate = 0;
    __syncthreads();
    if (t == 0) {
        s[0] = in[0];
        st_release(&flag, 1);
    }
    if (t == 32) {
        while (ld_relaxed(&flag) != 1);
        st_relaxed(&flag, 2);
        st_relaxed(&gate, 1);
    }
    if (t == 64) {
        while (ld_relaxed(&gate) != 1);
        ld_acquire(&flag);
        out[0] = s[0];
    }
}
