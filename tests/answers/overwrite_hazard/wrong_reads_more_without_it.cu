// title: without the wait, every thread also reads a word more
// scores: experiment 2, counts 0
// says: must decide about the wait alone
// base: right_copy_groups.cu
<<<<
        add(&checksums[t], weighted(stage[t % 2]));
====
        add(&checksums[t], weighted(stage[t % 2]));
        if (!REUSE) add(&checksums[t], stage[t % 2][threadIdx.x] & tiles >> 30);
>>>>
