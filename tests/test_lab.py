"""`make lab` serves the course: its own process, a real address, closed to whoever has no token."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tools import lab

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def address(tmp_path):
    """The address that `make lab` prints where there is no display."""
    clean = {name: value for name, value in os.environ.items() if name not in lab.DISPLAYS}
    places = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "RUNTIME")}
    log = tmp_path / "log"
    with log.open("w") as sink:
        server = subprocess.Popen(
            [sys.executable, "-m", "tools.lab"],
            cwd=ROOT,
            env={**clean, **places},
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        for _ in range(240):
            found = re.search(r"http://127\.0\.0\.1:\S+", log.read_text())
            if found or server.poll() is not None:
                break
            time.sleep(0.25)
        assert found, log.read_text()
        assert "No display here" in log.read_text()
        yield found[0]
    finally:
        server.terminate()
        server.wait(15)


def status_of(url: str, token: str = "") -> int:
    """The HTTP status of a request, with a token or without."""
    headers = {"Authorization": f"token {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status
    except urllib.error.HTTPError as problem:
        return problem.code


def test_the_printed_address_opens_the_start_page_and_nothing_else_does(address):
    page, token = address.split("?token=")
    host = page.split("/lab")[0]
    assert page.endswith("/lab/tree/" + lab.START_PAGE)
    assert status_of(page, token) == 200
    assert status_of(f"{host}/api/contents/{lab.START_PAGE}?content=0", token) == 200
    assert status_of(f"{host}/api/contents/notebooks") == 403


def test_a_browser_opens_only_where_there_is_a_display(monkeypatch):
    for name in lab.DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    assert not lab.has_display()
    assert "--no-browser" in lab.options(browser=lab.has_display())
    monkeypatch.setenv("DISPLAY", ":0")
    assert "--no-browser" not in lab.options(browser=lab.has_display())
