// title: the form with S - 1 loads ahead, which one stage has none of
// scores: results 3.5, edges 2.4
// says: Right with S = 2, 3, 5, 8
// base: right_one_barrier.cu
<<<<
    constexpr int AHEAD = STAGES > 1 ? STAGES - 1 : 1;
====
    constexpr int AHEAD = STAGES - 1;
>>>>
<<<<
        __pipeline_wait_prior(AHEAD - 1);
====
        __pipeline_wait_prior(STAGES - 2);
>>>>
<<<<
        if (STAGES > 1) load(t + AHEAD);
====
        load(t + AHEAD);
>>>>
<<<<
        if (STAGES == 1) {
            __syncthreads();
            load(t + 1);
        }

====

>>>>
