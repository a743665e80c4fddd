// title: REUSE is mentioned and decides about nothing
// scores: experiment 0, counts 0
// says: nothing is missing
// base: right_copy_groups.cu
<<<<
        if (REUSE) __syncthreads();                         // everyone has read t: reuse
====
        __syncthreads();                         // everyone has read t: reuse
>>>>
