// title: waits are of the warp, not of the block
// scores: results 0, buffer 0, edges 2
// says: Missing ready edge
// base: right_plain.cu
<<<<
        __syncthreads();                                    // wait: the whole tile is there
====
        __syncwarp();
>>>>
<<<<
        __syncthreads();                                    // wait: everyone has read it
====
        __syncwarp();
>>>>
