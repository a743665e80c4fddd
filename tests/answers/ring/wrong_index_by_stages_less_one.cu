// title: tiles are read from stage t % (S - 1)
// scores: results 1.33, edges 1.5, flight 0
// says: Missing
// base: right_copy_groups.cu
<<<<
ring[t % STAGES][r * 128 + threadIdx.x];
====
ring[t % (STAGES > 1 ? STAGES - 1 : 1)][r * 128 + threadIdx.x];
>>>>
