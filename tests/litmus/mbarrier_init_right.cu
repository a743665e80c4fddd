// The initialisation is published before another warp arrives.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 full;
    __shared__ unsigned flag;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        init(&full, 1);
        st_release(&flag, 1);
    }
    if (t == 32) {
        while (!ld_acquire(&flag));
        arrive(&full);
    }
}
