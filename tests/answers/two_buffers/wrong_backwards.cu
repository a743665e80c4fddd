// title: the filter runs the other way round the ring
// scores: results 0, edges 0, buffers 0, overlap 0
// says: Wrong in every order
// base: right_copy_groups.cu
<<<<
(i + k) % SAMPLES
====
(i - k + SAMPLES) % SAMPLES
>>>>
