"""The GPU's lock: one holder, first come first served, the dead do not block."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

import pytest

from course_lib.real_gpu import lock

UUID = "GPU-test"
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def private_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(lock.FOLDER_VARIABLE, str(tmp_path))


def _hold(name, seconds, log, started):
    with lock.gpu_lock(UUID, on_wait=lambda ahead, _: log.put((name, "ahead", ahead))):
        log.put((name, "in", time.monotonic()))
        started.set()
        time.sleep(seconds)
        log.put((name, "out", time.monotonic()))


def _drain(log):
    items = []
    while not log.empty():
        items.append(log.get())
        time.sleep(0.01)
    return items


def _start(name, seconds, log):
    started = SPAWN.Event()
    process = SPAWN.Process(target=_hold, args=(name, seconds, log, started))
    process.start()
    return process, started


def test_second_waits_sees_its_place_and_follows():
    log = SPAWN.Queue()
    first, started = _start("first", 1.0, log)
    assert started.wait(20)
    places = []
    begin = time.monotonic()
    with lock.gpu_lock(UUID, on_wait=lambda ahead, waited: places.append(ahead)) as waited:
        inside = time.monotonic()
    first.join(10)
    events = {kind: when for _, kind, when in _drain(log)}
    assert inside >= events["out"]
    assert places == [1, 0]
    assert waited == pytest.approx(inside - begin, abs=0.1)


def test_the_third_is_behind_the_second():
    order, places = [], []
    gate = threading.Event()

    def waiter(name):
        def place(ahead, _):
            places.append((name, ahead))

        with lock.gpu_lock(UUID, on_wait=place):
            order.append(name)

    # Threads of one process queue at its own lock, so processes are what is wanted: the two
    # tickets below stand for two of them.
    folder = lock.lock_folder(UUID)
    second, third = lock._Ticket(folder), None
    try:
        time.sleep(0.01)
        third = lock._Ticket(folder)
        assert (second.ahead(), third.ahead()) == (0, 1)
        late = threading.Thread(target=waiter, args=("last",))
        late.start()
        time.sleep(0.2)
        assert order == [] and places == [("last", 2)]
        second.discard()
        time.sleep(0.2)
        assert third.ahead() == 0 and places[-1] == ("last", 1)
    finally:
        if third is not None:
            third.discard()
    late.join(5)
    gate.set()
    assert order == ["last"] and places[-1] == ("last", 0)


def test_a_holder_that_is_killed_does_not_block():
    log = SPAWN.Queue()
    victim, started = _start("victim", 60.0, log)
    assert started.wait(20)
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(10)
    assert list(lock.lock_folder(UUID).glob("*.ticket"))  # it could not tidy up
    with lock.gpu_lock(UUID, timeout=5):
        assert len(list(lock.lock_folder(UUID).glob("*.ticket"))) == 1


def test_timeout_says_who_is_ahead():
    ticket = lock._Ticket(lock.lock_folder(UUID))
    try:
        with (
            pytest.raises(lock.GpuBusy, match="1 still ahead"),
            lock.gpu_lock(UUID, timeout=0.2),
        ):
            pass
    finally:
        ticket.discard()


def test_reentrant_and_other_gpus_are_free():
    with lock.gpu_lock(UUID), lock.gpu_lock(UUID) as waited, lock.gpu_lock("GPU-other"):
        assert waited == 0.0
    assert not list(lock.lock_folder(UUID).glob("*.ticket"))


def test_place_on_stderr(capsys):
    lock.say_place(2, 3.0)
    lock.say_place(0, 7.0)
    text = capsys.readouterr().err
    assert "2 others ahead of you" in text and "yours after 7 s" in text
