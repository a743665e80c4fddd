// title: the counts of the two halves are swapped
// scores: counts 1
// says: Is the order `delayed`, `undelayed`?
// literals: failed_delayed = 0; failed_undelayed = 500
// base: right_copy_groups.cu
