// title: the sum of each row, as in the lessons
// scores: results 0, edges 0, stages 0, experiment 0, counts 0, picture 0
// says: Wrong in every order
// base: right_copy_groups.cu
<<<<
sum += (2 * c + 1) * work(stage[c]);
====
sum += work(stage[c]);
>>>>
