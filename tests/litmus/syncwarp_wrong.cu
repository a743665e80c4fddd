// Nothing stands between the write and another lane's read: lanes need not run in step.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ unsigned s[128];
    const unsigned t = threadIdx.x;
    s[t] = in[t];
    out[t] = s[t ^ 1];
}
