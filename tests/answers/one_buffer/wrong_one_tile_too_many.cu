// title: the loop runs one tile too far
// scores: runs 0, results 0, buffer 0, edges 0
// says: past the end
// base: right_plain.cu
<<<<
for (int t = 0; t < tiles; ++t) {
====
for (int t = 0; t <= tiles; ++t) {
>>>>
