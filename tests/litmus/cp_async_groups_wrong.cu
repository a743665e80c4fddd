// One group may be pending, and that is the one that is read.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned s[512];
    const unsigned t = threadIdx.x;
    copy16(s + 4 * t, in + 4 * t);
    commit();
    copy16(s + 256 + 4 * t, in + 256 + 4 * t);
    commit();
    wait_group<1>();
    out[t] = s[256 + 4 * t];
    wait_group<0>();
}
