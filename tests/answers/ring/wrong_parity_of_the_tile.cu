// title: the parity follows the tile, not the turn of the ring
// scores: runs 0, results 0.44, edges 0, flight 0
// says: is deadlocked
// base: right_bulk_copies.cu
<<<<
        mbarrier_wait(&full[s], t / STAGES & 1);
====
        mbarrier_wait(&full[s], t & 1);
>>>>
