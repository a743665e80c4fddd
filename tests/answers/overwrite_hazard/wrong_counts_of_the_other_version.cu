// title: the counts of the two versions are swapped
// scores: counts 0
// says: 500 failures with the wait?
// literals: failed_with_reuse = 500; failed_delayed = 0
// base: right_copy_groups.cu
