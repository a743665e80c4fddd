// title: no group is committed where nothing is left to load
// scores: results 0.44, edges 1.5
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
        if (t + STAGES < tiles) load(ring[t % STAGES], mine + (t + STAGES) * TILE);
        __pipeline_commit();
====
        if (t + STAGES < tiles) {
            load(ring[t % STAGES], mine + (t + STAGES) * TILE);
            __pipeline_commit();
        }
>>>>
