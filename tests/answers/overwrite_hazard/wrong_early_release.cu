// title: consumers release a stage before they have read it
// scores: edges 1, experiment 0, counts 0
// says: No warp arrives after the read
// base: right_mbarriers.cu
<<<<
        mbarrier_arrive(&empty[t % 2]);

====

>>>>
<<<<
        unsigned sum = 0;

====
        mbarrier_arrive(&empty[t % 2]);
        unsigned sum = 0;

>>>>
