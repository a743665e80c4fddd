// title: the rule of lesson 06, where there is no room for so many, and no tile
// scores: prediction 1.5
// says: How many tiles are there
// literals: S_full_sm = 8; S_short_K = 8
// base: right_copy_groups.cu
