// title: REUSE=0 defines it too
// scores: experiment 0, counts 0
// says: nothing is missing
// base: right_copy_groups.cu
<<<<
        if (REUSE) __syncthreads();                         // everyone has read t: reuse
====
#ifdef REUSE
        __syncthreads();
#endif
>>>>
