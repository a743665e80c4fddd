// title: the next tile is stored before this one is computed: two buffers that wait for each load
// scores: overlap 0
// says: over before the computation
// base: right_register_prefetch.cu
<<<<
            for (int i = 0; i < 4; ++i) part[i] = from[i * 256];
        for
====
            for (int i = 0; i < 4; ++i) ((uint4*)buffer[1 - t % 2])[i * 256 + threadIdx.x] = from[i * 256];
        for
>>>>
<<<<
        if (more)
            for (int i = 0; i < 4; ++i) ((uint4*)buffer[1 - t % 2])[i * 256 + threadIdx.x] = part[i];
        __sync
====
        __sync
>>>>
