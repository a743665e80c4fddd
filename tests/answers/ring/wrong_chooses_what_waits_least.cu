// title: the S that was chosen takes twice as long as the fastest
// scores: sweep 0
// says: times as long as the fastest
// literals: best_S = 1
// base: right_copy_groups.cu
