// Two threads write the same byte.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned char s[128];
    const unsigned t = threadIdx.x;
    s[t / 2] = (unsigned char)in[t];
    __syncthreads();
    out[t] = s[t ^ 32];
}
