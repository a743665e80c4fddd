// bar.arrive does not wait: the arriving warp reads what the other wrote before its bar.sync.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    if (t < 32) {
        bar_arrive(1, 64);
        out[t] = s[t];
    } else {
        s[t - 32] = in[t];
        bar_sync(1, 64);
    }
}
