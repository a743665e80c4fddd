// title: the version without the wait begins its loads at another place, too
// scores: experiment 0, counts 0
// says: nothing is missing
// base: right_copy_groups.cu
<<<<
        start_load(stage[(t + 1) % 2], x + (size_t)(t + 1) * COLUMNS);

====
        if (REUSE) start_load(stage[(t + 1) % 2], x + (size_t)(t + 1) * COLUMNS);

>>>>
<<<<
        __pipeline_wait_prior(1);  
====
        if (REUSE) __pipeline_wait_prior(1); else __pipeline_wait_prior(0);  
>>>>
<<<<
        add(&checksums[t], weighted(stage[t % 2]));
====
        if (!REUSE) start_load(stage[(t + 1) % 2], x + (size_t)(t + 1) * COLUMNS);
        add(&checksums[t], weighted(stage[t % 2]));
>>>>
