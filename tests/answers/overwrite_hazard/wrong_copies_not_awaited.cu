// title: REUSE=0 does not wait for the copies either
// scores: experiment 1, counts 0
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
        __pipeline_wait_prior(1); 
====
        if (REUSE) __pipeline_wait_prior(1); 
>>>>
