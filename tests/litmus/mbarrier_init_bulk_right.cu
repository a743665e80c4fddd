// An initialisation is released to the thread whose bulk copy names the mbarrier.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 full;
    __shared__ __align__(16) unsigned s[64];
    __shared__ unsigned flag;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        init(&full, 1);
        expect(&full, 256);
        st_release(&flag, 1);
        wait(&full, 0);
        out[0] = s[0];
    }
    if (t == 32) {
        while (!ld_acquire(&flag));
        bulk_load(s, in, 256, &full);
    }
}
