// Two warps meet at barrier 1; the third, which is not part of it, reads their words.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    if (t < 64) {
        s[t] = in[t];
        bar_sync(1, 64);
    } else {
        out[t] = s[t - 64];
    }
}
