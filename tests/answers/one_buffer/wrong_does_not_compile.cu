// title: a name that nobody declared
// scores: runs 0, results 0, buffer 0, edges 0
// says: does not compile
// base: right_plain.cu
<<<<
unsigned v = tile[r][column]
====
unsigned v = buffer[r][column]
>>>>
