"""One lock per GPU for everybody on the machine, first come first served.

Two classmates who time kernels on one GPU at the same time both measure nonsense, so whatever runs
on a GPU for a result runs inside :func:`gpu_lock`.  The lock is a folder per GPU, named after the
GPU's UUID.  Whoever wants the GPU puts a ticket file there and keeps it ``flock``-ed; the kernel
frees that when its process ends, however it ends, so a ticket that nobody locks belongs to
somebody who is gone, and the next in line removes it.  (A process id would not do: ids are reused
and mean nothing across containers.)  A ticket's name begins with the time, which gives the order;
one more locked file decides between two who both believe to be first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: Folder for the locks, to be set where /tmp is not shared (a container per student on one GPU).
FOLDER_VARIABLE = "COURSE_LIB_LOCK_DIR"
POLL_SECONDS = 0.05

WaitCallback = Callable[[int, float], None]


class GpuBusy(RuntimeError):
    """The GPU did not become free within the time that the caller was ready to wait."""


def lock_folder(uuid: str) -> Path:
    """Folder of one GPU's lock; made on demand, open to every user of the machine."""
    root = os.environ.get(FOLDER_VARIABLE)
    shared = Path("/tmp")
    base = Path(root) if root else shared if os.access(shared, os.W_OK) else None
    base = base or Path(tempfile.gettempdir())
    folder = base / f"course-lib-gpu-{re.sub(r'[^A-Za-z0-9-]', '_', uuid) or 'unknown'}"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # somebody else's, who has opened it already
        folder.chmod(0o777)
    return folder


def say_place(ahead: int, waited: float) -> None:
    """Tells on stderr how many are ahead; one line, rewritten when the place changes."""
    if ahead:
        who = "1 other" if ahead == 1 else f"{ahead} others"
        text = f"waiting for the GPU: {who} ahead of you ({waited:.0f} s)"
        print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)
    else:
        print(
            f"\r{f'the GPU is yours after {waited:.0f} s':<70}",
            file=sys.stderr,
            flush=True,
        )


_held: dict[Path, int] = {}
_thread_guard = threading.Lock()
_thread_locks: dict[Path, threading.RLock] = {}


@contextlib.contextmanager
def gpu_lock(
    uuid: str, *, on_wait: WaitCallback = say_place, timeout: float | None = None
) -> Iterator[float]:
    """Holds the GPU with this UUID; gives the seconds that it had to wait.

    ``on_wait(ahead, waited)`` is called whenever the place in the queue changes, and with
    ``ahead=0`` once the wait is over; it is not called by those who need not wait.  Re-entrant
    within a thread.  ``timeout`` in seconds; :class:`GpuBusy` when it passes.
    """
    folder = lock_folder(uuid)
    with _thread_guard:
        mine = _thread_locks.setdefault(folder, threading.RLock())
    begin = time.monotonic()
    if not mine.acquire(timeout=-1 if timeout is None else timeout):
        raise GpuBusy(f"another cell of this notebook kept the GPU for {timeout:.0f} s")
    try:
        if _held.get(folder, 0):
            _held[folder] += 1
            try:
                yield 0.0
            finally:
                _held[folder] -= 1
            return
        with _queued(folder, on_wait, timeout, begin):
            _held[folder] = 1
            try:
                yield time.monotonic() - begin
            finally:
                _held[folder] = 0
    finally:
        mine.release()


@contextlib.contextmanager
def _queued(
    folder: Path, on_wait: WaitCallback, timeout: float | None, begin: float
) -> Iterator[None]:
    """Waits with a ticket until this process is first and has the deciding file."""
    ticket = _Ticket(folder)
    decider = _open(folder / "held", create=True)
    try:
        told: int | None = None
        while True:
            ahead = ticket.ahead()
            if ahead == 0 and _try_lock(decider):
                break
            waited = time.monotonic() - begin
            if timeout is not None and waited > timeout:
                raise GpuBusy(f"the GPU was not free within {timeout:.0f} s; {ahead} still ahead")
            if max(ahead, 1) != told:
                told = max(ahead, 1)
                on_wait(told, waited)
            time.sleep(POLL_SECONDS)
        if told is not None:
            on_wait(0, time.monotonic() - begin)
        yield
    finally:
        os.close(decider)  # unlocks
        ticket.discard()


class _Ticket:
    """This process's place in the queue of one GPU."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        while True:
            name = f"{time.time_ns():020d}-{os.getpid()}-{threading.get_ident()}.ticket"
            self.path = folder / name
            self.descriptor = _open(self.path, create=True)
            fcntl.flock(self.descriptor, fcntl.LOCK_EX)
            # Between creating and locking it somebody may have taken it for a dead one's.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(self.path).st_ino == os.fstat(self.descriptor).st_ino:
                    return
            os.close(self.descriptor)

    def ahead(self) -> int:
        """How many live tickets are older; removes those of the dead."""
        count = 0
        for path in sorted(self.folder.glob("*.ticket")):
            if path.name >= self.path.name:
                break
            count += _is_alive(path)
        return count

    def discard(self) -> None:
        """Leaves the queue."""
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self.descriptor)


def _is_alive(path: Path) -> bool:
    """Whether somebody holds this ticket; if not, it is removed."""
    try:
        descriptor = _open(path, create=False)
    except OSError:
        return path.exists()
    try:
        if not _try_lock(descriptor):
            return True
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    finally:
        os.close(descriptor)


def _open(path: Path, *, create: bool) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o666)
    with contextlib.suppress(PermissionError):  # made by another user, who has done this
        os.fchmod(descriptor, 0o666)
    return descriptor


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
