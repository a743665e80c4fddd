"""One launch on a real GPU, by the course's helper process: a fault ends that, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from course_lib.devices import gpu
from course_lib.kernel import Kernel

_gpu = gpu()
needs_hopper = pytest.mark.skipif(
    _gpu is None or _gpu.capability != (9, 0),
    reason="needs a real GPU of compute capability 9.0: tensor copies, wgmma",
)


def launch_apart(kernel: Kernel, grid: Any, arguments: Sequence[Any]) -> list[Any]:
    """Launch once; the arguments as they are afterwards, the arrays of tensor maps for the maps.

    `arguments`: NumPy arrays, tensor maps of NumPy arrays, scalars. Raises GpuHung, GpuFault or
    HelperError; after each of them the next launch has a fresh process.
    """
    from course_lib.real_gpu.guard import shared_helper

    answer: list[Any] = shared_helper().call(
        "tests.gpu_apart:launch_here", kernel=kernel.to_spec(), grid=grid, arguments=list(arguments)
    )
    return answer


def launch_here(kernel: dict[str, Any], grid: Any, arguments: list[Any]) -> list[Any]:
    """`launch_apart`'s part in the helper process."""
    import cupy

    from course_lib.real_gpu import device
    from course_lib.tensor_maps import TensorMap, tensor_map

    def there(value: Any) -> Any:
        if isinstance(value, TensorMap):
            return tensor_map(cupy.asarray(value.array), value.box, value.swizzle)
        return cupy.asarray(value) if isinstance(value, np.ndarray) else value

    given = [there(value) for value in arguments]
    device.launch(Kernel.from_spec(kernel), grid, *given)
    arrays = [value.array if isinstance(value, TensorMap) else value for value in given]
    return [cupy.asnumpy(a) if isinstance(a, cupy.ndarray) else a for a in arrays]
