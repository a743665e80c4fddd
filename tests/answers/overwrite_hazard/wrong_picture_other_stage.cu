// title: the right tiles, the other stage
// scores: picture 0
// says: Tile 4 is not in stage 1
// literals: stage = 1
// base: right_copy_groups.cu
