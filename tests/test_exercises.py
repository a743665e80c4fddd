"""Exercises: what students get, what it scores, and that every bank's answers score as declared."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import nbformat
import pytest
from answer_banks import Answer, bank
from exercise_runs import errors, executed, points
from nbgrader import utils
from nbgrader.validator import Validator

from course_lib import checks
from course_lib.checks.answers import from_cells
from course_lib.checks.exercise import Score
from grading.hidden import checks_of
from tools import exercise_notebooks, release

ROOT = Path(__file__).resolve().parent.parent
SECRET = "a secret of the tests"
NAMES = checks.NAMES
ANSWERS = [(name, answer) for name in NAMES for answer in bank(name)]


def master(name: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / "solutions" / name / f"{name}.ipynb", as_version=4)


def released(name: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / "exercises" / name / f"{name}.ipynb", as_version=4)


def cells_of(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Grade id → text of the cells that students fill."""
    return {
        cell.metadata.nbgrader.grade_id: cell.source
        for cell in notebook.cells
        if utils.is_solution(cell)
    }


def without_marks(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if "SOLUTION" not in line)


# --- what is released -----------------------------------------------------------------------------


def test_exercises_are_exactly_what_a_release_makes(tmp_path):
    release.build(tmp_path)
    assert release.differences(tmp_path) == []
    assert release.names() == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_solution_only_fills_marked_places(name):
    theirs, ours = released(name), master(name)
    assert [cell.id for cell in theirs.cells] == [cell.id for cell in ours.cells]
    for stub, solved in zip(theirs.cells, ours.cells, strict=True):
        if not utils.is_solution(solved):
            assert stub.source == solved.source
        elif solved.cell_type == "code":
            kept = [line for line in stub.source.split("\n") if "Your code here" not in line]
            kept = [line for line in kept if not re.match(r"\w+ = None$", line)]
            lines = iter(solved.source.split("\n"))
            assert all(line in lines for line in kept)  # in this order


@pytest.mark.parametrize("name", NAMES)
def test_cells_fit_the_exercise(name):
    """Points, names and ids of the notebook are those of the module; ids are grade ids."""
    exercise = checks.exercise(name)
    cells = master(name).cells
    graded = {c.metadata.nbgrader.grade_id: c for c in cells if utils.is_grade(c)}
    assert {key: c.metadata.nbgrader.points for key, c in graded.items()} == {
        part.name: part.points for part in exercise.parts
    }
    for cell in cells:
        if "nbgrader" in cell.metadata:
            assert cell.id == cell.metadata.nbgrader.grade_id
    solutions = {c.id for c in cells if utils.is_solution(c)}
    expected = {*exercise.kernels.values(), *exercise.literals.values(), *exercise.prose}
    assert solutions == expected
    for part in exercise.parts:
        by_hand = graded[part.name].cell_type == "markdown"
        assert by_hand == (part.check is None) == bool(part.rubric)
        if not by_hand:
            assert graded[part.name].source == f'exercise.grade("{part.name}", globals())'


@pytest.mark.parametrize("name", NAMES)
def test_what_students_get_has_no_outputs_and_no_solution(name):
    for cell in released(name).cells:
        assert not cell.get("outputs") and "SOLUTION" not in cell.source


def test_the_students_archive_holds_no_solution_and_nothing_of_the_grading(tmp_path):
    path = tmp_path / "archive.tar.gz"
    release.write_archive(path)
    with tarfile.open(path) as tar:
        files = {m.name.split("/", 1)[1]: tar.extractfile(m).read() for m in tar.getmembers()}
    assert "README.md" in files and "exercises/one_buffer/one_buffer.ipynb" in files
    assert not {name.split("/")[0] for name in files} & {"solutions", "grading", "tests"}
    texts = {name: data.decode("utf-8", "replace") for name, data in files.items()}
    for exercise in NAMES:
        given = cells_of(released(exercise))
        for grade_id, text in cells_of(master(exercise)).items():
            lines = set(map(str.strip, without_marks(text).split("\n")))
            secret = [ln for ln in lines - set(map(str.strip, given[grade_id].split("\n")))]
            # Single lines such as `__syncthreads();` are everywhere: what counts is telling ones.
            for line in (line for line in secret if len(line) > 45):
                written = line.replace("\\", "\\\\").replace('"', '\\"')
                found = [name for name, t in texts.items() if line in t or written in t]
                assert not found, f"{line!r} is in {found}"


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("%%cuda k\na\n  // BEGIN SOLUTION\nb\n  // END SOLUTION\nc", "code",
         "%%cuda k\na\n  // Your code here.\nc"),
        ("# BEGIN SOLUTION\nL = 5\nC = 6\n# END SOLUTION", "code", "L = None\nC = None"),
        ("An essay.", "markdown", exercise_notebooks.TEXT_STUB),
    ],
)  # fmt: skip
def test_what_a_release_leaves_of_a_solution(source, kind, expected):
    assert exercise_notebooks.cleared(source, kind) == expected


