// title: the prologue loads tiles beyond the end of K
// scores: results 2.5, edges 0
// says: past the end of x
// base: right_copy_groups.cu
<<<<
        if (t < tiles) load(ring[t], mine + t * TILE);
====
        load(ring[t], mine + t * TILE);
>>>>
