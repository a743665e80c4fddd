// title: the wait for reuse is one of each warp
// scores: results 1, edges 1, experiment 0, counts 0
// says: Missing reuse edge
// base: right_copy_groups.cu
<<<<
        if (REUSE) __syncthreads();                         // everyone has read t: reuse
====
        if (REUSE) __syncwarp();                         // everyone has read t: reuse
>>>>
