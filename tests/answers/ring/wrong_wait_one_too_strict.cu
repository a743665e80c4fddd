// title: the wait asks for the next tile, too
// scores: flight 0
// says: count the groups that were committed after
// base: right_copy_groups.cu
<<<<
        __pipeline_wait_prior(STAGES - 1);
====
        __pipeline_wait_prior(STAGES > 1 ? STAGES - 2 : 0);
>>>>
