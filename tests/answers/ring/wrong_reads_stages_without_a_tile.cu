// title: the loop goes round the whole ring, even where K is shorter
// scores: results 2.5
// says: Wrong with 1 tile
// base: right_copy_groups.cu
<<<<
    for (int t = 0; t < tiles; ++t) {
====
    for (int t = 0; t < tiles || t < STAGES; ++t) {
>>>>
