"""Runs what may hang or fault in a helper process, so that it costs a message and not the notebook.

A kernel that deadlocks never returns, and no interrupt reaches it: only the end of its process
frees the GPU.  A kernel that writes through a wild pointer poisons the CUDA context of its process
for good.  Both happen to everybody who learns to write pipelines, so the course runs kernels in a
process of its own, kept warm between calls, killed at a deadline and started again at need.

    helper = GpuHelper()
    info = helper.call("device_info", deadline=20, lock=False)

Only plain data crosses: dictionaries, numbers, text, NumPy arrays.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from course_lib.real_gpu.lock import WaitCallback, gpu_lock, say_place

START_SECONDS = 120.0  #: for the process to say that it is there; a cold disk makes this slow
DEFAULT_DEADLINE = 20.0
DEVICE_INFO = "device_info"  #: the task that tells the UUID


PartialCallback = Callable[[Any], None]


class GpuError(RuntimeError):
    """Something on the real GPU went wrong; the text says what and what to do."""


class GpuHung(GpuError):
    """The deadline passed and the helper was killed."""


class GpuFault(GpuError):
    """The kernel, or the process that ran it, died of an error."""


class HelperError(GpuError):
    """The function raised an ordinary exception; ``.remote_traceback`` has the details."""

    def __init__(self, message: str, remote_traceback: str = "") -> None:
        super().__init__(message)
        self.remote_traceback = remote_traceback


class GpuHelper:
    """A helper process with a deadline for each call.

    ``warm_up`` names functions that run, outside any deadline, whenever the process starts (the
    GPU's context, CuPy's own kernels).  Calls from several threads take turns.
    """

    def __init__(
        self,
        warm_up: Sequence[str] = (),
        *,
        uuid: str | None = None,
        on_wait: WaitCallback = say_place,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._warm_up, self._start_seconds = tuple(warm_up), start_seconds
        self._uuid, self._on_wait = uuid, on_wait
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._output = tempfile.TemporaryFile(prefix="course-lib-gpu-")  # noqa: SIM115
        self._turn = threading.RLock()
        self.starts = 0  #: how often a process was started
        self.printed = ""  #: what the last call's kernel printed
        atexit.register(self.close)

    @property
    def pid(self) -> int | None:
        """Process id of the helper, None while there is none."""
        return self._process.pid if self._process else None

    def call(
        self,
        function: str,
        *,
        deadline: float = DEFAULT_DEADLINE,
        lock: bool = True,
        on_partial: PartialCallback | None = None,
        **data: Any,
    ) -> Any:
        """Runs ``function`` ("module:name", or a name in ``real_gpu.tasks``) with ``data``.

        A function that yields sends each item to ``on_partial`` as it comes, and ``deadline`` then
        counts anew: what an interrupted cell has received is not lost.

        ``deadline`` in seconds counts from when the helper is ready and the GPU is free.
        The GPU's lock is held meanwhile, also for what is not timed: it would be in the way of a
        classmate's timing.  ``lock=False`` is for what only asks.  Raises :class:`GpuHung`,
        :class:`GpuFault` or :class:`HelperError`; after the first two the next call starts a
        fresh process.
        """
        with self._turn:
            self._ensure_started()
            if not lock:
                return self._call(function, deadline, data, on_partial)
            with gpu_lock(self._gpu_uuid(), on_wait=self._on_wait):
                self._ensure_started()  # it may have died while this waited
                return self._call(function, deadline, data, on_partial)

    def close(self) -> None:
        """Ends the helper."""
        self._stop()

    # --- one call

    def _call(
        self,
        function: str,
        deadline: float,
        data: dict[str, Any],
        on_partial: PartialCallback | None = None,
    ) -> Any:
        assert self._pipe is not None
        self.printed = ""
        offset = os.fstat(self._output.fileno()).st_size
        try:
            self._pipe.send((function, data))
        except (BrokenPipeError, ConnectionResetError):
            pass  # that it is gone, the answer will say
        except BaseException:  # an interrupted cell
            self._stop()
            raise
        status, answer = self._answer(deadline, data, offset)
        while status == "partial":
            if on_partial is not None:
                self._hand_over(on_partial, answer)
            status, answer = self._answer(deadline, data, offset)
        self.printed = self._printed_since(offset)
        if status == "result":
            return answer
        raise self._failure(answer, _kernel_of(data))

    def _answer(self, deadline: float, data: dict[str, Any], offset: int) -> tuple[str, Any]:
        """The next message of the helper, which is killed where none comes within the deadline."""
        assert self._pipe is not None
        try:
            answered = self._pipe.poll(deadline)
        except (BrokenPipeError, ConnectionResetError):
            answered = True
        except BaseException:  # an interrupted cell: the kernel must not go on
            self._stop()
            raise
        if not answered:
            self._stop()
            raise GpuHung(_hung_words(_kernel_of(data), deadline))
        try:
            status, answer = self._pipe.recv()
        except (EOFError, OSError):
            raise GpuFault(self._death_words(_kernel_of(data), offset)) from None
        return status, answer

    def _hand_over(self, on_partial: PartialCallback, item: Any) -> None:
        try:
            on_partial(item)
        except BaseException:  # nobody will read the rest of this call's messages
            self._stop()
            raise

    def _failure(self, failure: dict[str, Any], kernel: str) -> Exception:
        if failure["exception"] is not None:
            return failure["exception"]
        if failure["kind"] == "cuda":
            self._stop()  # its context may be poisoned
            return GpuFault(_fault_words(kernel, failure["message"]))
        if failure["kind"] == "memory":
            self._stop()
            return GpuError(
                f"{kernel} did not run: the GPU has too little free memory "
                f"({failure['message']}). Take a smaller problem, or look with nvidia-smi who "
                "else uses this GPU."
            )
        words = f"{failure['type']}: {failure['message']}"
        return HelperError(words, failure["traceback"])

    def _printed_since(self, offset: int) -> str:
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size - offset, offset).decode(errors="replace")

    def _death_words(self, kernel: str, offset: int) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        said = self._printed_since(offset).strip().splitlines()
        self._stop()
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        last = f" Its last words: {said[-1]}" if said else ""
        return (
            f"The helper process {how} while it ran {kernel}.{last} A fresh one serves the next "
            'cell. Run it on the virtual GPU (device="virtual"), which checks every access.'
        )

    # --- the process

    def _gpu_uuid(self) -> str:
        if self._uuid is None:
            self._uuid = str(self._call(DEVICE_INFO, self._start_seconds, {})["uuid"])
        return self._uuid

    def _ensure_started(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._stop()
        # The thread that starts it must live on: its end is what Linux takes for the parent's.
        _starter().submit(self._start).result()
        for function in self._warm_up:
            self._call(function, self._start_seconds, {})

    def _start(self) -> None:
        ours, theirs = Pipe()
        environment = dict(os.environ)
        # The repository may not be installed: what this process can import, the helper can.
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *(p for p in sys.path if p and p != root)]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        arguments = [sys.executable, "-P", "-m", "course_lib.real_gpu.helper"]
        try:
            self._process = subprocess.Popen(
                [*arguments, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=environment,
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._pipe = ours
        self.starts += 1
        offset = os.fstat(self._output.fileno()).st_size
        try:
            ready = ours.poll(self._start_seconds) and ours.recv()[0] == "ready"
        except (EOFError, OSError):
            ready = False
        if not ready:
            said = self._printed_since(offset).strip()
            self._stop()
            raise GpuError(f"the helper process for the GPU did not start: {said or 'no words'}")

    def _stop(self) -> None:
        """Kills the helper and waits for its end, which is when the GPU is free again."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        if process is None:
            return
        if process.poll() is None:
            process.kill()
        begin = time.monotonic()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            waited = time.monotonic() - begin
            raise GpuError(
                f"the helper process {process.pid} was killed {waited:.0f} s ago and is still "
                "there: the driver has not let go of the GPU"
            ) from None


