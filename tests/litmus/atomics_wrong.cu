// A plain read beside the atomics.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[32], flag;
    const unsigned t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    atomicAdd(&flag, 1);
    out[t] = flag;
}
