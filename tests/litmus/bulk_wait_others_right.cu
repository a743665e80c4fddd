// The issuer waits, then a barrier lets the others overwrite.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned s[64];
    const unsigned t = threadIdx.x;
    s[t] = in[t];
    proxy_fence();
    __syncthreads();
    if (t == 0) { bulk_store(out, s, 256); bulk_commit(); }
    if (t == 0) bulk_wait_read<0>();
    __syncthreads();
    s[t] = 0;
}
