// title: REUSE=0 takes the barrier for readiness away as well
// scores: experiment 1, counts 0
// says: not only the reuse edge is missing
// base: right_copy_groups.cu
<<<<
        __syncthreads();                                    // ... for everyone: ready
====
        if (REUSE) __syncthreads();                                    // ... for everyone: ready
>>>>
