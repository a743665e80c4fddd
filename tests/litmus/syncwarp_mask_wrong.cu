// Each half of the warp synchronises with itself, and reads the other half's words.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    s[t] = in[t];
    __syncwarp(t % 32 < 16 ? 0x0000ffff : 0xffff0000);
    out[t] = s[t ^ 16];
}
