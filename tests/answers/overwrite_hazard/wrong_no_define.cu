// title: there is one version only
// scores: experiment 0, counts 0
// says: `REUSE` does not occur in the source
// base: right_copy_groups.cu
<<<<
%%cuda row_checksums -DREUSE=1 -DSLOW=1 --threads 256
====
%%cuda row_checksums -DSLOW=1 --threads 256
>>>>
<<<<
// REUSE is 1, and 0 in the experimental version: it may decide about the wait for reuse, nothing else.
====

>>>>
<<<<
        if (REUSE) __syncthreads();                         // everyone has read t: reuse
====
        __syncthreads();
>>>>
