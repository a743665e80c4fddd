// title: the wait without the barrier: only the thread's own copies are there
// scores: results 0, edges 0, stages 0, flight 0
// says: These points need right results first
// base: right_copy_groups.cu
<<<<
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();
====
        __pipeline_wait_prior(STAGES - 1);
>>>>
