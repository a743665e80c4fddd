// title: S stages, but each load begins only when its tile is wanted
// scores: flight 0
// says: 0 tiles in flight
// base: right_copy_groups.cu
<<<<
    for (int t = 0; t < STAGES; ++t) {
        if (t < tiles) load(ring[t], mine + t * TILE);
        __pipeline_commit();
    }

====

>>>>
<<<<
        __pipeline_wait_prior(STAGES - 1);
====
        load(ring[t % STAGES], mine + t * TILE);
        __pipeline_commit();
        __pipeline_wait_prior(0);
>>>>
<<<<

        if (t + STAGES < tiles) load(ring[t % STAGES], mine + (t + STAGES) * TILE);
        __pipeline_commit();
====

>>>>
