// title: all failures in one half
// scores: counts 0
// says: 500 have a delayed warp
// literals: failed_delayed = 1000
// base: right_copy_groups.cu
