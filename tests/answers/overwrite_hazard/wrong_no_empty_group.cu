// title: the last iteration counts a group that is not there
// scores: results 0, edges 1, experiment 0, counts 0
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
t + 1 < tiles; ++t
====
t < tiles; ++t
>>>>
<<<<
        start_load(stage[(t + 1) % 2]
====
        if (t + 1 < tiles) start_load(stage[(t + 1) % 2]
>>>>
<<<<
    __pipeline_wait_prior(0);                               // epilogue
    __syncthreads();
    add(&checksums[tiles - 1], weighted(stage[(tiles - 1) % 2]));

====

>>>>
