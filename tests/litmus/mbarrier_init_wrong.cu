// The flag comes later, but orders nothing: the initialisation may not be visible.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 full;
    __shared__ unsigned flag;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        init(&full, 1);
        st_relaxed(&flag, 1);
    }
    if (t == 32) {
        while (!ld_relaxed(&flag));
        arrive(&full);
    }
}
