"""Keep notebooks canonical, so that their diffs show what somebody changed and nothing else.

    python -m tools.notebooks check    what is not canonical, a line each; exit 1 where there is any
    python -m tools.notebooks fix      repair what can be repaired without running anything

Canonical: nbformat 4.5 as nbformat writes it, one cell id for each cell, minimal metadata. Outputs
are in notebooks/ only, and there they come from one clean run from top to bottom, on the device
that `metadata.course.device` names (`python -m tools.tour --output notebooks` makes them so).
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("notebooks", "exercises", "solutions")
WITH_OUTPUTS = "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
CELL_METADATA = ("nbgrader", "tags", "editable", "deletable")
CELL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{1,63}")
MACHINE_WORDS = re.compile(r"/(?:root|home|Users)/\w|/tmp/|at 0x[0-9a-f]{6,}>")
"""What an output says of the machine that made it: paths, object addresses."""
MAY_FAIL = "raises-exception"
"""The tag of a cell whose error is part of the lesson."""
WIDGET = "application/vnd.jupyter.widget-view+json"
"""An output that means nothing without its kernel: the still picture before it stays."""


def notebooks(root: Path = ROOT) -> list[Path]:
    """Every notebook of the course, in reading order."""
    found = (path for folder in FOLDERS for path in (root / folder).rglob("*.ipynb"))
    return sorted(path for path in found if ".ipynb_checkpoints" not in path.parts)


def canonical(notebook: NotebookNode, with_outputs: bool) -> NotebookNode:
    """`notebook` in canonical form (changed in place)."""
    metadata = {"kernelspec": dict(KERNEL), "language_info": {"name": "python"}}
    if with_outputs and "course" in notebook.metadata and was_run(notebook):
        metadata["course"] = notebook.metadata.course
    notebook.metadata = nbformat.from_dict(metadata)
    notebook.nbformat_minor = max(notebook.nbformat_minor, 5)
    for cell in notebook.cells:
        kept = {name: cell.metadata[name] for name in CELL_METADATA if name in cell.metadata}
        kept = {name: value for name, value in kept.items() if value not in ([], {}, True)}
        cell.metadata = nbformat.from_dict(kept)
        if cell.cell_type != "code":
            continue
        if with_outputs:
            cell.outputs = joined([o for o in cell.outputs if WIDGET not in o.get("data", {})])
        else:
            cell.outputs, cell.execution_count = [], None
    return notebook


def joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs with neighbouring pieces of one stream made one: how it was cut up is chance."""
    result: list[NotebookNode] = []
    for output in outputs:
        before = result[-1] if result else None
        if before and output.output_type == "stream" == before.output_type:
            if output.name == before.name:
                before.text += output.text
                continue
        result.append(output)
    return result


def text_of(notebook: NotebookNode) -> str:
    """The file's content, as nbformat writes it."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that a run executes."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def was_run(notebook: NotebookNode) -> bool:
    """Whether any cell shows a run."""
    return any(cell.execution_count or cell.outputs for cell in code_cells(notebook))


def problems(path: Path, root: Path = ROOT) -> Iterator[str]:
    """What is not canonical about a notebook, in words."""
    with_outputs = path.relative_to(root).parts[0] == WITH_OUTPUTS
    before = path.read_text(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nbformat.warnings.DuplicateCellId)
        notebook = nbformat.reads(before, as_version=4)
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as problem:
        yield f"is no valid notebook: {str(problem).splitlines()[0]}"
        return
    yield from id_problems(json.loads(before)["cells"])
    if with_outputs and was_run(notebook):
        yield from run_problems(notebook)
    if text_of(canonical(notebook, with_outputs)) != before:
        yield "is not in canonical form: `make format` repairs it"


def id_problems(cells: list[dict[str, Any]]) -> Iterator[str]:
    """Cell ids that are missing, odd or used twice (as written: nbformat would repair them)."""
    seen: set[str] = set()
    for number, cell in enumerate(cells, 1):
        name = cell.get("id", "")
        if not CELL_ID.fullmatch(name):
            yield f"cell {number} has no usable id ({name!r})"
        elif name in seen:
            yield f"two cells have the id {name!r}"
        seen.add(name)


def run_problems(notebook: NotebookNode) -> Iterator[str]:
    """Signs that the outputs are not those of one clean run on a device that is named."""
    counts = [cell.execution_count for cell in code_cells(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        yield (
            f"its outputs are not of one run from top to bottom (cells were run as {counts}): "
            "make tour ARGS='--output notebooks'"
        )
    if not notebook.metadata.get("course", {}).get("device"):
        yield "has outputs, and metadata.course.device does not say of which device"
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error" and MAY_FAIL not in cell.metadata.get("tags", []):
                yield f"cell {cell.id!r} shows an error: {output.ename}: {output.evalue[:80]}"
            found = MACHINE_WORDS.search(shown_text(output))
            if found:
                yield f"cell {cell.id!r} shows something of one machine only: {found[0]!r}"


def shown_text(output: NotebookNode) -> str:
    """What a reader sees of an output as text."""
    data = output.get("data", {})
    parts = [output.get("text", ""), output.get("evalue", "")]
    parts += [data[kind] for kind in ("text/plain", "text/html") if kind in data]
    return "\n".join(parts)


def fix(path: Path, root: Path = ROOT) -> bool:
    """Rewrite a notebook in canonical form; whether that changed it."""
    with_outputs = path.relative_to(root).parts[0] == WITH_OUTPUTS
    before = path.read_text(encoding="utf-8")
    after = text_of(canonical(nbformat.reads(before, as_version=4), with_outputs))
    if after != before:
        path.write_text(after, encoding="utf-8")
    return after != before


def main(arguments: list[str]) -> int:
    """`check` or `fix`; see the top of this file."""
    if arguments[:1] not in (["check"], ["fix"]):
        print(__doc__)
        return 2
    if arguments[0] == "fix":
        changed = [path.name for path in notebooks() if fix(path)]
        print(f"notebooks: rewrote {', '.join(changed) or 'none'}")
        return 0
    found = [f"{path.relative_to(ROOT)}: {line}" for path in notebooks() for line in problems(path)]
    print("\n".join(found) if found else f"notebooks: all {len(notebooks())} are canonical")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
