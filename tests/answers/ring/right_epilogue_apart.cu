// title: an epilogue of its own that waits for everything that is left
// scores: full
// base: right_copy_groups.cu
<<<<
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(STAGES - 1);
====
    for (int t = 0; t < tiles; ++t) {
        if (t + STAGES <= tiles) __pipeline_wait_prior(STAGES - 1);
        else __pipeline_wait_prior(0);
>>>>
<<<<
        if (t + STAGES < tiles) load(ring[t % STAGES], mine + (t + STAGES) * TILE);
        __pipeline_commit();
====
        if (t + STAGES < tiles) {
            load(ring[t % STAGES], mine + (t + STAGES) * TILE);
            __pipeline_commit();
        }
>>>>
