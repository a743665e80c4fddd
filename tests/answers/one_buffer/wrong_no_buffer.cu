// title: computes from global memory, without a buffer
// scores: buffer 0
// says: seen to be read
// base: right_plain.cu
<<<<
unsigned v = tile[r][column];
====
unsigned v = strip[(size_t)(t * ROWS + r) * columns + column];
>>>>
<<<<
            *(uint4*)&tile[word / COLUMNS][word % COLUMNS] = part[i];
====

>>>>
