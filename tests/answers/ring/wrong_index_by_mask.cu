// title: t & (S - 1) in place of t % S: right for powers of two
// scores: results 1.78, edges 2, flight 1.5
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
ring[t % STAGES][r * 128 + threadIdx.x];
====
ring[t & (STAGES - 1)][r * 128 + threadIdx.x];
>>>>
