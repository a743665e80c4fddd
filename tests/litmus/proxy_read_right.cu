// Reads, a proxy fence, a barrier, and only then the next bulk load.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 full;
    __shared__ __align__(16) unsigned s[64];
    const unsigned t = threadIdx.x;
    if (t == 0) init(&full, 1);
    __syncthreads();
    for (int tile = 0; tile < 2; ++tile) {
        if (t == 0) {
            expect(&full, 256);
            bulk_load(s, in + 64 * tile, 256, &full);
        }
        wait(&full, tile);
        out[64 * tile + t] = s[t];
        proxy_fence();
        __syncthreads();
    }
}
