// A token names one phase: thread 32 has waited for phase 0, and the word is written in phase 1.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 turn;
    __shared__ unsigned s;
    const unsigned t = threadIdx.x;
    if (t == 0) init(&turn, 2);
    __syncthreads();
    if (t == 0) {
        wait_token(&turn, arrive_token(&turn));
        s = in[0];
        arrive(&turn);
    } else if (t == 32) {
        wait_token(&turn, drop_token(&turn));
        out[0] = s;
    }
}
