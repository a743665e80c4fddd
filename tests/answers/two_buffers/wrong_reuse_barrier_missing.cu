// title: no barrier between reading and the next load into the buffer
// scores: results 1.67, edges 2
// says: Missing reuse edge
// base: right_copy_groups.cu
<<<<
        __syncthreads();                                    // everyone has read t

====

>>>>
