"""Helper library of the GPU software-pipelining course.

Names are looked up when they are first used, so that `import course_lib` stays quick.
`%load_ext course_lib` in a notebook brings the `%%cuda` cell.
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "CompileError": "diagnostics",
    "Kernel": "kernel",
    "compile_kernel": "kernel",
    "use": "devices",
    "device_info": "devices",
    "doctor": "doctor",
    "TileReduction": "problems",
    "Gemm": "problems",
    "ColumnMoments": "problems",
    "CircularFilter": "problems",
    "RowChecksums": "problems",
    "PolynomialValues": "problems",
    "verify": "verification",
    "find_hazards": "hazards",
    "stress": "stressing",
    "trace": "tracing",
    "compare": "timing",
    "sweep": "sweeping",
    "profile": "profiling",
    "PipelineModel": "pipeline_model",
    "explore_stages": "explore",
    "explore_timeline": "explore",
    "tensor_map": "tensor_maps",
}
"""Public name -> the module of this package that has it."""

__all__ = ["load_ipython_extension", *_PUBLIC]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"course_lib has no name {name!r}; it has {', '.join(_PUBLIC)}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext course_lib` calls."""
    from course_lib import cuda_magic, reset

    cuda_magic.register(shell)
    reset.register(shell)
