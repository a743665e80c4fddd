// All lanes are named in the mask.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    s[t] = in[t];
    __syncwarp(0xffffffff);
    out[t] = s[t ^ 16];
}
