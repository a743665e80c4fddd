// title: REUSE decides about the consumers' arrival, so without it the producer waits for ever
// scores: experiment 0, counts 0
// says: Is only the wait itself gone
// base: right_mbarriers.cu
<<<<
#if REUSE

====

>>>>
<<<<
#endif

====

>>>>
<<<<
        mbarrier_arrive(&empty[t % 2]);
====
        if (REUSE) mbarrier_arrive(&empty[t % 2]);
>>>>
