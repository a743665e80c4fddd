"""A stress run inside the helper process: inputs, reference and comparison stay on the GPU.

Nothing waits for the device within a chunk of iterations, and a chunk brings home two numbers per
output and iteration: how many elements are wrong, and the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from course_lib.ptx import delays
from course_lib.real_gpu import copy_latency, device
from course_lib.stress_plan import Delay, consumers_of, delay_of, input_number

CHUNK = 50  #: iterations between two messages home


def stress_problem(
    kernel: dict[str, Any], problem: dict[str, Any], first: int, iterations: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yields what the run depends on, then a dictionary per chunk.

    The first has ``device``, ``consumers`` and ``latency_cycles``; the others ``done`` (iterations
    of the chunk) and ``wrong``: (iteration, output, wrong elements, first of them).
    """
    case = _Stress(kernel, problem, seed)
    yield {
        "device": device.properties()["name"],
        "consumers": case.consumers,
        "latency_cycles": case.latency,
        "latency_words": copy_latency.WORDS,
    }
    for begin in range(first, first + iterations, CHUNK):
        numbers = range(begin, min(begin + CHUNK, first + iterations))
        yield {"done": len(numbers), "wrong": case.run(numbers)}


class _Stress:
    """A kernel with delays, loaded, and the outputs that all its iterations write."""

    def __init__(self, kernel: dict[str, Any], problem: dict[str, Any], seed: int) -> None:
        import cupy

        from course_lib import problems
        from course_lib.kernel import Kernel

        self.kernel, self.problem = Kernel.from_spec(kernel), problems.from_spec(problem)
        self.seed = seed
        plain = self.kernel
        made = delays.delay(plain.ptx(), plain.module, plain.name)
        cubin = device.assembled(plain.rewritten(made.text, delays.EXTRA_PARAMETERS)).cubin
        self.threads = device.threads_of(plain, self.problem)
        self.loaded = device.load(cubin, plain.name, self.threads, int(plain.shared_bytes))
        self.grid = self.problem.grid(plain)
        self.outputs = self.problem.outputs(cupy)
        self._initial = {name: array.copy() for name, array in self.outputs.items()}
        self.latency = copy_latency.measure(plain.arch)
        self.consumers = consumers_of(self._census())

    def _census(self) -> Sequence[int]:
        """What each warp meets, over all blocks of one run without delays."""
        import cupy

        census = cupy.zeros(-(-self.threads // 32), cupy.uint32)
        self._launch(0, delays.launch_arguments(census=int(census.data.ptr)))
        return [int(met) for met in cupy.asnumpy(census)]

    def _launch(self, iteration: int, extra: Sequence[Any]) -> Any:
        """One launch on fresh inputs and outputs; the inputs."""
        import cupy

        inputs = self.problem.fresh_inputs(cupy, input_number(self.seed, iteration))
        for name, array in self.outputs.items():
            array[...] = self._initial[name]
        arguments = self.problem.arguments(self.kernel, inputs, self.outputs)
        self.loaded.launch(self.grid, [*arguments, *extra])
        return inputs

    def _extra(self, delay: Delay | None) -> tuple[Any, ...]:
        if delay is None:
            return delays.launch_arguments()
        classes = delays.READS
        classes |= delays.ARRIVES if delay.arrives else 0
        classes |= delays.WAITS if delay.waits else 0
        return delays.launch_arguments(delay.warp, classes, round(delay.factor * self.latency))

    def run(self, numbers: range) -> list[tuple[int, str, int, int]]:
        """Runs these iterations; the wrong ones."""
        import cupy

        names = list(self.outputs)
        found = cupy.zeros((len(numbers), len(names), 2), cupy.uint64)
        found[:, :, 1] = 1 << 62  # beyond any element
        for row, iteration in enumerate(numbers):
            extra = self._extra(delay_of(self.seed, iteration, self.consumers))
            inputs = self._launch(iteration, extra)
            reference = self.problem.reference(inputs)
            wrong = self.problem.wrong_elements(self.outputs, reference)
            for column, name in enumerate(names):
                _count_and_first()(wrong[name], found[row, column])
        home = cupy.asnumpy(found)
        return [
            (numbers[row], names[column], int(home[row, column, 0]), int(home[row, column, 1]))
            for row, column in np.argwhere(home[:, :, 0] > 0)
        ]


@cache
def _count_and_first() -> Any:
    import cupy

    return cupy.ElementwiseKernel(
        "bool wrong",
        "raw uint64 found",
        """
        if (wrong) {
            atomicAdd((unsigned long long*)&found[0], 1ull);
            atomicMin((unsigned long long*)&found[1], (unsigned long long)i);
        }
        """,
        "course_count_and_first",
    )
