"""The instructor's secret: where it is read, and that the seeds follow from nothing else."""

from __future__ import annotations

import pytest

from course_lib import checks
from grading import secret
from grading.hidden import checks_of


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "secret"
    monkeypatch.setenv(secret.VARIABLE, str(path))
    return path


def test_it_is_the_text_of_the_file_that_the_variable_names(file):
    file.write_text("  correct horse\n")
    assert secret.read_secret() == "correct horse"


def test_without_the_variable_it_is_in_the_users_own_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(secret.VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / ".config" / "software-pipelining" / "secret"
    place.parent.mkdir(parents=True)
    place.write_text("battery staple")
    assert secret.read_secret() == "battery staple"


@pytest.mark.parametrize("content", [None, b"", b"  short  ", b"\xff\xfe not a text"])
def test_one_that_cannot_be_used_is_refused_and_never_shown(file, content):
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(secret.NoSecret) as caught:
        secret.read_secret()
    assert str(file) in str(caught.value)
    assert "short  " not in str(caught.value) and caught.value.__cause__ is None


def test_seeds_differ_by_exercise_and_by_secret_and_never_by_run(file):
    file.write_text("correct horse")
    seeds = {(name, text): secret.seed_for(name, text) for name in checks.NAMES for text in "ab"}
    assert len(set(seeds.values())) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds.values())
    assert secret.seed_for("one_buffer") == secret.seed_for("one_buffer", "correct horse")
    assert secret.seed_for("one_buffer", "a") == SEED_OF_A


SEED_OF_A = 33528926  # printf 'one_buffer\0a' | sha256sum, the first 31 bits


@pytest.mark.parametrize("name", checks.NAMES)
def test_hidden_checks_belong_to_parts_that_have_a_visible_one(name):
    parts = {part.name for part in checks.exercise(name).parts if part.check is not None}
    assert checks_of(name, "a secret of the tests").keys() <= parts
