// title: only half of the threads come to the second wait
// scores: results 1.5, edges 2
// says: Missing reuse edge
// base: right_plain.cu
<<<<
        __syncthreads();                                    // wait: everyone has read it
====
        if (half == 0) __syncthreads();
>>>>
