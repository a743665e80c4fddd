"""Which GPU a call runs on: the real one, or the virtual one, and why."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from course_lib.gpu_limits import KB, arch_number, limits_of

DEVICES = ("auto", "gpu", "virtual")

_chosen: contextvars.ContextVar[str | None] = contextvars.ContextVar("device", default=None)
_default: str | None = None


@dataclass(frozen=True)
class Gpu:
    """A real GPU, as its driver describes it. Sizes in bytes, clock in MHz."""

    name: str
    capability: tuple[int, int]
    sms: int
    clock_mhz: int
    shared_per_block: int
    shared_per_sm: int
    registers_per_sm: int
    l2_bytes: int
    memory_bytes: int
    driver: tuple[int, int]

    @property
    def arch(self) -> str:
        """Such as `sm_90`."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


@dataclass(frozen=True)
class DeviceInfo:
    """The machine that kernels run on here. Sizes in bytes, clock in MHz."""

    name: str
    kind: str
    arch: str
    sms: int
    clock_mhz: int
    shared_per_block: int
    shared_per_sm: int
    registers_per_sm: int
    l2_bytes: int

    def rows(self) -> list[tuple[str, str]]:
        """What a table shows of it."""
        clock = f"{self.clock_mhz} MHz" + (" (virtual)" if self.kind == "virtual" else "")
        return [
            ("device", f"{self.name} ({'real' if self.kind == 'gpu' else 'simulated on the CPU'})"),
            ("architecture", self.arch),
            ("SMs", str(self.sms)),
            ("clock", clock),
            ("shared memory per SM", f"{self.shared_per_sm // KB} KB"),
            ("shared memory per block", f"{self.shared_per_block // KB} KB"),
            ("registers per SM", f"{self.registers_per_sm:,}"),
            ("L2 cache", f"{self.l2_bytes / 2**20:.0f} MB" if self.l2_bytes else "not modelled"),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name:<24} {value}" for name, value in self.rows())

    def _repr_html_(self) -> str:
        left = " style='text-align:left'"
        cells = "".join(
            f"<tr><th{left}>{name}</th><td{left}>{value}</td></tr>" for name, value in self.rows()
        )
        return f"<table>{cells}</table>"


@contextlib.contextmanager
def _context(device: str) -> Iterator[str]:
    token = _chosen.set(device)
    try:
        yield device
    finally:
        _chosen.reset(token)


class use:  # a context manager that also works as a plain call, hence its lower-case name
    """`with use("virtual"):` sets the device of the calls inside.

    Cells of a notebook cannot share a `with`, so a plain `use("virtual")` sets it for the cells
    that follow, until `use("auto")`.
    """

    def __init__(self, device: str) -> None:
        global _default
        _check(device)
        self.device = device
        self._before = _default
        self._inside: Any = None
        _default = device

    def __enter__(self) -> str:
        global _default
        _default = self._before
        self._inside = _context(self.device)
        return self._inside.__enter__()

    def __exit__(self, *problem: object) -> None:
        self._inside.__exit__(*problem)

    def __repr__(self) -> str:
        return f"kernels run on: {self.device}"


def _check(device: str) -> None:
    if device not in DEVICES:
        raise ValueError(f"device is one of {', '.join(map(repr, DEVICES))}, not {device!r}")


def current_device() -> str:
    """What `"auto"` stands for now: `use(...)`, then $COURSE_DEVICE, then "auto" itself."""
    chosen = _chosen.get() or _default or os.environ.get("COURSE_DEVICE") or "auto"
    _check(chosen)
    return chosen


class NoGpu(RuntimeError):
    """The real GPU was asked for by name, and cannot run this."""


def resolve(device: str = "auto", kernel: Any = None) -> tuple[str, str]:
    """`("gpu" | "virtual", why)`.

    "auto" is the real GPU where there is one that can run this kernel. Raises NoGpu where "gpu" was
    asked for and none can.
    """
    _check(device)
    if device == "auto":
        device = current_device()
    if device == "virtual":
        return "virtual", "the virtual GPU was asked for"
    obstacle = _obstacle(kernel)
    if obstacle is None:
        found = gpu()
        return "gpu", f"there is an {found.name}" if found else ""
    if device == "gpu":
        raise NoGpu(f'{obstacle}. The virtual GPU can run it: device="virtual".')
    return "virtual", obstacle


