// title: shared memory for eight stages, however many are used
// scores: stages 1.33
// says: room for 8 tiles; the exercise asks for 3
// base: right_copy_groups.cu
<<<<
    __shared__ __align__(16) unsigned ring[STAGES][TILE];
====
    __shared__ __align__(16) unsigned ring[8][TILE];
>>>>
