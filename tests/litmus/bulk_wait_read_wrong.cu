// The source is overwritten while the store may still read it.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned s[64];
    const unsigned t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < 4; ++i) s[i] = in[i];
        proxy_fence();
        bulk_store(out, s, 16);
        bulk_commit();
        s[0] = 0;
    }
}
