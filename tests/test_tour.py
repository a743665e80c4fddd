"""The tour runs notebooks and says how it went; the notebook check sees what is not canonical."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tools import notebooks, tour

SETUP = "%load_ext course_lib"


def write(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for number, cell in enumerate(cells, 1):
        cell["id"] = f"cell-{number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.v4.new_notebook(cells=cells)
    path.write_text(notebooks.text_of(notebooks.canonical(notebook, True)))
    return path


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A folder with a notebooks/ of its own, on the virtual GPU."""
    for name in ("PYTHONPATH", "COURSE_DEVICE", "JUPYTER_PREFER_ENV_PATH"):
        monkeypatch.setenv(name, "")  # so that what the tour sets is undone
    tour.prepare_environment("virtual")
    return tmp_path


def found(path: Path, root: Path) -> str:
    return "\n".join(notebooks.problems(path, root))


def test_an_executed_notebook_is_canonical_and_names_its_device(course):
    lesson = write(course / "notebooks" / "00_x.ipynb", SETUP, "print('a')\nprint('b')", "1 + 1")
    before = lesson.read_text()
    outcome = tour.run_notebook(lesson, course / "out" / "notebooks")
    assert outcome.ok and outcome.device == "virtual GPU"
    assert lesson.read_text() == before
    executed = course / "out" / "notebooks" / "00_x.ipynb"
    assert found(executed, course / "out") == ""
    notebook = nbformat.read(executed, as_version=4)
    assert notebook.metadata.course.device == "virtual GPU"
    assert [cell.id for cell in notebook.cells] == ["cell-1", "cell-2", "cell-3"]
    assert notebook.cells[1].outputs[0].text == "a\nb\n"
    assert notebook.cells[2].outputs[0].data["text/plain"] == "2"


def test_a_widget_leaves_its_still_picture_and_nothing_that_needs_a_kernel(course):
    lesson = write(
        course / "notebooks" / "00_x.ipynb", SETUP, "from course_lib import explore_stages",
        "explore_stages()",
    )  # fmt: skip
    assert tour.run_notebook(lesson, course / "out" / "notebooks").ok
    notebook = nbformat.read(course / "out" / "notebooks" / "00_x.ipynb", as_version=4)
    (output,) = notebook.cells[2].outputs
    assert "<img src=" in output.data["text/html"] and set(output.data) == {
        "text/html",
        "text/plain",
    }
    assert "widgets" not in notebook.metadata


def test_a_failing_cell_is_named_with_its_sentence_and_nothing_is_written(course, capsys):
    write(
        course / "notebooks" / "00_x.ipynb", "x = 1", "raise ValueError('tile 3 is wrong\\nmore')"
    )
    lesson = str(course / "notebooks" / "00_x.ipynb")
    assert tour.main([lesson, "--device", "virtual", "--output", str(course / "out")]) == 1
    line, closing = capsys.readouterr().out.splitlines()
    assert line.startswith("00_x") and line.endswith("cell 'cell-2': ValueError: tile 3 is wrong")
    assert closing.startswith("make tour: 0 of 1 lessons")
    assert not (course / "out").exists()


def test_a_cell_that_never_ends_and_one_that_kills_the_kernel_cost_a_sentence(course):
    slow = write(course / "notebooks" / "00_slow.ipynb", "import time; time.sleep(60)")
    assert "took longer than 2 s" in tour.run_notebook(slow, timeout=2).problem
    dead = write(course / "notebooks" / "01_dead.ipynb", "import os; os._exit(1)")
    assert "ended the notebook's process" in tour.run_notebook(dead).problem


def test_lessons_are_found_in_order_and_unknown_ones_refused(tmp_path):
    for name in ("01_b.ipynb", "00_a.ipynb", "start.ipynb"):
        write(tmp_path / name, "1")
    assert [path.stem for path in tour.lessons(folder=tmp_path)] == ["00_a", "01_b"]
    assert [path.stem for path in tour.lessons(["01"], tmp_path)] == ["01_b"]
    with pytest.raises(SystemExit, match="no lesson '07'"):
        tour.lessons(["07"], tmp_path)


def executed(path: Path, *counts: int | None, text: str = "1\n", device: str = "H200") -> Path:
    """A notebook whose cells look as if they had been run with these counts."""
    write(path, *["print(1)"] * len(counts))
    notebook = nbformat.read(path, as_version=4)
    for cell, count in zip(notebook.cells, counts, strict=True):
        cell.execution_count = count
        cell.outputs = [nbformat.v4.new_output("stream", text=text)]
    notebook.metadata["course"] = {"device": device} if device else {}
    path.write_text(notebooks.text_of(notebook))
    return path


@pytest.mark.parametrize(
    ("counts", "how", "words"),
    [
        ((1, 2, 3), {}, ""),
        ((1, 3, 2), {}, "not of one run from top to bottom"),
        ((2, 3, 4), {}, "not of one run from top to bottom"),
        ((1, None, 2), {}, "not of one run from top to bottom"),
        ((1,), {"device": ""}, "does not say of which device"),
        ((1,), {"text": "/home/ann/x.cu\n"}, "something of one machine only: '/home/a'"),
        ((1,), {"text": "<A object at 0x7f00aa00>\n"}, "something of one machine only"),
    ],
)
def test_outputs_must_come_from_one_clean_run(tmp_path, counts, how, words):
    problems = found(executed(tmp_path / "notebooks" / "x.ipynb", *counts, **how), tmp_path)
    assert words in problems if words else problems == ""


def test_a_shown_error_needs_a_tag_that_says_it_is_meant(tmp_path):
    path = executed(tmp_path / "notebooks" / "x.ipynb", 1)
    notebook = nbformat.read(path, as_version=4)
    error = nbformat.v4.new_output("error", ename="Oops", evalue="no", traceback=[])
    notebook.cells[0].outputs = [error]
    path.write_text(notebooks.text_of(notebook))
    assert "shows an error: Oops" in found(path, tmp_path)
    notebook.cells[0].metadata["tags"] = [notebooks.MAY_FAIL]
    path.write_text(notebooks.text_of(notebook))
    assert found(path, tmp_path) == ""


def test_fix_repairs_form_and_keeps_what_was_written(tmp_path):
    path = executed(tmp_path / "exercises" / "x.ipynb", 1, 2)
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["widgets"] = {"state": {}}
    notebook.metadata.kernelspec["display_name"] = "my kernel"
    notebook.cells[0].metadata = nbformat.from_dict({"tags": ["a"], "collapsed": True})
    path.write_text(nbformat.writes(notebook))
    assert "not in canonical form" in found(path, tmp_path)
    assert notebooks.fix(path, tmp_path)
    assert found(path, tmp_path) == ""
    assert not notebooks.fix(path, tmp_path)
    after = nbformat.read(path, as_version=4)
    assert [cell.source for cell in after.cells] == ["print(1)", "print(1)"]
    assert [cell.outputs for cell in after.cells] == [[], []]
    assert after.cells[0].metadata == {"tags": ["a"]}


def test_ids_must_be_there_and_differ(tmp_path):
    path = write(tmp_path / "notebooks" / "x.ipynb", "1", "2")
    path.write_text(path.read_text().replace("cell-2", "cell-1"))
    assert "two cells have the id 'cell-1'" in found(path, tmp_path)


def test_the_committed_notebooks_are_canonical():
    listed = notebooks.notebooks()
    assert len(listed) >= 5
    assert {str(path): list(notebooks.problems(path)) for path in listed} == {
        str(path): [] for path in listed
    }
