// title: no barrier between reading a tile and loading over it
// scores: results 2.33, edges 1.5
// says: Missing reuse edge
// base: right_copy_groups.cu
<<<<
        __syncthreads();
        if (t + STAGES < tiles) load(ring[t % STAGES], mine + (t + STAGES) * TILE);
        __pipeline_commit();
====
        if (t + STAGES < tiles) load(ring[t % STAGES], mine + (t + STAGES) * TILE);
        __pipeline_commit();
>>>>
