// title: read from global memory, with no ring at all
// scores: stages 0, flight 0
// says: tiles are seen to be read from shared memory
// base: right_copy_groups.cu
<<<<
    __shared__ __align__(16) unsigned ring[STAGES][TILE];

====

>>>>
<<<<
    for (int t = 0; t < STAGES; ++t) {
        if (t < tiles) load(ring[t], mine + t * TILE);
        __pipeline_commit();
    }

====

>>>>
<<<<
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();

====

>>>>
<<<<
ring[t % STAGES][r * 128 + threadIdx.x]
====
mine[t * TILE + STAGES * 0 + r * 128 + threadIdx.x]
>>>>
<<<<
        __syncthreads();
        if (t + STAGES < tiles) load(ring[t % STAGES], mine + (t + STAGES) * TILE);
        __pipeline_commit();

====

>>>>
