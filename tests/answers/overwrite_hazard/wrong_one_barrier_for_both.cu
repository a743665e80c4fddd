// title: the next load begins behind the barrier for readiness, which is the one for reuse too
// scores: experiment 0, counts 0
// says: does another barrier serve both edges?
// base: right_copy_groups.cu
<<<<
        start_load(stage[(t + 1) % 2], x + (size_t)(t + 1) * COLUMNS);
        __pipeline_wait_prior(1);                           // t has landed ...
====
        __pipeline_wait_prior(0);
>>>>
<<<<
        __syncthreads();                                    // ... for everyone: ready
====
        __syncthreads();                                    // ... for everyone: ready
        start_load(stage[(t + 1) % 2], x + (size_t)(t + 1) * COLUMNS);
>>>>
