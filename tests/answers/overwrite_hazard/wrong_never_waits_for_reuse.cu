// title: neither version waits for the readers
// scores: results 1, edges 1, experiment 0, counts 0
// says: Only a right version shows
// base: right_copy_groups.cu
<<<<
        if (REUSE) __syncthreads();                         // everyone has read t: reuse
====
        if (REUSE) __pipeline_wait_prior(1);
>>>>
