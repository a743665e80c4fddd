"""Exercise 2: prologue, steady state, epilogue; any number of tiles, and a real overlap."""

from __future__ import annotations

from course_lib.checks import judging
from course_lib.checks.answers import kernel_in
from course_lib.checks.exercise import Answers, Exercise, Part
from course_lib.checks.judging import Judgement
from course_lib.kernel import Kernel
from course_lib.problems import CircularFilter

KERNEL = "two_buffers_filter"
SHAPES = tuple(
    CircularFilter.of_tiles(*shape, seed=22) for shape in ((1, 1), (2, 1), (3, 2), (5, 1), (8, 2))
)
"""Shapes for the results: fewer tiles than buffers, as many, odd numbers, and more."""
STAGED = CircularFilter.of_tiles(4, 1, seed=22)
TRACED = CircularFilter.of_tiles(12, 1, seed=22)
LEAST_OVERLAP = 0.3
"""Least share of loading or computing, whichever is shorter, that must happen beside the other."""

REFERENCE = """%%cuda one_buffer_filter --threads 256
#include <cuda_pipeline.h>
extern "C" __global__ void __launch_bounds__(256)
one_buffer_filter(const unsigned* __restrict__ x, unsigned* y, int tiles) {
    __shared__ __align__(16) unsigned s[4096];
    for (size_t at = (size_t)blockIdx.x * tiles * 4096; tiles--; at += 4096) {
        for (int i = threadIdx.x * 4; i < 4096; i += 1024)
            __pipeline_memcpy_async(s + i, x + at + i, 16);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        for (int i = threadIdx.x; i < 4096; i += 256)
            y[at + i] = 5 * s[i] + 11 * s[(i + 1) % 4096] + 3 * s[(i + 2) % 4096];
        __syncthreads();
    }
}
"""
"""One buffer, no overlap: what the bonus compares with."""
FULL_SIZE = CircularFilter(tiles=32, blocks=128)


def check_runs(answers: Answers) -> Judgement:
    """The kernel compiles, runs and writes something."""
    kernel = kernel_in(answers, KERNEL)
    return judging.runs(kernel, SHAPES[3]) if isinstance(kernel, Kernel) else (0.0, [kernel])


def check_results(answers: Answers) -> Judgement:
    """Results of all shapes."""
    kernel = kernel_in(answers, KERNEL)
    return judging.right(kernel, SHAPES) if isinstance(kernel, Kernel) else (0.0, [kernel])


def check_edges(answers: Answers) -> Judgement:
    """Every ordering edge."""
    kernel = kernel_in(answers, KERNEL)
    return judging.ordered(kernel, SHAPES[3]) if isinstance(kernel, Kernel) else (0.0, [kernel])


def check_buffers(answers: Answers) -> Judgement:
    """Two buffers, through which every tile goes once."""
    kernel = kernel_in(answers, KERNEL)
    if not isinstance(kernel, Kernel):
        return 0.0, [kernel]
    return judging.staged(kernel, STAGED, stages=2)


def check_overlap(answers: Answers) -> Judgement:
    """The next tile is on its way while one is consumed: by the timeline, not by the time."""
    kernel = kernel_in(answers, KERNEL)
    if not isinstance(kernel, Kernel):
        return 0.0, [kernel]
    why_not = judging.gate(kernel, SHAPES[3])
    if why_not:
        return 0.0, [why_not]
    try:
        found = judging.timeline(kernel, TRACED)
    except judging.CannotJudge as refused:
        return 0.0, [str(refused)]
    share, depth = judging.overlap(found), found.depth()
    if share >= LEAST_OVERLAP:
        words = f"{depth} tile{'s' * (depth != 1)} in flight while one is consumed"
        return 1.0, [f"It overlaps: {words}; {share:.0%} of what could happen together does."]
    if depth:
        return 0.0, [
            "The next load begins early enough, but it has to be over before the computation "
            "starts: no load is on its way while a tile is consumed. What waits for it: a wait for "
            "too many groups, or a store of what was just loaded? Look at trace(kernel, "
            "problem).plot()."
        ]
    return 0.0, [
        "No load is on its way while a tile is consumed: the next tile's load must begin before "
        "this tile's computation. Look at trace(kernel, problem).plot()."
    ]


def check_speed(answers: Answers) -> Judgement:
    """Clearly faster than one buffer, on a real GPU."""
    from course_lib.cuda_magic import kernel_from_text

    kernel = kernel_in(answers, KERNEL)
    if not isinstance(kernel, Kernel):
        return 0.0, [kernel]
    return judging.faster(kernel, kernel_from_text(REFERENCE), FULL_SIZE)


EXERCISE = Exercise(
    name="two_buffers",
    title="Exercise 2: Two buffers",
    kernels={KERNEL: "answer-kernel"},
    literals={},
    prose=("explain-test",),
    parts=(
        Part("runs", 1, check_runs),
        Part("results", 5, check_results),
        Part("edges", 4, check_edges),
        Part("buffers", 3, check_buffers),
        Part("overlap", 4, check_overlap),
        Part(
            "explain-test",
            3,
            rubric=(
                "1 point: says before measuring what must stay the same (bytes, arithmetic) and "
                "what must fall (waiting, time). 1 point: gives the measured figures of both "
                "versions with their device, and says of each whether it did. 1 point: concludes "
                "what they show, and why neither less waiting nor less time alone would."
            ),
        ),
    ),
    bonus=Part("speed", 1, check_speed),
)
