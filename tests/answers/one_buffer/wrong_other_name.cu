// title: the kernel has another name
// scores: runs 0, results 0, buffer 0, edges 0
// says: does not compile
// base: right_plain.cu
<<<<
%%cuda one_buffer_moments
====
%%cuda moments_of_columns
>>>>
<<<<
one_buffer_moments(const
====
moments_of_columns(const
>>>>
