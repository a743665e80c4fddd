// A vote and a __syncwarp.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    s[t] = in[t];
    const unsigned v = __ballot_sync(~0u, t & 1);
    __syncwarp();
    out[t] = s[t ^ 1] + v;
}
