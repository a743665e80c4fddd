// title: takes the tile of the other stage
// scores: picture 0
// says: Your ring has 2 stages
// literals: loaded_tile = 5
// base: right_copy_groups.cu
