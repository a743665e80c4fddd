// Votes of the warps are none.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    s[t] = in[t];
    const int n = __popc(__ballot_sync(~0u, t & 1));
    out[t] = s[t ^ 32] + n;
}
