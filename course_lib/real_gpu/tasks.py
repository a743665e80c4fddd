"""Functions that run inside the helper process: plain data in, plain data out.

Kernels and problems come as their specs (``Kernel.to_spec``, ``problem.to_spec``) and are made
again here; inputs are drawn here, on the GPU's side, from the problem's seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.ptx import probes
from course_lib.real_gpu import device

#: Records per warp of the first attempt at a trace, and where growing stops.
FIRST_CAPACITY, LAST_CAPACITY = 2048, 1 << 17


def warm_up() -> None:
    """Makes the CUDA context and CuPy's own kernels, so that no deadline pays for them."""
    import cupy

    device.flush_l2()
    cupy.zeros(16, cupy.uint32).sum().item()
    cupy.cuda.get_current_stream().synchronize()


def device_info() -> dict[str, Any]:
    """:func:`course_lib.real_gpu.device.properties` of this process's device."""
    return device.properties()


def run_problem(
    kernel: dict[str, Any], problem: dict[str, Any], iteration: int = 0
) -> dict[str, Any]:
    """Runs a kernel once on a problem's inputs.

    Gives ``outputs`` (name -> NumPy array), ``microseconds`` of the launch with a cold cache, and
    the ``device``.
    """
    import cupy

    case = _Case(kernel, problem, iteration)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    device.flush_l2()
    begin.record()
    case.launch()
    end.record()
    end.synchronize()
    return {
        "outputs": {name: cupy.asnumpy(array) for name, array in case.outputs.items()},
        "microseconds": 1000 * float(cupy.cuda.get_elapsed_time(begin, end)),
        "device": device.properties()["name"],
    }


def time_kernels(
    kernels: dict[str, dict[str, Any]],
    problem: dict[str, Any],
    rounds: int = 20,
    seed: int = 0,
) -> dict[str, Any]:
    """Interleaved times of several kernels on one problem's inputs, L2 flushed before each."""
    cases = {label: _Case(spec, problem) for label, spec in kernels.items()}
    first = next(iter(cases.values()))
    for case in cases.values():
        case.inputs = first.inputs  # one copy of the data serves all
        case.bind()

    def prepare() -> None:
        for case in cases.values():
            case.reset()

    times = device.time_interleaved(
        [case.launch for case in cases.values()], rounds, prepare=prepare, seed=seed
    )
    return {
        "microseconds": {label: times[:, i].tolist() for i, label in enumerate(cases)},
        "device": device.properties()["name"],
        "l2_flushed": True,
    }


def trace_problem(
    kernel: dict[str, Any],
    problem: dict[str, Any],
    slots: int = 1,
    stride: int | None = None,
    rounds: int = 10,
    iteration: int = 0,
) -> dict[str, Any]:
    """Stamps a kernel (:mod:`course_lib.ptx.probes`), runs it and reads the stamps.

    Stamped are the blocks ``0, stride, 2*stride, …``; the default stride is the number of SMs,
    so that the blocks tend to share one SM and with it one clock.  Gives ``events`` and
    ``entries`` (arrays of ``probes.EVENT``), ``sites``, for each event the array it touches
    (``arrays``, ``offsets`` in bytes), ``pointers`` of the arrays, ``truncated``, and what the
    stamps cost: ``plain_us`` and ``stamped_us``, medians of interleaved rounds, and their ratio
    ``overhead``.
    """
    import cupy

    case = _Case(kernel, problem, iteration)
    probed = probes.stamp(case.kernel.ptx(), case.kernel.module, case.kernel.name)
    assembled = device.assembled(case.kernel.rewritten(probed.text, probes.EXTRA_PARAMETERS))
    stamped = device.load(
        assembled.cubin, case.kernel.name, case.loaded.threads, case.loaded.shared_bytes
    )
    stride = stride or device.properties()["sms"]
    warps = -(-int(np.prod(stamped.threads)) // 32)
    grid, capacity = case.grid, FIRST_CAPACITY
    while True:
        records = probes.allocate(cupy, slots, warps, capacity)
        extra = probes.launch_arguments(probes.address_of(records), capacity, slots, stride)
        arguments = [*case.arguments, *extra]
        case.reset()
        device.flush_l2()
        stamped.launch(grid, arguments)
        decoded = probes.decode(cupy.asnumpy(records), probed)
        if not decoded.truncated or capacity >= LAST_CAPACITY:
            break
        capacity *= 4
    times = device.time_interleaved(
        [case.launch, lambda: stamped.launch(grid, arguments)],
        rounds,
        prepare=case.reset,
    )
    plain, with_stamps = np.median(times, axis=0)
    notes = [*probed.notes]
    if not _same_outputs(case, lambda: stamped.launch(grid, arguments)):
        notes.append(
            "the stamped run gave another result than the plain one: this kernel's result depends "
            "on timing"
        )
    pointers = case.pointers()
    arrays, offsets = probes.locate(decoded.events["global_address"], pointers)
    return {
        "events": decoded.events,
        "entries": decoded.entries,
        "truncated": decoded.truncated,
        "sites": probed.sites,
        "notes": tuple(notes),
        "arrays": arrays,
        "offsets": offsets,
        "pointers": pointers,
        "plain_us": float(plain),
        "stamped_us": float(with_stamps),
        "times_us": times,
        "overhead": float(np.median(times[:, 1] / times[:, 0])),
        "registers": tuple(
            found.resources.registers for found in (device.assembled(case.kernel), assembled)
        ),
        "device": device.properties()["name"],
    }


def _same_outputs(case: _Case, other: Callable[[], None]) -> bool:
    """Whether another launch leaves the same bytes in the outputs as the case's own."""
    import cupy

    results = []
    for launch in (case.launch, other):
        case.reset()
        launch()
        results.append({name: cupy.asnumpy(array) for name, array in case.outputs.items()})
    plain, stamped = results
    return all(plain[name].tobytes() == stamped[name].tobytes() for name in plain)


class _Case:
    """A kernel loaded, and bound to one problem's arrays on this device."""

    def __init__(self, kernel: dict[str, Any], problem: dict[str, Any], iteration: int = 0) -> None:
        import cupy

        from course_lib import problems
        from course_lib.kernel import Kernel

        self.kernel, self.problem = (
            Kernel.from_spec(kernel),
            problems.from_spec(problem),
        )
        self.loaded = device.load_kernel(self.kernel, self.problem)
        self.grid = self.problem.grid(self.kernel)
        self.inputs = self.problem.inputs(cupy, iteration)
        self.outputs = self.problem.outputs(cupy)
        self._initial = {name: array.copy() for name, array in self.outputs.items()}
        self.bind()

    def bind(self) -> None:
        """Makes the argument list from the arrays."""
        self.arguments = list(self.problem.arguments(self.kernel, self.inputs, self.outputs))

    def launch(self) -> None:
        self.loaded.launch(self.grid, self.arguments)

    def reset(self) -> None:
        """Outputs as they were before the first launch."""
        for name, array in self.outputs.items():
            array[...] = self._initial[name]

    def pointers(self) -> dict[str, tuple[int, int]]:
        """Address and bytes of every array, by name."""
        arrays = {**self.inputs, **self.outputs}
        return {
            name: (probes.address_of(array), int(array.nbytes))
            for name, array in arrays.items()
            if hasattr(array, "nbytes")
        }
