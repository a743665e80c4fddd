// The fence of a thread that no path leads through.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned s[64];
    const unsigned t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    if (t == 32) proxy_fence();
    if (t == 0) { bulk_store(out, s, 256); bulk_commit(); }
}
