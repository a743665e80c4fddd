// What a warp wrote before bar.arrive is read by the warp that waits there.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    if (t < 32) {
        s[t] = in[t];
        bar_arrive(1, 64);
    } else {
        bar_sync(1, 64);
        out[t] = s[t - 32];
    }
}
