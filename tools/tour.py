"""Run every lesson from top to bottom without a browser, and print a line for each.

    python -m tools.tour                        all lessons, on whatever device there is
    python -m tools.tour 03 --device virtual    one lesson, on the virtual GPU
    python -m tools.tour --output notebooks     and keep the executed notebooks

Needs nbclient and ipykernel only. Exit status 1 where a lesson failed.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from tools.notebooks import canonical, text_of

ROOT = Path(__file__).resolve().parent.parent
LESSONS = ROOT / "notebooks"
ASK_DEVICE = "from course_lib import device_info as _info; print(_info().name)"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Outcome:
    """How one notebook's run went; `problem` is empty where it went well."""

    name: str
    device: str
    seconds: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem

    def __str__(self) -> str:
        result = "ok" if self.ok else self.problem
        return f"{self.name:<26} {self.device:<14} {self.seconds:6.1f} s  {result}"


class Failed(Exception):
    """A cell failed; the message is a sentence."""


def lessons(wanted: Sequence[str] = (), folder: Path = LESSONS) -> list[Path]:
    """Notebooks in reading order: paths as given, or lessons whose names begin as wanted."""
    numbered = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not wanted:
        return numbered
    found: list[Path] = []
    for name in wanted:
        if name.endswith(".ipynb"):
            chosen = [Path(name)]
        else:
            chosen = [path for path in numbered if path.name.startswith(name)]
        if not chosen or not all(path.exists() for path in chosen):
            raise SystemExit(f"make tour: there is no lesson {name!r} in {folder}")
        found += chosen
    return found


def run_notebook(path: Path, output: Path | None = None, timeout: int = 300) -> Outcome:
    """Execute one notebook in its own folder with a fresh kernel.

    `output` is a folder for the executed notebook (written only if all went well); `timeout` is in
    seconds for each cell.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],  # its remarks about transports help nobody here
        resources={"metadata": {"path": str(path.parent)}},
    )
    start = time.perf_counter()
    device, problem = "?", ""
    try:
        with client.setup_kernel():
            device = ask_device(client)
            execute_all(client, notebook)
    except Failed as failed:
        problem = str(failed)
    seconds = time.perf_counter() - start
    if output and not problem:
        notebook.metadata["course"] = {"device": device}
        output.mkdir(parents=True, exist_ok=True)
        (output / path.name).write_text(text_of(canonical(notebook, True)), encoding="utf-8")
    return Outcome(path.stem, device, seconds, problem)


def ask_device(client: NotebookClient) -> str:
    """The name of the device that the kernel's calls will run on."""
    cell = nbformat.v4.new_code_cell(ASK_DEVICE)
    own = list(client.nb.cells)
    try:
        client.execute_cell(cell, 0, store_history=False)
    except CellExecutionError as error:
        raise Failed(f"no device: {sentence(error)}") from None
    finally:
        client.nb.cells[:] = own  # nbclient put the question in the place of the first cell
    return "".join(part.get("text", "") for part in cell.outputs).strip()


def execute_all(client: NotebookClient, notebook: NotebookNode) -> None:
    """Run the cells in order; raises Failed at the first that fails."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    for index, cell in enumerate(notebook.cells):
        try:
            client.execute_cell(cell, index)
        except CellExecutionError as error:
            raise Failed(f"cell {cell.id!r}: {sentence(error)}") from None
        except CellTimeoutError:
            raise Failed(f"cell {cell.id!r} took longer than {client.timeout} s") from None
        except DeadKernelError:
            raise Failed(f"cell {cell.id!r} ended the notebook's process") from None
        cell.metadata.pop("execution", None)  # nbclient's times of day


def sentence(error: CellExecutionError) -> str:
    """The first line of what the cell raised."""
    lines = COLOURS.sub("", error.evalue or "").strip().splitlines()
    return f"{error.ename}: {lines[0] if lines else 'no message'}"


def prepare_environment(device: str) -> None:
    """What the kernels inherit: this repository's course_lib, this Python, the wanted device."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # debugpy's warning, of no use
    if device != "auto":
        os.environ["COURSE_DEVICE"] = device


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name and print a line for each; 1 where something failed."""
    parser = argparse.ArgumentParser(prog="make tour", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lessons", nargs="*", help="numbers (03), or notebooks; all without any")
    parser.add_argument("--device", choices=("auto", "gpu", "virtual"), default="auto")
    parser.add_argument("--output", type=Path, help="folder for the executed notebooks")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for each cell")
    options = parser.parse_args(arguments)
    prepare_environment(options.device)
    outcomes = []
    for path in lessons(options.lessons):
        outcomes.append(run_notebook(path, options.output, options.timeout))
        print(outcomes[-1], flush=True)
    good = sum(outcome.ok for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    line = f"make tour: {good} of {len(outcomes)} lessons ran without an error, {seconds:.0f} s"
    print(line + (f"; executed notebooks are in {options.output}" if options.output else ""))
    return 0 if good == len(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
