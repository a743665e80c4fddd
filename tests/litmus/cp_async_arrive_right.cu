// The arrival is made when the thread's copies have landed.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 full;
    __shared__ __align__(16) unsigned s[128];
    const unsigned t = threadIdx.x;
    if (t == 0) init(&full, 32);
    __syncthreads();
    if (t < 32) {
        copy16(s + 4 * t, in + 4 * t);
        arrive_behind_copies(&full);
    } else {
        wait(&full, 0);
        out[t] = s[4 * (t - 32)];
    }
}
