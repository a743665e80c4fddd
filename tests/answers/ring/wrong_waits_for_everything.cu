// title: a ring of loads, each waited for before anything is read
// scores: flight 0
// says: 0 tiles in flight
// base: right_copy_groups.cu
<<<<
        __pipeline_wait_prior(STAGES - 1);
====
        __pipeline_wait_prior(0);
>>>>
