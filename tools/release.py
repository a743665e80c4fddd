"""Make what students get: exercises/ from solutions/, and an archive of the course for them.

    python -m tools.release                  exercises/, and the archive in dist/
    python -m tools.release --check          say whether exercises/ is what a release would make

The notebooks go through nbgrader's own GenerateAssignment, so that its Validate button and its
grading know them. Nothing is written into a gradebook: `nbgrader generate_assignment` does that,
with the same steps, when an assignment is handed out (see grading/nbgrader_config.py).
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbgrader import utils
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from tools.exercise_notebooks import release_preprocessors
from tools.notebooks import canonical, text_of

ROOT = Path(__file__).resolve().parent.parent
MASTERS, RELEASED = ROOT / "solutions", ROOT / "exercises"
ARCHIVE = ROOT / "dist" / "software-pipelining-course.tar.gz"
WITHHELD = ("solutions", "grading", "tests", ".ci", ".git", "dist")
"""Top-level names that the students' archive must not have."""
STUBS = "stubs.json"
"""Beside each released notebook: grade id → the released text of each cell that students fill."""


def names() -> list[str]:
    """Every exercise that has a master."""
    return sorted(path.stem for path in MASTERS.glob("*/*.ipynb"))


def build(into: Path, masters: Path = MASTERS) -> list[Path]:
    """Make every student's notebook in ``into``/NAME/; gives all files that were made."""
    made: list[Path] = []
    for master in sorted(masters.glob("*/*.ipynb")):
        name = master.stem
        generate(name, masters, into)
        path = into / name / f"{name}.ipynb"
        notebook = canonical(nbformat.read(path, as_version=4), with_outputs=False)
        path.write_text(text_of(notebook), encoding="utf-8")
        stubs = {
            cell.metadata.nbgrader.grade_id: cell.source
            for cell in notebook.cells
            if utils.is_solution(cell)
        }
        listing = path.with_name(STUBS)
        listing.write_text(json.dumps(stubs, indent=1, ensure_ascii=False) + "\n", "utf-8")
        made += [path, listing]
    return made


def generate(name: str, masters: Path, into: Path) -> None:
    """One assignment through nbgrader's converter, without a gradebook."""
    config = Config()
    config.CourseDirectory.root = str(ROOT)
    config.CourseDirectory.source_directory = str(masters)
    config.CourseDirectory.release_directory = str(into)
    config.CourseDirectory.assignment_id = name
    config.GenerateAssignment.no_database = True
    config.GenerateAssignment.preprocessors = release_preprocessors()
    config.SaveCells.enabled = False
    coursedir = CourseDirectory(config=config)
    converter = GenerateAssignment(coursedir=coursedir, config=config)
    converter.log = logging.getLogger("release")
    converter.log.setLevel(logging.ERROR)
    converter.force = True
    converter.start()


def differences(built: Path, released: Path = RELEASED) -> list[str]:
    """Where ``released`` is not what was built, a line each."""
    found = []
    wanted = {path.relative_to(built) for path in built.rglob("*") if path.is_file()}
    there = {path.relative_to(released) for path in released.rglob("*") if path.is_file()}
    there = {path for path in there if ".ipynb_checkpoints" not in path.parts}
    found += [f"{path} is missing" for path in sorted(wanted - there)]
    found += [f"{path} has no master" for path in sorted(there - wanted)]
    for path in sorted(wanted & there):
        if (built / path).read_bytes() != (released / path).read_bytes():
            found.append(f"{path} differs from what its master makes")
    return found


def archive_members(root: Path = ROOT) -> list[str]:
    """The files of the course that students get: what git knows, without the withheld folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
    files = sorted(set(filter(None, listed.split("\0"))))
    return [f for f in files if Path(f).parts[0] not in WITHHELD and (root / f).is_file()]


def write_archive(path: Path, root: Path = ROOT) -> int:
    """Pack the students' files in one folder; gives how many. Equal files give equal names only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    members = archive_members(root)
    with tarfile.open(path, "w:gz") as tar:
        for name in members:
            tar.add(root / name, f"software-pipelining/{name}", recursive=False)
    return len(members)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(prog="make release", description="Make what students get.")
    parser.add_argument("--check", action="store_true", help="change nothing, say what would")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "exercises"
        build(built)
        changed = differences(built)
        if options.check:
            print("\n".join(changed) or "make release: exercises/ is up to date")
            return 1 if changed else 0
        if changed:
            shutil.rmtree(RELEASED, ignore_errors=True)
            shutil.copytree(built, RELEASED)
    count = write_archive(ARCHIVE)
    done = ", ".join(names())
    print(f"make release: exercises/ has {done}; {len(changed)} files changed")
    print(f"make release: {ARCHIVE.relative_to(ROOT)} holds {count} files for students")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
