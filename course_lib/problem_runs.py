"""Running a kernel on a problem, on the virtual GPU: what verify and the like share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.problems import Problem
    from course_lib.virtual_gpu.launch import LaunchResult

VIRTUAL_LABEL = "virtual GPU"


class DoesNotRun(RuntimeError):
    """A kernel was to be measured, and ends in an error; the text says which."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback: the message says it all."""
        return [str(self)]


def shaped_for(kernel: Kernel, problem: Problem) -> Kernel:
    """The kernel with the problem's number of threads where it has none of its own."""
    return kernel if kernel.threads else kernel.shaped(threads=problem.threads(kernel))


def launch_virtual(
    kernel: Kernel,
    problem: Problem,
    inputs: dict[str, Any] | None = None,
    *,
    extra: tuple[Any, ...] = (),
    iteration: int = 0,
    **options: Any,
) -> tuple[LaunchResult, dict[str, np.ndarray]]:
    """Launch on fresh outputs; ``options`` go to ``launch``, ``extra`` to the kernel.

    Raises ``ArgumentError`` where the problem's arguments are not those that the kernel takes.
    """
    from course_lib.virtual_gpu.launch import launch
    from course_lib.virtual_gpu.memory import ArgumentError

    if inputs is None:
        inputs = problem.inputs(iteration=iteration)
    outputs = problem.outputs()
    arguments = problem.arguments(kernel, inputs, outputs)
    try:
        result = launch(
            shaped_for(kernel, problem), problem.grid(kernel), [*arguments, *extra], **options
        )
    except ArgumentError as misfit:
        raise ArgumentError(
            f"{misfit} Does {type(problem).__name__} fit this kernel? {kernel.name} must take what "
            "the problem passes, in its order."
        ) from misfit
    return result, outputs


def timed_blocks(kernel: Kernel, problem: Problem) -> list[int]:
    """The blocks of the first SM, which has as many as any other: what a timed run simulates."""
    from course_lib.virtual_gpu.machine import H200

    return list(range(0, problem.blocks(kernel), H200.sms))


def launch_timed(
    kernel: Kernel, problem: Problem, inputs: dict[str, Any] | None = None, **options: Any
) -> LaunchResult:
    """One SM on the virtual clock; ``DoesNotRun`` where the run ends in an error."""
    options = {"blocks": timed_blocks(kernel, problem), **options}
    result, _ = launch_virtual(kernel, problem, inputs, order="timed", landing="late", **options)
    if not result.ok:
        raise DoesNotRun(f"{kernel.name} cannot be measured: {first_error(result)}")
    return result


def first_error(result: LaunchResult) -> str:
    """The first error's words."""
    error = result.errors[0]
    return str(getattr(error, "message", error))
