// The writers fence, then a barrier, then the bulk store reads.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned s[64];
    const unsigned t = threadIdx.x;
    s[t] = in[t];
    proxy_fence();
    __syncthreads();
    if (t == 0) { bulk_store(out, s, 256); bulk_commit(); }
}
