// Nobody waits for the phase.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 full;
    __shared__ __align__(16) unsigned s[128];
    const unsigned t = threadIdx.x;
    if (t == 0) init(&full, 64);
    __syncthreads();
    s[t] = in[t];
    arrive(&full);
    out[t] = s[t ^ 32];
}
