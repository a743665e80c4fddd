// title: the barrier stands before the wait: it says nothing of the others' copies
// scores: results 0, edges 2
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
        __pipeline_wait_prior(0);
        __syncthreads();
====
        __syncthreads();
        __pipeline_wait_prior(0);
>>>>
