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
from typing import Any

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


@dataclass
class Lab:
    """One JupyterLab and one browser for all tests of this module."""

    address: str
    folder: Path
    browser: Any

    @contextmanager
    def run(self, notebook: Path) -> Iterator[tuple[Any, list[str]]]:
        """A page on which a copy of `notebook` without outputs has run, and its complaints."""
        bare = canonical(nbformat.read(notebook, as_version=4), with_outputs=False)
        nbformat.write(bare, self.folder / notebook.name)
        page = self.browser.new_page(viewport={"width": 1280, "height": 1100})
        complaints: list[str] = []
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{self.address}/lab/tree/{notebook.name}?reset")
        page.wait_for_selector(".jp-Notebook", timeout=60_000)
        page.evaluate(READY)
        page.evaluate(RUN_ALL)
        page.wait_for_function(
            "window.courseRun !== 'running'", timeout=SECONDS_FOR_A_LESSON * 1000
        )
        try:
            yield page, complaints
        finally:
            page.evaluate("() => window.jupyterapp.commands.execute('notebook:shutdown-kernel')")
            page.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """JupyterLab over an empty folder, and a browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = browser_or_skip()
    folder, private = tmp_path_factory.mktemp("course"), tmp_path_factory.mktemp("private")
    with served(folder, private) as address, playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, headless=True, args=CHROMIUM_FLAGS
        )
        yield Lab(address, folder, browser)
        browser.close()


def visit(lab: Lab, notebook: Path, workplace: Path) -> Visit:
    """Run all cells of a notebook, and look at the result."""
    with lab.run(notebook) as (page, complaints):
        cells = page.evaluate(CELLS)
        seen = Visit(cells, complaints, workplace / f"{notebook.stem}.png")
        show_last_figure(page, seen)
        seen.pop_ups = page.locator(".Toastify__toast").all_inner_texts()
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
def test_lesson_03_runs_in_the_browser_and_its_timelines_appear(lab, tmp_path):
    lesson = ROOT / "notebooks" / "03_two_buffers.ipynb"
    seen = visit(lab, lesson, tmp_path)
    errors = [f"{error['ename']}: {error['evalue']}" for error in seen.outputs("error")]
    assert not errors
    timelines = [cell for cell in seen.cells if ".plot(" in "".join(cell["source"])]
    assert timelines and all(figures(cell) for cell in timelines)
    assert seen.figure_widths and min(seen.figure_widths) > 200
    assert not seen.complaints
    assert not seen.pop_ups
    assert seen.picture.stat().st_size > 20_000


@pytest.mark.timeout(180)
def test_a_failing_cell_is_seen_as_one(lab, tmp_path):
    notebook = write_notebook(tmp_path / "x.ipynb", "1 + 1", "1 / 0", "print('no')")
    seen = visit(lab, notebook, tmp_path)
    assert [error["ename"] for error in seen.outputs("error")] == ["ZeroDivisionError"]
    assert not seen.outputs("stream")
    assert not seen.figure_widths


SET_UP = """
import sys
sys.path.insert(0, {tests!r})
from ring_kernel import problem, ring
from course_lib import explore_stages, explore_timeline, trace
"""
STAGES = "explore_stages()"
TIMELINE = "explore_timeline(trace(ring(3), problem(24), device='virtual'))"
BROKEN = "explore_timeline(trace(ring(2, 'NO_REUSE'), problem(8), device='virtual'))"


@pytest.fixture
def widgets(tmp_path) -> Path:
    """A notebook with a slider widget, a ring that is right and one that overwrites."""
    set_up = SET_UP.format(tests=str(ROOT / "tests"))
    return write_notebook(tmp_path / "widgets.ipynb", set_up, STAGES, TIMELINE, BROKEN)


@pytest.mark.timeout(240)
def test_widgets_answer_mouse_and_keys_and_a_page_without_kernel_shows_a_picture(
    lab, widgets, tmp_path
):
    with lab.run(widgets) as (page, complaints):
        assert not [o for c in page.evaluate(CELLS) for o in c.get("outputs", []) if "ename" in o]
        live = page.locator(".course-live-widget")
        for index in range(1, 4):  # scrolled to, so that the windowed notebook makes them all
            page.evaluate(SHOW, index)
            live.nth(index - 1).locator("svg[role=img]").first.wait_for(timeout=20_000)
            page.screenshot(path=str(tmp_path / f"widget{index}.png"))
        # The still pictures give way to the living ones.
        assert not any(image.is_visible() for image in page.locator(".course-static-picture").all())
        the_sliders_of_explore_stages_move_its_picture(page, live.nth(0), tmp_path)
        the_ring_plays_and_follows_keys(page, live.nth(1), tmp_path)
        alarm = live.nth(2)
        page.evaluate(SHOW, 3)
        assert alarm.locator("rect[data-state=overwritten]").count() == 1
        assert alarm.get_by_text("OVERWRITTEN", exact=True).is_visible()
        assert not complaints
        page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_timeout(500)
    a_page_without_a_kernel_shows_pictures(lab, lab.folder / widgets.name, tmp_path)


def label_of(widget) -> str:
    """What a screen reader says of a widget's picture."""
    return widget.locator("svg[role=img]").first.get_attribute("aria-label")


