"""Open JupyterLab on the course's first page: what `make lab` runs.

The token stays on, so the course can be served on a shared machine. Without a display the address
is printed, and how to reach it from another machine.
"""

from __future__ import annotations

import getpass
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_PAGE = "notebooks/start.ipynb"
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def has_display() -> bool:
    """Whether a browser could open here."""
    return any(os.environ.get(name) for name in DISPLAYS)


def options(page: str = START_PAGE, browser: bool = True) -> list[str]:
    """JupyterLab's options. `page` is relative to the repository."""
    chosen = [
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.default_url=/lab/tree/{page}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--ServerApp.log_level=WARN",
    ]
    if not browser:
        chosen.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        chosen.append("--allow-root")  # inside a container
    return chosen


def environment() -> dict[str, str]:
    """This environment's kernel goes first, also where the user has one of that name elsewhere."""
    return {**os.environ, "JUPYTER_PREFER_ENV_PATH": "1"}


def command(page: str = START_PAGE, browser: bool = True, extra: Sequence[str] = ()) -> list[str]:
    """The command line that serves the course."""
    return [sys.executable, "-m", "jupyterlab", *options(page, browser), *extra]


def main() -> None:
    """Say where to look, then become the server."""
    extra = sys.argv[1:]
    browser = has_display() and "--no-browser" not in extra
    if browser:
        print("JupyterLab opens in the browser; Ctrl-C, then y, ends it. Its address is also:")
    else:
        there = f"{getpass.getuser()}@{platform.node()}"
        print(
            "No display here: open the address below in a browser; Ctrl-C, then y, ends it.\n"
            f"From another machine first: ssh -L 8888:localhost:8888 {there}\n"
            "with the address's port in place of 8888."
        )
    sys.stdout.flush()
    os.chdir(ROOT)
    line = command(browser=browser, extra=extra)
    os.execve(line[0], line, environment())


if __name__ == "__main__":
    main()
