// title: a semicolon is missing
// scores: runs 0, results 0, edges 0, stages 0, experiment 0, counts 0, picture 0
// says: expected a ";"
// base: right_copy_groups.cu
<<<<
    unsigned sum = 0;

====
    unsigned sum = 0

>>>>
