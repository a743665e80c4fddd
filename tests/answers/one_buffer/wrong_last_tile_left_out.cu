// title: the loop ends one tile early
// scores: results 0, buffer 0, edges 0
// says: Wrong in every order
// base: right_plain.cu
<<<<
for (int t = 0; t < tiles; ++t) {
====
for (int t = 0; t < tiles - 1; ++t) {
>>>>
