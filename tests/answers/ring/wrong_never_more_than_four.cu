// title: a ring of at most four stages, whatever STAGES says
// scores: flight 1.5
// says: in flight
// base: right_copy_groups.cu
<<<<
#define THREADS 128
====
#define THREADS 128
#define RING (STAGES < 4 ? STAGES : 4)
>>>>
<<<<
    __shared__ __align__(16) unsigned ring[STAGES][TILE];
====
    __shared__ __align__(16) unsigned ring[RING][TILE];
>>>>
<<<<
    for (int t = 0; t < STAGES; ++t) {
====
    for (int t = 0; t < RING; ++t) {
>>>>
<<<<
        __pipeline_wait_prior(STAGES - 1);
====
        __pipeline_wait_prior(RING - 1);
>>>>
<<<<
ring[t % STAGES][r * 128
====
ring[t % RING][r * 128
>>>>
<<<<
        if (t + STAGES < tiles) load(ring[t % STAGES], mine + (t + STAGES) * TILE);
        __pipeline_commit();
====
        if (t + RING < tiles) load(ring[t % RING], mine + (t + RING) * TILE);
        __pipeline_commit();
>>>>