@pytest.mark.parametrize("source", ["x = 1", "# BEGIN SOLUTION\nx = 1", "# END SOLUTION\nx = 1"])
def test_a_master_whose_marks_do_not_pair_up_is_refused(source):
    with pytest.raises(exercise_notebooks.MasterError):
        exercise_notebooks.cleared(source, "code")


# --- what it scores -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_stub_runs_without_an_error_and_scores_nothing(name):
    notebook = executed(ROOT / "exercises" / name / f"{name}.ipynb")
    assert errors(notebook) == []
    assert not any(points(notebook).values())


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_has_full_points_by_nbgraders_validator(name, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "virtual")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    solved = released(name)
    texts = cells_of(master(name))
    for cell in solved.cells:
        if utils.is_solution(cell):
            cell.source = texts[cell.metadata.nbgrader.grade_id]
    path = tmp_path / f"{name}.ipynb"
    nbformat.write(solved, path)
    assert Validator().validate(str(path)) == {}
    parts = [cell for cell in solved.cells if utils.is_grade(cell) and cell.cell_type == "code"]
    parts[0].source += " "
    nbformat.write(solved, path)
    assert len(Validator().validate(str(path))["changed"]) == 1


def scored(name: str, answer: Answer | None) -> dict[str, Score]:
    """Scores of the master's answers with the bank's kernel and literals in their place."""
    exercise = checks.exercise(name)
    cells = dict(cells_of(master(name)))
    if answer is not None:
        cells[next(iter(exercise.kernels.values()))] = answer.cell
    answers = from_cells(exercise, cells)
    for entry in filter(None, answer.keys.get("literals", "").split(";") if answer else ()):
        answers |= from_cells(exercise, dict.fromkeys(exercise.literals.values(), entry.strip()))
    return exercise.scores(answers, checks_of(name, SECRET))


@pytest.mark.parametrize("name", NAMES)
def test_the_masters_answers_have_full_points_hidden_checks_included(name):
    for part, score in scored(name, None).items():
        assert score.points == score.possible, (part, score.messages)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        pytest.param(
            name,
            answer,
            id=f"{name}-{answer.path.stem}",
            marks=[pytest.mark.xfail(reason=answer.keys["open"], strict=True)]
            if "open" in answer.keys
            else [],
        )
        for name, answer in ANSWERS
    ],
)
def test_answers_score_what_they_declare(name, answer):
    scores = scored(name, answer)
    expected = {part: answer.lost.get(part, score.possible) for part, score in scores.items()}
    assert set(answer.lost) <= set(scores)
    told = "\n".join(f"{part}: {score}" for part, score in scores.items())
    assert {part: score.points for part, score in scores.items()} == expected, told
    assert answer.keys.get("says", "") in told


@pytest.mark.parametrize("name", NAMES)
def test_banks_are_large_enough(name):
    answers = bank(name)
    assert sum(answer.right for answer in answers) >= 5
    assert sum(not answer.right for answer in answers) >= 12


SIGNATURE = re.compile(r"\(const unsigned\* (?:__restrict__ )?x, unsigned\* out, int tiles\)")
SIGNATURES = {
    "one_buffer": "(const unsigned* x, unsigned* out, int tiles, int columns)",
    "two_buffers": "(const unsigned* x, unsigned* out, int tiles)",
}


def lesson_kernels() -> list[tuple[str, str]]:
    """(lesson and kernel, cell) of every kernel of a lesson that takes x, out and tiles."""
    found = []
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.source.startswith("%%cuda") and SIGNATURE.search(cell.source):
                found.append((f"{path.stem}:{cell.source.split()[1]}", cell.source))
    return found


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_lessons_kernel_gets_no_more_than_the_point_for_running(name):
    """Adapted in name and signature alone; kernels of matrices have nothing that would fit."""
    exercise = checks.exercise(name)
    kernel, grade_id = next(iter(exercise.kernels.items()))
    pasted = lesson_kernels()
    assert len(pasted) > 5
    for lesson, cell in pasted:
        text = re.sub(rf"\b{lesson.split(':')[1]}\b", kernel, cell)
        text = SIGNATURE.sub(SIGNATURES[name], text)
        scores = exercise.scores(from_cells(exercise, {grade_id: text}))
        assert sum(s.points for s in scores.values()) <= exercise.part("runs").points, lesson
