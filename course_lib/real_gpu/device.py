"""CuPy's part: loading cubins, launching, timing with events, flushing L2, what the device is.

Nothing here protects the process: :mod:`course_lib.real_gpu.guard` does, by running it elsewhere.
Importing this module imports no CuPy.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.tensor_maps import TensorMap

if TYPE_CHECKING:
    from course_lib.ptxas import Assembled

STATIC_SHARED_LIMIT = 48 * 1024  #: dynamic shared memory beyond this must be asked for
#: Bytes written to push everything else out of the L2 cache, as a multiple of its size.  It also
#: keeps the GPU busy (about 0.1 ms) while the host enqueues the next event, launch and event, so
#: that the launch's own cost is not between the two events.
FLUSH_FACTOR = 4


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel on the current device, ready to be launched."""

    function: Any
    name: str
    threads: tuple[int, int, int]
    shared_bytes: int

    def launch(self, grid: Sequence[int] | int, arguments: Sequence[Any]) -> None:
        """Enqueues it on the current stream.

        ``arguments`` in the kernel's order: CuPy arrays, NumPy scalars of the parameter's own
        type, a ``TensorMap`` of a CuPy array, or ``bytes`` for a parameter passed by value.
        """
        blocks = (grid,) if isinstance(grid, int) else tuple(int(n) for n in grid)
        prepared = tuple(_argument(value) for value in arguments)
        self.function(blocks, self.threads, prepared, shared_mem=self.shared_bytes)


def _argument(value: Any) -> Any:
    if isinstance(value, TensorMap):
        value = value.real_bytes()
    if isinstance(value, bytes):
        return np.frombuffer(value, dtype=f"V{len(value)}")[0]
    if isinstance(value, bool | int):  # what C calls int
        return np.int32(value)
    return np.float32(value) if isinstance(value, float) else value


def load(cubin: bytes, name: str, threads: int | Sequence[int], shared_bytes: int) -> LoadedKernel:
    """Loads one kernel of a cubin; ``shared_bytes`` is its dynamic shared memory per block."""
    function = _function(cubin, name)
    if shared_bytes + int(function.shared_size_bytes) > STATIC_SHARED_LIMIT:
        function.max_dynamic_shared_size_bytes = shared_bytes
    shape = (threads,) if isinstance(threads, int) else tuple(threads)
    x, y, z = (*shape, 1, 1)[:3]
    return LoadedKernel(function, name, (int(x), int(y), int(z)), shared_bytes)


@cache
def _function(cubin: bytes, name: str) -> Any:
    import cupy

    # CuPy remembers modules by path for as long as the process lives: a path that had another
    # cubin before would give that one's kernels.  So the path is made from the content.
    path = _cubin_folder() / f"{hashlib.sha256(cubin).hexdigest()}.cubin"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(cubin)
        temporary.replace(path)
    return cupy.RawModule(path=str(path)).get_function(name)


