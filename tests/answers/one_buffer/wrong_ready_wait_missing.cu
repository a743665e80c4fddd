// title: no wait between loading and computing
// scores: results 0, buffer 0, edges 0
// says: Missing ready edge
// base: right_plain.cu
<<<<
        __syncthreads();                                    // wait: the whole tile is there
====

>>>>
