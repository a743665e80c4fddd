// title: the right events the wrong way round
// scores: edge 0.5
// says: the wrong way round
// literals: before = "G"; after = "E"
// base: right_copy_groups.cu
