// Phases 0 and 1 are over, and known to be, before thread 32 waits for parity 0: it names phase 2.
extern "C" __global__ void litmus(const unsigned* in, unsigned* out) {
    __shared__ u64 turn;
    __shared__ unsigned s;
    const unsigned t = threadIdx.x;
    const bool takes_part = t == 0 || t == 64;
    if (t == 0) init(&turn, 2);
    __syncthreads();
    for (unsigned phase = 0; phase < 2 && takes_part; ++phase) {
        arrive(&turn);
        wait(&turn, phase);
    }
    __syncthreads();
    if (t == 0) s = in[0];
    if (takes_part) arrive(&turn);
    if (t == 32) {
        wait(&turn, 0);
        out[0] = s;
    }
}
