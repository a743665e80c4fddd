// A shuffle exchanges registers; it orders no memory.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    s[t] = in[t];
    const unsigned v = __shfl_sync(~0u, t, 0);
    out[t] = s[t ^ 1] + v;
}
