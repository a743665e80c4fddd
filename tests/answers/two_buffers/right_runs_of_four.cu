// title: each thread filters runs of four samples, from dynamic shared memory
// scores: full
%%cuda two_buffers_filter --threads 512 --shared 32768
#include <cuda_pipeline.h>
extern __shared__ __align__(16) unsigned ring[];

extern "C" __global__ void two_buffers_filter(const unsigned* x, unsigned* y, int tiles) {
    const size_t first = (size_t)blockIdx.x * tiles;
    int filled = 0;
    for (int t = 0; t < tiles; ++t) {
        for (; filled < tiles && filled < t + 2; ++filled) {
            for (int q = threadIdx.x; q < 1024; q += blockDim.x)
                __pipeline_memcpy_async(ring + (filled & 1) * 4096 + 4 * q, x + (first + filled) * 4096 + 4 * q, 16);
            __pipeline_commit();
        }
        if (filled > t + 1) __pipeline_wait_prior(1);
        else __pipeline_wait_prior(0);
        __syncthreads();
        const unsigned* s = ring + (t & 1) * 4096;
        for (int q = threadIdx.x; q < 1024; q += blockDim.x) {
            const uint4 a = *(const uint4*)&s[4 * q];
            const uint2 b = *(const uint2*)&s[4 * ((q + 1) & 1023)];
            *(uint4*)&y[(first + t) * 4096 + 4 * q] =
                make_uint4(5 * a.x + 11 * a.y + 3 * a.z, 5 * a.y + 11 * a.z + 3 * a.w,
                           5 * a.z + 11 * a.w + 3 * b.x, 5 * a.w + 11 * b.x + 3 * b.y);
        }
        __syncthreads();
    }
}
