// The warp writes after its bar.arrive.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    if (t < 32) {
        bar_arrive(1, 64);
        s[t] = in[t];
    } else {
        bar_sync(1, 64);
        out[t] = s[t - 32];
    }
}
