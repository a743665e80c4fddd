// A barrier stands between issue and read, but nobody waits for the mbarrier.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 full;
    __shared__ __align__(16) unsigned s[64];
    const unsigned t = threadIdx.x;
    if (t == 0) init(&full, 1);
    __syncthreads();
    if (t == 0) {
        expect(&full, 256);
        bulk_load(s, in, 256, &full);
    }
    __syncthreads();
    out[t] = s[t];
}
