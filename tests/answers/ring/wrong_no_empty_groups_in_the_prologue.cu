// title: the prologue commits only the tiles that there are
// scores: results 2.5, edges 1.5
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
        if (t < tiles) load(ring[t], mine + t * TILE);
        __pipeline_commit();
====
        if (t < tiles) {
            load(ring[t], mine + t * TILE);
            __pipeline_commit();
        }
>>>>
