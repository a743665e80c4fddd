// title: the wait lets two groups be on their way
// scores: results 1, edges 2
// says: Missing ready edge
// base: right_copy_groups.cu
<<<<
__pipeline_wait_prior(1);                           // t has landed; t + 1 need not have
====
__pipeline_wait_prior(2);                           // t has landed; t + 1 need not have
>>>>
