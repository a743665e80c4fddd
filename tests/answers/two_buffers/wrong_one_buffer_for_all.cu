// title: loads into the buffer that is being read
// scores: results 1, edges 2, overlap 0
// says: Missing reuse edge
// base: right_copy_groups.cu
<<<<
start_load(buffer[(t + 1) % 2],
====
start_load(buffer[t % 2],
>>>>
