// title: no barrier between the wait and the reads
// scores: results 1, edges 2
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
__pipeline_wait_prior(1);                           // t has landed; t + 1 need not have
        __syncthreads();
====
__pipeline_wait_prior(1);                           // t has landed; t + 1 need not have
>>>>
