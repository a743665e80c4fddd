// A barrier of the block stands between the write and another warp's read.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    out[t] = s[t ^ 32];
}