def _obstacle(kernel: Any) -> str | None:
    """Why the real GPU cannot run `kernel`, or None."""
    found = gpu()
    if found is None:
        return "this machine has no GPU with a working driver"
    if not _cupy_works():
        return "there is a GPU, but CuPy cannot use it: see course_lib.doctor()"
    arch = getattr(kernel, "arch", None)
    if arch and loadable_arch(arch, found.capability) is None:
        return f"the kernel was compiled for {arch}, and this GPU ({found.name}) is {found.arch}"
    return None


def loadable_arch(arch: str, capability: tuple[int, int]) -> str | None:
    """The architecture that PTX compiled for `arch` is to be assembled for on a GPU; None: it
    cannot run there.

    PTX runs on its own architecture and every later one, so it is assembled for the GPU's own.
    With an `a` (sm_90a) it holds instructions that no other architecture has, and with an `f`
    (sm_100f) those of one family (PTX ISA, `.target`).
    """
    major, minor = divmod(arch_number(arch), 10)
    if arch.endswith("a"):
        return arch if (major, minor) == capability else None
    if arch.endswith("f"):
        return arch if major == capability[0] and minor <= capability[1] else None
    return f"sm_{capability[0]}{capability[1]}" if (major, minor) <= capability else None


@functools.lru_cache(maxsize=1)
def _cupy_works() -> bool:
    try:
        import cupy

        return bool(cupy.is_available())
    except Exception:
        return False


# Numbers of CUdevice_attribute in cuda.h.
_CLOCK_KHZ, _SMS, _L2, _MAJOR, _MINOR = 13, 16, 38, 75, 76
_SHARED_PER_SM, _REGISTERS_PER_SM, _SHARED_PER_BLOCK = 81, 82, 97


@functools.lru_cache(maxsize=1)
def gpu() -> Gpu | None:
    """The first GPU, or None. Asks the driver without opening a context, so it is quick."""
    driver = _driver()
    if driver is None or driver.cuInit(0):
        return None
    count, device = ctypes.c_int(), ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    if driver.cuDeviceGet(ctypes.byref(device), 0):
        return None

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    name = ctypes.create_string_buffer(128)
    driver.cuDeviceGetName(name, 128, device)
    memory = ctypes.c_size_t()
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return Gpu(
        name.value.decode(),
        (attribute(_MAJOR), attribute(_MINOR)),
        attribute(_SMS),
        attribute(_CLOCK_KHZ) // 1000,
        attribute(_SHARED_PER_BLOCK),
        attribute(_SHARED_PER_SM),
        attribute(_REGISTERS_PER_SM),
        attribute(_L2),
        memory.value,
        driver_version() or (0, 0),
    )


@functools.lru_cache(maxsize=1)
def _driver() -> Any:
    for name in ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def driver_version() -> tuple[int, int] | None:
    """The newest CUDA that the driver takes, such as (13, 0); None without a driver."""
    driver = _driver()
    if driver is None:
        return None
    number = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(number)) or not number.value:
        return None
    return number.value // 1000, number.value % 1000 // 10


def device_info(device: str = "auto") -> DeviceInfo:
    """The machine that `device` means here: the real GPU's figures, or the virtual one's."""
    where, _ = resolve(device)
    found = gpu()
    if where == "gpu" and found:
        return DeviceInfo(
            found.name, "gpu", found.arch, found.sms, found.clock_mhz, found.shared_per_block,
            found.shared_per_sm, found.registers_per_sm, found.l2_bytes,
        )  # fmt: skip
    from course_lib.virtual_gpu.machine import Machine

    machine, limits = Machine(), limits_of("sm_90")
    return DeviceInfo(
        "virtual GPU", "virtual", "sm_90", machine.sm_count, machine.clock_mhz,
        limits.shared_per_block, machine.shared_per_sm, machine.registers_per_sm, machine.l2_bytes,
    )  # fmt: skip
