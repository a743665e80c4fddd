// title: dynamic shared memory cut into stages by pointers that are swapped
// problem: TileReduction.of_tiles(5, 2, tile_elements=192, threads=96)
// verdict: right
// shared: 2*192*4
// source: own
#include <cuda_pipeline.h>

extern "C" __global__ void swapped(const unsigned* x, unsigned* out, int tiles) {
    extern __shared__ __align__(16) unsigned words[];
    unsigned *now = words, *next = words + 192;
    const unsigned* in = x + blockIdx.x * tiles * 192 + threadIdx.x * 2;
    __pipeline_memcpy_async(now + threadIdx.x * 2, in, 8);
    __pipeline_commit();
    for (int left = tiles; left > 0; --left) {
        __pipeline_wait_prior(0);
        __syncthreads();  // now is complete, and next has been read
        in += 192;
        if (left > 1) __pipeline_memcpy_async(next + threadIdx.x * 2, in, 8);
        __pipeline_commit();
        atomicAdd(out + blockIdx.x * tiles + tiles - left, now[threadIdx.x] + now[191 - threadIdx.x]);
        unsigned* used = now;
        now = next;
        next = used;
    }
}
