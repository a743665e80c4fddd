// title: registers hold the next tile while this one is filtered, then it goes to the other buffer
// scores: full
%%cuda two_buffers_filter --threads 256
__device__ unsigned filtered(const unsigned* s, int i) {
    return 5 * s[i] + 11 * s[(i + 1) & 4095] + 3 * s[(i + 2) & 4095];
}

extern "C" __global__ void __launch_bounds__(256)
two_buffers_filter(const unsigned* __restrict__ x, unsigned* y, int tiles) {
    __shared__ __align__(16) unsigned buffer[2][4096];
    const uint4* from = (const uint4*)x + (size_t)blockIdx.x * tiles * 1024 + threadIdx.x;
    unsigned* to = y + (size_t)blockIdx.x * tiles * 4096;
    uint4 part[4];
    for (int i = 0; i < 4; ++i) part[i] = from[i * 256];
    for (int i = 0; i < 4; ++i) ((uint4*)buffer[0])[i * 256 + threadIdx.x] = part[i];
    __syncthreads();
    for (int t = 0; t < tiles; ++t) {
        const bool more = t + 1 < tiles;
        from += 1024;
        if (more)
            for (int i = 0; i < 4; ++i) part[i] = from[i * 256];
        for (int i = threadIdx.x; i < 4096; i += 256) to[(size_t)t * 4096 + i] = filtered(buffer[t % 2], i);
        if (more)
            for (int i = 0; i < 4; ++i) ((uint4*)buffer[1 - t % 2])[i * 256 + threadIdx.x] = part[i];
        __syncthreads();
    }
}
