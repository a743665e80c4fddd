// title: the array has four stages, the ring up to eight
// scores: results 2.22, edges 1, stages 1.33, flight 1.5
// says: S = 6
// base: right_copy_groups.cu
<<<<
    __shared__ __align__(16) unsigned ring[STAGES][TILE];
====
    __shared__ __align__(16) unsigned ring[4][TILE];
>>>>
