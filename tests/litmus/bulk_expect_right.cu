// Two copies, and their phase expects the bytes of both.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 full;
    __shared__ __align__(16) unsigned s[128];
    const unsigned t = threadIdx.x;
    if (t == 0) init(&full, 1);
    __syncthreads();
    if (t == 0) {
        expect(&full, 512);
        bulk_load(s, in, 256, &full);
        bulk_load(s + 64, in, 256, &full);
    }
    __syncthreads();
    wait(&full, 0);
    out[t] = s[t + 64];
}
