// title: both halves compute the first 16 rows
// scores: results 0, buffer 0, edges 0
// says: Wrong in every order
// base: right_plain.cu
<<<<
r = half * ROWS / 2; r < (half + 1) * ROWS / 2
====
r = 0; r < ROWS / 2
>>>>
