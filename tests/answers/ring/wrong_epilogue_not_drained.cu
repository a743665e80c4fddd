// title: the loop ends when nothing is left to load
// scores: results 0, edges 0, stages 0, flight 0
// says: still holds the zero
// base: right_copy_groups.cu
<<<<
    for (int t = 0; t < tiles; ++t) {
====
    for (int t = 0; t + STAGES - 1 < tiles; ++t) {
>>>>
