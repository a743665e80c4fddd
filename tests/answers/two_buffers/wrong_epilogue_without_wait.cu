// title: the epilogue does not wait for its tile
// scores: results 0, edges 2
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
    __pipeline_wait_prior(0);                               // epilogue

====

>>>>
