"""The helper process's own program: ``python -m course_lib.real_gpu.helper PIPE PARENT``.

It takes requests from a pipe, runs the named function and sends back what it returned or how it
failed; what a function yields is sent as it comes.  It ends with its parent: the kernel is told to
kill it (``PR_SET_PDEATHSIG``), and a closed pipe ends it too.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator
from multiprocessing.connection import Connection
from typing import Any

DEFAULT_MODULE = "course_lib.real_gpu.tasks"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int) -> None:
    """Asks Linux to kill this process when the thread that started it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before the request
        os._exit(1)


def resolve(path: str) -> Callable[..., Any]:
    """ "module:function" as the function; without a module, one of ``real_gpu.tasks``."""
    module, _, name = path.rpartition(":")
    return getattr(importlib.import_module(module or DEFAULT_MODULE), name)


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as plain data: its kind ("cuda", "memory", "error"), words, traceback."""
    names = {cls.__name__ for cls in type(error).__mro__}
    kind = "error"
    if names & {"CUDARuntimeError", "CUDADriverError"}:
        kind = "cuda"
    elif "OutOfMemoryError" in names:
        kind = "memory"
    return {
        "kind": kind,
        "type": type(error).__name__,
        "message": str(error),
        "traceback": traceback.format_exc(),
        "exception": error if getattr(error, "crosses_processes", False) else None,
    }


def serve(pipe: Connection) -> None:
    """Answers requests until the pipe closes."""
    while True:
        try:
            path, data = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[str, Any] = ("result", _finish(resolve(path)(**data), pipe))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller hears of it
            answer = ("failure", describe(error))
        # What device printf wrote must be in the file before the parent reads it.
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pipe.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception as error:  # noqa: BLE001 - a result that cannot be pickled
            pipe.send(("failure", describe(error)))


def _finish(result: Any, pipe: Connection) -> Any:
    """The result itself; a generator's items are sent one by one before what it returns."""
    if not isinstance(result, Generator):
        return result
    while True:
        try:
            item = next(result)
        except StopIteration as end:
            return end.value
        pipe.send(("partial", item))


def main() -> None:
    """Entry point; ``sys.argv`` holds the pipe's descriptor and the parent's process id."""
    die_with_parent(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted cell is the parent's business
    pipe = Connection(int(sys.argv[1]))
    pipe.send(("ready", os.getpid()))
    serve(pipe)


if __name__ == "__main__":
    main()
