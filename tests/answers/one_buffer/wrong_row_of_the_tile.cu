// title: the row number counts from the top of the tile
// scores: results 1.5
// says: Wrong in every order
// base: right_plain.cu
<<<<
v *= t * ROWS + r) m
====
v *= r) m
>>>>
