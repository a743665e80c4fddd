// title: the epilogue always reads buffer 0: right for odd numbers of tiles
// scores: results 1.67
// says: Right for 1 of 3 shapes
// base: right_copy_groups.cu
<<<<
filter(buffer[(tiles - 1) % 2], y
====
filter(buffer[0], y
>>>>
