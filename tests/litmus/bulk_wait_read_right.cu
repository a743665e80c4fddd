// The store has read its source when wait_group.read returns.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned s[64];
    const unsigned t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < 4; ++i) s[i] = in[i];
        proxy_fence();
        bulk_store(out, s, 16);
        bulk_commit();
        bulk_wait_read<0>();
        s[0] = 0;
    }
}
