// title: chooses the ready edge
// scores: edge 0
// says: That is the ready edge
// literals: before = "B"; after = "C"
// base: right_copy_groups.cu
