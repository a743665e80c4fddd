// title: thinks of the warp that loads only
// scores: edge 0.5
// says: Whom does it not know of?
// literals: before = "D"
// base: right_copy_groups.cu