def wait_for_another(page, widget, before: str) -> float:
    """Seconds until the picture says something else than `before`."""
    begin = time.perf_counter()
    while label_of(widget) == before:
        assert time.perf_counter() - begin < 10, f"the picture stays as it is: {before}"
        page.wait_for_timeout(10)
    return time.perf_counter() - begin


def control_of(widget, name: str):
    """The box of the field and the slider of that name."""
    return widget.locator(".widget-gridbox > .widget-hbox", has_text=name)


def the_sliders_of_explore_stages_move_its_picture(page, widget, folder: Path) -> None:
    page.evaluate(SHOW, 1)
    for name in ("L (cycles)", "stages S", "bytes / tile"):
        field = widget.get_by_role("spinbutton", name=name)  # the name that a reader says
        for control in (field, control_of(widget, name).locator("[role=slider]")):
            before = label_of(widget)
            control.focus()
            page.keyboard.press("ArrowUp")
            wait_for_another(page, widget, before)
    before = label_of(widget)
    track = control_of(widget, "C (cycles)").locator(".noUi-base")
    box = track.bounding_box()
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2)
    wait_for_another(page, widget, before)
    preset = widget.locator("select").first
    before = label_of(widget)
    preset.select_option(label=preset.locator("option").last.inner_text())
    wait_for_another(page, widget, before)
    assert "L 500, C 220" in label_of(widget)
    page.screenshot(path=str(folder / "stages_moved.png"))


def the_ring_plays_and_follows_keys(page, widget, folder: Path) -> None:
    page.evaluate(SHOW, 2)
    slots = widget.locator("rect[data-state]")

    def ring_now() -> list[tuple[str, str]]:
        return slots.evaluate_all("all => all.map(s => s.dataset.state + ' ' + s.dataset.slotTile)")

    handle = widget.locator("[role=slider]").first
    before = label_of(widget)
    handle.focus()
    page.keyboard.press("ArrowUp")
    wait_for_another(page, widget, before)
    before = label_of(widget)
    widget.get_by_text("event ▶").focus()
    page.keyboard.press("Enter")
    wait_for_another(page, widget, before)
    play = widget.locator(".widget-play button").first
    play.click()
    seen = set()
    for _ in range(60):
        seen.add(tuple(ring_now()))
        page.wait_for_timeout(50)
    play.click()
    page.screenshot(path=str(folder / "ring_played.png"))
    assert len(seen) >= 4, f"the ring hardly moved: {seen}"
    states = {state.rpartition(" ")[0] for ring in seen for state in ring}
    assert {"loading", "being read"} <= states


def a_page_without_a_kernel_shows_pictures(lab: Lab, notebook: Path, folder: Path) -> None:
    """The saved notebook, exported as `jupyter nbconvert --to html` does it."""
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter().from_filename(str(notebook))
    exported = folder / "widgets.html"
    exported.write_text(html)
    page = lab.browser.new_page(viewport={"width": 1280, "height": 1100})
    page.goto(exported.as_uri(), wait_until="domcontentloaded")
    images = page.locator(".course-static-picture img")
    assert images.count() == 3
    for image in images.all():
        image.scroll_into_view_if_needed()
        assert image.is_visible() and image.get_attribute("alt")
        assert image.evaluate("image => image.complete && image.naturalWidth") > 200
    page.screenshot(path=str(folder / "exported.png"))
    page.close()
