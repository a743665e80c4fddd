// title: the next tile waits in a register while this one is reduced
// problem: TileReduction.of_tiles(5, 1, tile_elements=512, threads=128)
// verdict: right
// source: own
extern "C" __global__ void prefetch(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned s[512];
    const uint4* in = reinterpret_cast<const uint4*>(x) + blockIdx.x * tiles * 128 + threadIdx.x;
    uint4 next = in[0];
    for (int t = 0; t < tiles; ++t) {
        reinterpret_cast<uint4*>(s)[threadIdx.x] = next;
        __syncthreads();  // stored
        if (t + 1 < tiles) next = in[(t + 1) * 128];
        unsigned sum = s[threadIdx.x] + s[threadIdx.x + 128] + s[threadIdx.x + 256];
        sum += s[threadIdx.x + 384];
        atomicAdd(&out[blockIdx.x * tiles + t], sum);
        __syncthreads();  // read
    }
}