_executor: ThreadPoolExecutor | None = None
_shared: GpuHelper | None = None
_module_guard = threading.Lock()


def _starter() -> ThreadPoolExecutor:
    global _executor
    with _module_guard:
        if _executor is None:
            _executor = ThreadPoolExecutor(1, thread_name_prefix="gpu-helper-starter")
        return _executor


def shared_helper() -> GpuHelper:
    """The one helper of this process, made on first use and warmed up on the GPU."""
    global _shared
    with _module_guard:
        if _shared is None:
            _shared = GpuHelper(warm_up=("warm_up",))
        return _shared


def _kernel_of(data: dict[str, Any]) -> str:
    """Name of the kernel that a call is about, from its data."""
    kernel = data.get("kernel")
    if isinstance(kernel, dict) and "name" in kernel:
        return f"the kernel {kernel['name']!r}"
    kernels = data.get("kernels")
    if isinstance(kernels, dict) and kernels:
        return "the kernels " + ", ".join(repr(str(label)) for label in kernels)
    return "the call"


def _hung_words(kernel: str, deadline: float) -> str:
    return (
        f"{kernel[0].upper()}{kernel[1:]} did not finish within its deadline of {deadline:g} s, "
        "so its process was ended and the GPU is free again. A loop that never ends, or a wait or "
        "barrier that not every thread reaches, looks like this. Run it on the virtual GPU "
        '(device="virtual"): it finds the line, and says who waits for whom.'
    )


#: What CUDA's error names mean to somebody who wrote a kernel (cuda.h, CUresult).
_FAULTS = {
    "ILLEGAL_ADDRESS": "It read or wrote outside every array, or through a null pointer.",
    "MISALIGNED_ADDRESS": "An access was not aligned to its own size: a 16-byte copy needs both "
    "addresses at multiples of 16.",
    "ILLEGAL_INSTRUCTION": "It met an instruction it could not carry out, for instance a trap.",
    "LAUNCH_OUT_OF_RESOURCES": "Registers per thread times threads do not fit an SM: fewer "
    "threads, or __launch_bounds__.",
    "INVALID_VALUE": "The launch shape is not possible: threads, grid or shared memory exceed a "
    "limit of this GPU.",
    "ASSERT": "An assert in the kernel failed.",
    "INSUFFICIENT_DRIVER": "There is no driver here, or one too old for this CUDA: see doctor().",
    "NO_DEVICE": "There is no GPU here that this process may use: see doctor().",
    "LAUNCH_FAILURE": "A trap in the kernel, an access outside shared memory or a broken barrier "
    "object looks like this.",
    "LAUNCH_FAILED": "An access outside an array or outside shared memory, or a broken barrier "
    "object, looks like this.",
    "NO_BINARY_FOR_GPU": "It was compiled for another architecture: see doctor().",
    "INVALID_IMAGE": "This driver does not take the code: see doctor().",
}


def _fault_words(kernel: str, message: str) -> str:
    letters = message.upper().replace("CUDAERROR", "").replace("_", "").replace(" ", "")
    meanings = [text for name, text in _FAULTS.items() if name.replace("_", "") in letters]
    meaning = meanings[0] + " " if meanings else ""
    return (
        f"{kernel[0].upper()}{kernel[1:]} failed on the GPU: {message}. {meaning}The real GPU "
        'does not tell the line; the virtual one does: run it with device="virtual". A fresh '
        "process serves the next cell."
    )
