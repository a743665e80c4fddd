"""One launch of one kernel through the CUDA driver alone, for tools that watch a process.

    python -m tools.driver_launch FOLDER      a folder that `write_job` filled

compute-sanitizer instruments all code that its process loads. A process with an array library in it
takes half a minute; this one loads nothing but the kernel.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

OPT_IN_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def write_job(
    folder: Path,
    cubin: bytes,
    name: str,
    grid: Sequence[int],
    threads: int,
    shared_bytes: int,
    arguments: Sequence[Any],
) -> None:
    """Everything that `main` needs: arrays become files, numbers keep their NumPy type."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cubin").write_bytes(cubin)
    listed = []
    for number, value in enumerate(arguments):
        np.save(folder / f"{number}.npy", np.asarray(value))
        listed.append({"array": isinstance(value, np.ndarray) and value.ndim > 0})
    shape = {"name": name, "grid": [*grid, 1, 1][:3], "threads": threads, "shared": shared_bytes}
    (folder / "job.json").write_text(json.dumps(shape | {"arguments": listed}))


class Driver:
    """The few driver calls that a launch needs; a failed one ends the process with its number."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)

    def __call__(self, function: str, *arguments: Any) -> None:
        status = getattr(self.library, function)(*arguments)
        if status:
            raise SystemExit(f"{function} failed with error {status}")

    def upload(self, array: np.ndarray) -> ctypes.c_uint64:
        """The array's device address."""
        address = ctypes.c_uint64()
        size = ctypes.c_size_t(array.nbytes)
        self("cuMemAlloc_v2", ctypes.byref(address), size)
        self("cuMemcpyHtoD_v2", address, array.ctypes.data_as(ctypes.c_void_p), size)
        return address


def main(folder: Path) -> None:
    """Launch the job once and wait for its end."""
    job = json.loads((folder / "job.json").read_text())
    driver = Driver()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver("cuModuleLoadData", ctypes.byref(module), (folder / "kernel.cubin").read_bytes())
    driver("cuModuleGetFunction", ctypes.byref(function), module, job["name"].encode())
    if job["shared"]:
        driver("cuFuncSetAttribute", function, OPT_IN_SHARED, job["shared"])
    values: list[Any] = []
    for number, argument in enumerate(job["arguments"]):
        array = np.load(folder / f"{number}.npy")
        values.append(
            driver.upload(array)
            if argument["array"]
            else (ctypes.c_char * array.nbytes).from_buffer_copy(array.tobytes())
        )
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    driver(
        "cuLaunchKernel", function, *job["grid"], job["threads"], 1, 1, job["shared"], None,
        pointers, None,
    )  # fmt: skip
    driver("cuCtxSynchronize")
    print("launched and ended")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
