// title: += in place of atomicAdd: two halves update one word, which warps in turn never show
// scores: edges 0
// says: Race in global memory
// base: right_plain.cu
<<<<
atomicAdd(&moments[k * columns + blockIdx.x * COLUMNS + column], m[k]);
====
moments[k * columns + blockIdx.x * COLUMNS + column] += m[k];
>>>>
