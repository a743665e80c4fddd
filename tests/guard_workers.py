"""What the helper is asked to do in test_guard.py: things that a kernel might do to it."""

from __future__ import annotations

import os
import signal
import time


def add(a, b):
    return a + b


def array_sum(values):
    return values.sum()


def pid():
    return os.getpid()


def hang(kernel=None):
    while True:
        time.sleep(1)


def die(number=int(signal.SIGSEGV), kernel=None):
    print("about to fall", flush=True)
    os.kill(os.getpid(), number)


def leave(code=3):
    os._exit(code)


def complain():
    raise ValueError("no such tile")


class CUDADriverError(RuntimeError):
    """As CuPy names it."""


def fault(kernel=None):
    raise CUDADriverError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")


class OutOfMemoryError(MemoryError):
    """As CuPy names it."""


def exhaust(kernel=None):
    raise OutOfMemoryError("Out of memory allocating 5 bytes")


def talk():
    print("tile 3: 17")
    os.write(1, b"from the device\n")


def unpicklable():
    return lambda: None


def slow(seconds):
    time.sleep(seconds)
    return "done"


def count_up(to, pause=0.0, then=None):
    for number in range(to):
        time.sleep(pause)
        yield number
    if then:
        raise ValueError(then)
    return to


def device_info():
    return {"uuid": "GPU-fake"}
