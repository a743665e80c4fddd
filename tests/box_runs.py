"""One tensor copy on a real GPU, in a process of its own: a fault there ends nothing else."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np

SECONDS = 60


def _copy(pipe: Any, body: str, parameters: str, array: Any, box: Any, swizzle: int,
          out: Any, corner: Any) -> None:  # fmt: skip
    try:
        import cupy

        from course_lib.tensor_maps import tensor_map
        from tests.async_device import kernel_of

        mapped, bytes_ = cupy.asarray(array), cupy.asarray(out)
        coordinates = (np.int32(c) for c in corner)
        kernel_of(body, parameters).launch(
            1, tensor_map(mapped, box, swizzle), bytes_, *coordinates
        )
        pipe.send((mapped.get(), bytes_.get()))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def copy_on_gpu(
    body: str, parameters: str, array: Any, box: Any, swizzle: int, out: Any, corner: Any
) -> tuple[Any, Any]:
    """Launch `body(map of array, out, *corner)` once; the array and `out` afterwards.

    Raises RuntimeError with the child's words where it faults, hangs or dies.
    """
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe(duplex=False)
    arguments = (its, body, parameters, array, box, swizzle, out, corner)
    child = context.Process(target=_copy, args=arguments)
    child.start()
    its.close()
    try:
        answer = mine.recv() if mine.poll(SECONDS) else f"nothing after {SECONDS} s"
    except EOFError:
        answer = "the process died"
    finally:
        child.kill()
        child.join()
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer
