// The answer comes back through a second barrier.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    if (t < 32) {
        bar_arrive(1, 64);
        bar_sync(2, 64);
        out[t] = s[t];
    } else {
        s[t - 32] = in[t];
        bar_sync(1, 64);
        bar_arrive(2, 64);
    }
}
