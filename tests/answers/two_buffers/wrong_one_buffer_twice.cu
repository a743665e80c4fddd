// title: one buffer: each tile is loaded after the last was computed
// scores: overlap 0
// says: must begin before
// base: right_copy_groups.cu
<<<<

    start_load(buffer[0], x);                               // prologue
    for (int t = 0; t + 1 < tiles; ++t) {                   // steady state
        start_load(buffer[(t + 1) % 2], x + (size_t)(t + 1) * SAMPLES);
        __pipeline_wait_prior(1);                           // t has landed; t + 1 need not have
====

    for (int t = 0; t < tiles; ++t) {
        start_load(buffer[t % 2], x + (size_t)t * SAMPLES);
        __pipeline_wait_prior(0);
>>>>
<<<<
        filter(buffer[t % 2], y + (size_t)t * SAMPLES);
        __syncthreads();                                    // everyone has read t
====
        filter(buffer[t % 2], y + (size_t)t * SAMPLES);
        __syncthreads();
>>>>
<<<<
    }
    __pipeline_wait_prior(0);                               // epilogue
    __syncthreads();
    filter(buffer[(tiles - 1) % 2], y + (size_t)(tiles - 1) * SAMPLES);
====
    }
>>>>
