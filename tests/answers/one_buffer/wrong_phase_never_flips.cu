// title: waits for the same phase of the mbarrier again and again
// scores: runs 0, results 1.5, buffer 0, edges 0
// says: deadlocked
// base: right_bulk_copies.cu
<<<<
mbarrier_wait(&full, t & 1)
====
mbarrier_wait(&full, 0)
>>>>
