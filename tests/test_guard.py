"""The helper process: whatever happens in it costs a message, and the next call works."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from course_lib.real_gpu import guard, lock

WORKERS = "guard_workers"
KERNEL = {"name": "two_stage"}


@pytest.fixture(autouse=True)
def private_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(lock.FOLDER_VARIABLE, str(tmp_path))


@pytest.fixture(scope="module")
def helper():
    here = str(pathlib.Path(__file__).parent)
    sys.path.insert(0, here)
    made = guard.GpuHelper(uuid="GPU-fake")
    yield made
    made.close()
    sys.path.remove(here)


def _call(helper, name, **data):
    return helper.call(f"{WORKERS}:{name}", **{"deadline": 10, **data})


def _works(helper):
    return _call(helper, "add", a=2, b=3) == 5


def test_calls_and_stays_warm(helper):
    assert _works(helper)
    before = _call(helper, "pid")
    assert before == helper.pid != os.getpid()
    assert _call(helper, "array_sum", values=np.arange(10)) == 45
    assert _call(helper, "pid") == before


def test_what_a_function_yields_comes_piece_by_piece(helper):
    items = []
    assert _call(helper, "count_up", to=4, on_partial=items.append) == 4
    assert items == [0, 1, 2, 3] and _works(helper)
    # Each piece has the whole deadline.
    assert _call(helper, "count_up", to=4, pause=0.4, deadline=0.8, on_partial=items.append) == 4
    with pytest.raises(guard.HelperError, match="spilled"):
        _call(helper, "count_up", to=2, then="spilled", on_partial=items.append)
    assert items[-2:] == [0, 1] and _works(helper)


def test_an_interrupt_between_pieces_leaves_no_old_message(helper):
    def interrupt(item):
        if item == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _call(helper, "count_up", to=1000, pause=0.01, on_partial=interrupt)
    assert _works(helper)


def test_hang_is_killed_at_the_deadline(helper):
    assert _works(helper)
    hung = helper.pid
    begin = time.monotonic()
    with pytest.raises(guard.GpuHung) as caught:
        _call(helper, "hang", deadline=0.5, kernel=KERNEL)
    assert 0.5 <= time.monotonic() - begin < 5
    words = str(caught.value)
    assert "'two_stage'" in words and "0.5 s" in words and "virtual" in words
    with pytest.raises(ProcessLookupError):
        os.kill(hung, 0)
    assert _works(helper) and helper.pid != hung


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_death_by_signal(helper, number):
    with pytest.raises(guard.GpuFault) as caught:
        _call(helper, "die", number=int(number), kernel=KERNEL)
    assert number.name in str(caught.value) and "about to fall" in str(caught.value)
    assert _works(helper)


def test_exit(helper):
    with pytest.raises(guard.GpuFault, match="exit code 3"):
        _call(helper, "leave")
    assert _works(helper)


def test_cuda_error_restarts(helper):
    assert _works(helper)
    poisoned = helper.pid
    with pytest.raises(guard.GpuFault, match="outside every array") as caught:
        _call(helper, "fault", kernel=KERNEL)
    assert "two_stage" in str(caught.value)
    assert _works(helper) and helper.pid != poisoned


def test_out_of_memory_says_so(helper):
    with pytest.raises(guard.GpuError, match="too little free memory"):
        _call(helper, "exhaust", kernel=KERNEL)
    assert _works(helper)


def test_exception_keeps_the_process(helper):
    assert _works(helper)
    before = helper.pid
    with pytest.raises(guard.HelperError, match="ValueError: no such tile") as caught:
        _call(helper, "complain")
    assert "complain" in caught.value.remote_traceback
    with pytest.raises(guard.HelperError):
        _call(helper, "unpicklable")
    with pytest.raises(guard.HelperError):
        _call(helper, "no_such_function")
    assert _works(helper) and helper.pid == before


def test_printed_text_comes_back(helper):
    _call(helper, "talk")
    assert "tile 3: 17" in helper.printed and "from the device" in helper.printed
    assert _works(helper) and helper.printed == ""


def test_killed_between_calls(helper):
    assert _works(helper)
    os.kill(helper.pid, signal.SIGKILL)
    time.sleep(0.2)
    assert _works(helper)


def test_started_by_a_thread_that_ends(helper):
    helper.close()
    thread = threading.Thread(target=_works, args=(helper,))
    thread.start()
    thread.join(20)
    before = helper.pid
    time.sleep(0.2)
    assert _works(helper) and helper.pid == before


def test_waiting_for_the_lock_is_not_in_the_deadline(helper):
    assert _works(helper)
    ticket = lock._Ticket(lock.lock_folder("GPU-fake"))
    threading.Timer(1.0, ticket.discard).start()
    begin = time.monotonic()
    assert _call(helper, "slow", seconds=0.1, deadline=0.6) == "done"
    assert time.monotonic() - begin > 1.0


def test_the_device_tells_its_lock(tmp_path, monkeypatch, helper):
    monkeypatch.setattr(guard, "DEVICE_INFO", f"{WORKERS}:device_info")
    other = guard.GpuHelper()
    try:
        assert _call(other, "add", a=1, b=1) == 2
        assert (tmp_path / "course-lib-gpu-GPU-fake").is_dir()
    finally:
        other.close()


def test_what_only_asks_waits_for_nobody(helper):
    assert _works(helper)
    ticket = lock._Ticket(lock.lock_folder("GPU-fake"))
    try:
        assert _call(helper, "add", a=1, b=2, lock=False) == 3
    finally:
        ticket.discard()


def test_helper_dies_with_its_parent(tmp_path):
    script = (
        "import sys, os, signal\n"
        f"sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n"
        f"sys.path.insert(0, {str(pathlib.Path(__file__).parents[1])!r})\n"
        "from course_lib.real_gpu.guard import GpuHelper\n"
        "h = GpuHelper(uuid='GPU-fake')\n"
        "print(h.call('guard_workers:pid', deadline=20), flush=True)\n"
        "try: h.call('guard_workers:hang', deadline=100)\n"
        "finally: pass\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    os.kill(child, 0)
    process.kill()
    process.wait()
    for _ in range(100):
        if not _running(child):
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the helper outlived its parent")


def _running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
