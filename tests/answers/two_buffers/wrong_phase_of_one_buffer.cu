// title: the parity flips with every tile, as with one buffer
// scores: runs 0, results 1, edges 0, buffers 0, overlap 0
// says: deadlocked
// base: right_bulk_copies.cu
<<<<
t / 2 % 2
====
t % 2
>>>>
