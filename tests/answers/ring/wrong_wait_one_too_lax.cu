// title: the wait lets the group of the very tile be on its way
// scores: results 0, edges 1.5
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
        __pipeline_wait_prior(STAGES - 1);
====
        __pipeline_wait_prior(STAGES);
>>>>
