// title: the number of stages is written into the kernel
// scores: results 0, edges 0, stages 0, flight 0
// says: `STAGES` does not occur in the source
// base: right_copy_groups.cu
<<<<
 -DSTAGES=3
====

>>>>
<<<<
#define THREADS 128
====
#define THREADS 128
enum { RING = 3 };
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
