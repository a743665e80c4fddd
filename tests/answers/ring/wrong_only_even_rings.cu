// title: two tiles in each turn of the loop, for an even number of stages
// scores: results 1.67, edges 1.2, stages 0, flight 2
// says: an even number of stages
// base: right_copy_groups.cu
<<<<
    __shared__ __align__(16) unsigned ring[STAGES][TILE];
====
    static_assert(STAGES % 2 == 0, "an even number of stages");
    __shared__ __align__(16) unsigned ring[STAGES][TILE];
>>>>
<<<<
-DSTAGES=3
====
-DSTAGES=4
>>>>
