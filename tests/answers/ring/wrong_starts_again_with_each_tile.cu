// title: the values are not carried from tile to tile
// scores: results 0.44
// says: is no matter of luck
// base: right_copy_groups.cu
<<<<
        for (int r = 0; r < 8; ++r) {
====
        for (int i = 0; i < 4; ++i) y[i] = 0;
        for (int r = 0; r < 8; ++r) {
>>>>
