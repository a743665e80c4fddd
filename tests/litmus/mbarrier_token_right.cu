// Thread 32 leaves the barrier after phase 0. What thread 0 wrote for phase 1 takes a wait for phase 1.
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
        wait(&turn, 1);
        out[0] = s;
    }
}
