"""Executing an exercise's notebook, and reading what nbgrader would make of it."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbgrader import utils

ROOT = Path(__file__).resolve().parent.parent


def executed(path: Path) -> NotebookNode:
    """The notebook after one run on the virtual GPU, in its own folder."""
    notebook = nbformat.read(path, as_version=4)
    environment = {**os.environ, "COURSE_DEVICE": "virtual", "PYTHONPATH": str(ROOT)}
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        allow_errors=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute(env=environment)
    return notebook


def points(notebook: NotebookNode) -> dict[str, float | None]:
    """Grade id → what nbgrader reads from the outputs; None where a person has to look."""
    return {
        cell.metadata.nbgrader.grade_id: utils.determine_grade(cell)[0]
        for cell in notebook.cells
        if utils.is_grade(cell)
    }


def errors(notebook: NotebookNode) -> list[str]:
    """Errors and words on stderr, with the id of their cell."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                found.append(f"{cell.id}: {output.ename}: {output.evalue}")
            elif output.output_type == "stream" and output.name == "stderr":
                found.append(f"{cell.id}: {output.text}")
    return found
