"""One ring of stages for the tests; each broken case is one define away from the right kernel."""

from __future__ import annotations

from functools import cache

RING = r"""#include <cuda_pipeline.h>
#define TILE 1024
#define THREADS 128
extern "C" __global__ void ring(const unsigned* x, unsigned* out, int tiles) {
    __shared__ __align__(16) unsigned stage[STAGES][TILE];
    const unsigned* mine = x + (size_t)blockIdx.x * tiles * TILE;
    auto load = [&](int t) {
        if (t < tiles)
            for (int i = 0; i < TILE / 4 / THREADS; ++i) {
                const int e = (i * THREADS + threadIdx.x) * 4;
                __pipeline_memcpy_async(&stage[t % STAGES][e], mine + t * TILE + e, 16);
            }
        __pipeline_commit();
    };
    for (int s = 0; s < STAGES; ++s) load(s);
    for (int t = 0; t < tiles; ++t) {
#ifndef NO_WAIT
        __pipeline_wait_prior(STAGES - 1);
#endif
        __syncthreads();
        unsigned sum = 0;
        for (int i = threadIdx.x % 32; i < TILE / 4; i += 32)
            sum += stage[t % STAGES][threadIdx.x / 32 * (TILE / 4) + i];
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0) atomicAdd(&out[blockIdx.x * tiles + t], sum);
#ifndef NO_REUSE
        __syncthreads();
#endif
        load(t + STAGES);
    }
}
"""


@cache
def ring(stages: int = 2, *broken: str):
    """The compiled ring; ``broken`` names defines such as ``NO_WAIT``."""
    from course_lib.kernel import compile_kernel

    defines = {"STAGES": stages, **dict.fromkeys(broken, 1)}
    return compile_kernel(RING, "ring", defines, threads=128)


def problem(tiles: int = 6, blocks: int = 2):
    """A small reduction whose tiles the ring has."""
    from course_lib.problems import TileReduction

    return TileReduction.of_tiles(tiles, blocks, tile_elements=1024, threads=128)


def line_of(text: str, nth: int = 0) -> int:
    """The 1-based line of the ring that contains ``text``."""
    return [i for i, line in enumerate(RING.splitlines(), 1) if text in line][nth]
