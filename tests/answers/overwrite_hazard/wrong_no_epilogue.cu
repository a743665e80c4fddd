// title: the last row is never read
// scores: results 0, edges 0, stages 0, experiment 0, counts 0, picture 0
// says: it still holds the zero
// base: right_copy_groups.cu
<<<<
    add(&checksums[tiles - 1], weighted(stage[(tiles - 1) % 2]));

====

>>>>
