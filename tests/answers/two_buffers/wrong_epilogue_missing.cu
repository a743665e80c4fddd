// title: the last tile is never computed
// scores: results 0, edges 0, buffers 0, overlap 0
// says: still holds the zero
// base: right_copy_groups.cu
<<<<
    filter(buffer[(tiles - 1) % 2], y + (size_t)(tiles - 1) * SAMPLES);

====

>>>>
