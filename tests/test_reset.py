"""``%reset_cell``: which text comes back, and what is said where none does."""

from __future__ import annotations

import json

import pytest

from course_lib.reset import NoSuchCell, register, released_text, reset_cell

STUBS = {"answer-kernel": "%%cuda k\n// Your code here.", "answer-numbers": "L = None"}


class Shell:
    """Notes what would be put into the cell that is being run."""

    def __init__(self, cell: str | None = None) -> None:
        self.parent_header = {"metadata": {"cellId": cell}} if cell else {}
        self.magics: dict = {}
        self.texts: list = []

    def set_next_input(self, text, replace):
        self.texts.append((text, replace))

    def register_magic_function(self, function, magic_kind, magic_name):
        self.magics[magic_kind, magic_name] = function


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "stubs.json").write_text(json.dumps(STUBS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("running", "line", "expected"),
    [
        ("answer-kernel", "", "answer-kernel"),
        ("answer-kernel", " answer-numbers ", "answer-numbers"),
        (None, "answer-kernel", "answer-kernel"),
    ],
)
def test_the_released_text_replaces_the_cell(folder, running, line, expected):
    shell = Shell(running)
    reset_cell(shell, line)
    assert shell.texts == [(STUBS[expected], True)]


@pytest.mark.parametrize("running", [None, "setup"])
def test_a_cell_that_was_not_released_is_told_the_names(folder, running):
    shell = Shell(running)
    with pytest.raises(NoSuchCell, match="%reset_cell answer-kernel, %reset_cell answer-numbers"):
        reset_cell(shell, "")
    assert shell.texts == []


@pytest.mark.parametrize("text", [None, "{broken"])
def test_without_the_released_texts_it_says_so(tmp_path, text):
    if text is not None:
        (tmp_path / "stubs.json").write_text(text)
    with pytest.raises(NoSuchCell, match="stubs.json") as caught:
        released_text("answer-kernel", tmp_path)
    assert caught.value._render_traceback_() == [str(caught.value)]


def test_the_magic_is_a_line_magic_of_that_name(folder):
    shell = Shell("answer-numbers")
    register(shell)
    shell.magics["line", "reset_cell"]("")
    assert shell.texts == [("L = None", True)]
