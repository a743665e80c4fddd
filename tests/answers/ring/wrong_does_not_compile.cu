// title: a semicolon is missing
// scores: runs 0, results 0, edges 0, stages 0, flight 0
// says: does not compile
// base: right_copy_groups.cu
<<<<
    unsigned y[4] = {};
====
    unsigned y[4] = {}
>>>>
