// An arrival releases what its thread wrote.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 full;
    __shared__ __align__(16) unsigned s[128];
    const unsigned t = threadIdx.x;
    if (t == 0) init(&full, 32);
    __syncthreads();
    if (t < 32) {
        s[t] = in[t];
        arrive(&full);
    } else {
        wait(&full, 0);
        out[t] = s[t - 32];
    }
}
