// title: stores in place of adding: the later half wins
// scores: results 0, buffer 0, edges 0
// says: Wrong in every order
// base: right_plain.cu
<<<<
atomicAdd(&moments[k * columns + blockIdx.x * COLUMNS + column], m[k]);
====
moments[k * columns + blockIdx.x * COLUMNS + column] = m[k];
>>>>
