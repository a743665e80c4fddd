// Committed, the copy is in a group that the wait waits for.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned s[32];
    __shared__ u64 landed;
    const unsigned t = threadIdx.x;
    if (t == 0) {
        init(&landed, 1);
        copy16(s, in);
        commit();
        arrive_behind_copies(&landed);
        wait_group<0>();
        out[0] = s[0];
    }
}
