// A barrier alone: the tensor cores read through the async proxy.
#include <course_pipeline.cuh>
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ __align__(1024) unsigned a[2048], b[2048];
    const unsigned t = threadIdx.x;
    for (int i = t; i < 2048; i += 128) a[i] = b[i] = in[t];
    __syncthreads();
    float sums[32] = {};
    wgmma_fence();
    wgmma<64>(sums, wgmma_descriptor(a), wgmma_descriptor(b));
    wgmma_commit();
    __syncthreads();
    wgmma_wait();
    out[t] = sums[0];
}
