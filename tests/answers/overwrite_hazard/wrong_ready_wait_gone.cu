// title: REUSE decides about the wrong one of the two barriers
// scores: experiment 0, counts 0
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
        __syncthreads();                                    // ... for everyone: ready
====
        if (REUSE) __syncthreads();                                    // ... for everyone: ready
>>>>
<<<<
        if (REUSE) __syncthreads();                         // everyone has read t: reuse
====
        __syncthreads();                         // everyone has read t: reuse
>>>>
