// title: 100 iterations
// scores: counts 0
// says: 100 iterations are too few
// literals: iterations = 100; failed_delayed = 50
// base: right_copy_groups.cu
