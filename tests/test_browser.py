"""The course in a real browser: JupyterLab as `make lab` starts it, and a lesson run through."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest

from tools.lab import environment, options
from tools.notebooks import canonical

ROOT = Path(__file__).resolve().parent.parent
SECONDS_FOR_A_LESSON = 240
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
READY = """async () => {
    const app = window.jupyterapp;
    await app.restored;
    const panel = app.shell.currentWidget;
    await panel.context.ready;
    await panel.revealed;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
}"""
"""An idle indicator alone comes too early: a run-all before all of these is sometimes lost."""
RUN_ALL = """() => {
    window.courseRun = "running";
    window.jupyterapp.commands.execute("notebook:run-all-cells")
        .then(() => { window.courseRun = "done"; })
        .catch(error => { window.courseRun = "failed: " + error; });
}"""
CELLS = "() => window.jupyterapp.shell.currentWidget.content.widgets.map(c => c.model.toJSON())"
SHOW = "index => window.jupyterapp.shell.currentWidget.content.scrollToItem(index, 'center')"


@dataclass
class Visit:
    """What a learner would have seen: cells after the run, the page's complaints, a picture."""

    cells: list[dict]
    complaints: list[str]
    picture: Path
    figure_widths: list[int] = field(default_factory=list)
    pop_ups: list[str] = field(default_factory=list)

    def outputs(self, kind: str) -> list[dict]:
        """All outputs of one type."""
        found = (output for cell in self.cells for output in cell.get("outputs", []))
        return [output for output in found if output["output_type"] == kind]


def browser_or_skip() -> str:
    """Chromium's path; without one, a skip that says so (a failure where CI asks for it)."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        reason = "no chromium on this machine: sudo apt install chromium"
        if os.environ.get("COURSE_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def served(folder: Path, private: Path) -> Iterator[str]:
    """JupyterLab over `folder`, with settings of its own; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    chosen = [option for option in options(browser=False) if "root_dir" not in option]
    line = [
        *(sys.executable, "-m", "jupyterlab", *chosen),
        f"--ServerApp.root_dir={folder}",
        *(f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1"),
        *("--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"),
        "--LabApp.expose_app_in_browser=True",
    ]
    own = {
        "JUPYTER_CONFIG_DIR": str(private),
        "JUPYTER_RUNTIME_DIR": str(private / "runtime"),
        "JUPYTERLAB_WORKSPACES_DIR": str(private / "workspaces"),
        "JUPYTERLAB_SETTINGS_DIR": str(private / "settings"),
        "PYTHONPATH": str(ROOT),
    }
    log = private / "server.log"
    with log.open("w") as sink:
        server = subprocess.Popen(
            line, env={**environment(), **own}, stdout=sink, stderr=subprocess.STDOUT
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address, server, log)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()


def wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    """Until the server answers; fails with its log where it ended or never does."""
    for _ in range(240):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"{address}/api/status", timeout=1)
            return
        except OSError:
            time.sleep(0.25)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def visit(notebook: Path, workplace: Path) -> Visit:
    """Open a copy of `notebook` without outputs, run all its cells, and look at the result."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = browser_or_skip()
    folder, private = workplace / "course", workplace / "private"
    folder.mkdir()
    private.mkdir()
    bare = canonical(nbformat.read(notebook, as_version=4), with_outputs=False)
    nbformat.write(bare, folder / notebook.name)
    with served(folder, private) as address, playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, headless=True, args=CHROMIUM_FLAGS
        )
        page = browser.new_page(viewport={"width": 1280, "height": 1100})
        complaints: list[str] = []
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{address}/lab/tree/{notebook.name}?reset")
        page.wait_for_selector(".jp-Notebook", timeout=60_000)
        page.evaluate(READY)
        page.evaluate(RUN_ALL)
        page.wait_for_function(
            "window.courseRun !== 'running'", timeout=SECONDS_FOR_A_LESSON * 1000
        )
        cells = page.evaluate(CELLS)
        seen = Visit(cells, complaints, workplace / f"{notebook.stem}.png")
        show_last_figure(page, seen)
        seen.pop_ups = page.locator(".Toastify__toast").all_inner_texts()
        browser.close()
    return seen


def show_last_figure(page, seen: Visit) -> None:
    """Scroll to the last figure, note the widths of the figures in view, take a picture."""
    with_figure = [index for index, cell in enumerate(seen.cells) if figures(cell)]
    if with_figure:
        page.evaluate(SHOW, with_figure[-1])
        page.wait_for_selector(".jp-OutputArea img", timeout=20_000)
        page.wait_for_function("document.querySelector('.jp-OutputArea img').naturalWidth > 0")
        images = page.locator(".jp-OutputArea img")
        seen.figure_widths = images.evaluate_all("all => all.map(image => image.naturalWidth)")
    page.screenshot(path=str(seen.picture))


def figures(cell: dict) -> list[dict]:
    """A cell's outputs that are pictures."""
    return [out for out in cell.get("outputs", []) if "image/png" in out.get("data", {})]


def write_notebook(path: Path, *sources: str) -> Path:
    """A notebook with these code cells."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


@pytest.mark.timeout(SECONDS_FOR_A_LESSON + 120)
def test_lesson_03_runs_in_the_browser_and_its_timelines_appear(tmp_path):
    lesson = ROOT / "notebooks" / "03_two_buffers.ipynb"
    seen = visit(lesson, tmp_path)
    errors = [f"{error['ename']}: {error['evalue']}" for error in seen.outputs("error")]
    assert not errors
    timelines = [cell for cell in seen.cells if ".plot(" in "".join(cell["source"])]
    assert timelines and all(figures(cell) for cell in timelines)
    assert seen.figure_widths and min(seen.figure_widths) > 200
    assert not seen.complaints
    assert not seen.pop_ups
    assert seen.picture.stat().st_size > 20_000


@pytest.mark.timeout(180)
def test_a_failing_cell_is_seen_as_one(tmp_path):
    seen = visit(write_notebook(tmp_path / "x.ipynb", "1 + 1", "1 / 0", "print('no')"), tmp_path)
    assert [error["ename"] for error in seen.outputs("error")] == ["ZeroDivisionError"]
    assert not seen.outputs("stream")
    assert not seen.figure_widths
