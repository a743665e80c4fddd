// title: takes shared memory for two tiles
// scores: buffer 2
// says: room for
// base: right_plain.cu
<<<<
unsigned tile[ROWS][COLUMNS];
====
unsigned tile[2 * ROWS][COLUMNS];
>>>>
<<<<
*(uint4*)&tile[word / COLUMNS]
====
*(uint4*)&tile[t % 2 * ROWS + word / COLUMNS]
>>>>
<<<<
unsigned v = tile[r][column];
====
unsigned v = tile[t % 2 * ROWS + r][column];
>>>>
