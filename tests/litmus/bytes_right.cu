// Neighbouring bytes of one word are written by different threads.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned char s[128];
    const unsigned t = threadIdx.x;
    s[t] = (unsigned char)in[t];
    __syncthreads();
    out[t] = s[t ^ 32];
}
