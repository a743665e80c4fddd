// title: no wait between computing and the next load
// scores: results 1.5, edges 2
// says: Missing reuse edge
// base: right_plain.cu
<<<<
        __syncthreads();                                    // wait: everyone has read it
====

>>>>
