// title: the wait waits for the tile that was only just begun: right, and no overlap
// scores: overlap 0
// says: a wait for too many
// base: right_copy_groups.cu
<<<<
__pipeline_wait_prior(1);                           // t has landed; t + 1 need not have
====
__pipeline_wait_prior(0);                           // t has landed; t + 1 need not have
>>>>
