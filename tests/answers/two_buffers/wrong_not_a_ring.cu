// title: the signal does not close: the last samples read past the tile
// scores: runs 0, results 0, edges 0, buffers 0, overlap 0
// says: past its end
// base: right_copy_groups.cu
<<<<
buffer[(i + k) % SAMPLES]
====
buffer[i + k]
>>>>
