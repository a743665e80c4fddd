// The wait comes before the barrier.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned s[512];
    const unsigned t = threadIdx.x;
    copy16(s + 4 * t, in + 4 * t);
    commit();
    wait_group<0>();
    __syncthreads();
    out[t] = s[4 * (t ^ 32)];
}