@cache
def _cubin_folder() -> Path:
    # Kept in a variable by the cache of this function; removed when the process ends.
    folder = tempfile.TemporaryDirectory(prefix="course-lib-cubins-")
    _folders.append(folder)
    return Path(folder.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []


def load_kernel(kernel: Any, problem: Any = None) -> LoadedKernel:
    """Loads a :class:`course_lib.kernel.Kernel`; the problem supplies a launch shape it lacks."""
    threads = threads_of(kernel, problem)
    cubin = assembled(kernel).cubin
    return load(cubin, kernel.name, threads, int(kernel.shared_bytes))


def assembled(kernel: Any) -> Assembled:
    """A kernel's code for this GPU, whatever older architecture it was compiled for.

    Raises ``ValueError`` where it was compiled for one that this GPU is not.
    """
    from course_lib import build
    from course_lib.devices import loadable_arch

    arch = loadable_arch(kernel.arch, properties()["compute_capability"])
    if arch is None:
        name = properties()["name"]
        raise ValueError(f"{kernel.name} was compiled for {kernel.arch}: no {name} runs that")
    return build.assembled(kernel.ptx_text, arch)


def threads_of(kernel: Any, problem: Any = None) -> int:
    """Threads per block: the kernel's own, else the problem's."""
    if kernel.threads:
        return int(kernel.threads)
    if problem is None:
        raise ValueError(f"{kernel.name} has no --threads, and no problem to take them from")
    return int(problem.threads(kernel))


def launch(kernel: Any, grid: Sequence[int] | int, *arrays: Any) -> None:
    """Launches in this process and waits for the end.  Nothing guards it; see ``guard``.

    Raises CuPy's own error, after which this process can use the GPU no more.
    """
    import cupy

    load_kernel(kernel).launch(grid, arrays)
    cupy.cuda.get_current_stream().synchronize()


@cache
def properties(device: int = 0) -> dict[str, Any]:
    """What the device is, as plain data; sizes in bytes, clocks in MHz."""
    import cupy

    raw = cupy.cuda.runtime.getDeviceProperties(device)
    major, minor = int(raw["major"]), int(raw["minor"])
    return {
        "name": _text(raw["name"]),
        "uuid": _uuid_text(raw.get("uuid", b"")),
        "compute_capability": (major, minor),
        "sms": int(raw["multiProcessorCount"]),
        "shared_per_block": int(raw["sharedMemPerBlockOptin"]),
        "shared_per_sm": int(raw["sharedMemPerMultiprocessor"]),
        "registers_per_sm": int(raw["regsPerMultiprocessor"]),
        "threads_per_sm": int(raw["maxThreadsPerMultiProcessor"]),
        "l2_bytes": int(raw["l2CacheSize"]),
        "memory_bytes": int(raw["totalGlobalMem"]),
        "clock_mhz": _clock_mhz(cupy, device, raw),
        "driver": int(cupy.cuda.runtime.driverGetVersion()),
        "runtime": int(cupy.cuda.runtime.runtimeGetVersion()),
    }


def _text(value: bytes | str) -> str:
    return value.decode().rstrip("\0") if isinstance(value, bytes) else value


def _uuid_text(raw: bytes) -> str:
    """ "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi writes it."""
    digits = bytes(raw)[:16].hex()
    if len(digits) != 32:
        return "GPU-unknown"
    cuts = (0, 8, 12, 16, 20, 32)
    return "GPU-" + "-".join(digits[a:b] for a, b in itertools.pairwise(cuts))


def _clock_mhz(cupy: Any, device: int, raw: Any) -> float:
    # CUDA 13 took clockRate out of the properties; the attribute (13) is still there.
    if "clockRate" in raw:
        return float(raw["clockRate"]) / 1000
    return float(cupy.cuda.runtime.deviceGetAttribute(13, device)) / 1000


@cache
def _flush_buffer() -> Any:
    import cupy

    return cupy.empty(FLUSH_FACTOR * max(properties()["l2_bytes"], 1 << 22), dtype=cupy.uint8)


def flush_l2() -> None:
    """Enqueues a write of several times the L2's size, after which it holds nothing of use."""
    _flush_buffer().fill(0)


def time_interleaved(
    launches: Sequence[Callable[[], None]],
    rounds: int,
    *,
    prepare: Callable[[], None] | None = None,
    warm_up: int = 2,
    seed: int = 0,
) -> np.ndarray:
    """Microseconds of each launch in each round, ``float64[rounds, len(launches)]``.

    Every round runs all launches once in a new random order, so that a warming card slows all of
    them alike; ``prepare`` (outputs back to their initial state) and an L2 flush come before each,
    outside the timed span.
    """
    import cupy

    order = np.random.default_rng(seed)
    times = np.zeros((warm_up + rounds, len(launches)))
    for row in times:
        pairs = []
        for index in order.permutation(len(launches)):
            if prepare is not None:
                prepare()
            flush_l2()
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            launches[index]()
            end.record()
            pairs.append((index, begin, end))
        cupy.cuda.get_current_stream().synchronize()
        for index, begin, end in pairs:
            row[index] = 1000 * cupy.cuda.get_elapsed_time(begin, end)
    return times[warm_up:]
