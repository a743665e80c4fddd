// title: the weights are 1, 2, 3 …
// scores: results 0, edges 0, stages 0, experiment 0, counts 0, picture 0
// says: it should be
// base: right_copy_groups.cu
<<<<
(2 * c + 1) * work
====
(c + 1) * work
>>>>
