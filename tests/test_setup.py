"""The set-up: pins without addresses, the same for pip and conda, words for what is missing."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tools import set_up

ROOT = Path(__file__).resolve().parent.parent
PINNED = ("course", "cuda12", "dev", "uv")
PIN = re.compile(r"^([a-z0-9][a-z0-9.-]*)(?:\[[a-z,-]+\])?==(\S+)", re.MULTILINE)


def requirement_text(name: str) -> str:
    return (ROOT / "requirements" / name).read_text()


def pins(name: str) -> dict[str, set[str]]:
    """Package -> its versions: more than one where an older Python needs an older release."""
    found: dict[str, set[str]] = {}
    for package, version in PIN.findall(requirement_text(f"{name}.txt")):
        found.setdefault(package, set()).add(version)
    return found


@pytest.mark.parametrize("name", PINNED)
def test_requirements_are_pinned_and_hashed_and_name_no_address(name):
    text = requirement_text(f"{name}.txt")
    assert not re.search(r"://|index-url|find-links|trusted-host|^-e|@ ", text, re.MULTILINE)
    blocks = re.split(r"\n(?=[a-z0-9])", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    blocks = [block for block in blocks if block.strip()]
    assert len(blocks) == sum(len(versions) for versions in pins(name).values())
    for block in blocks:
        assert PIN.match(block), block[:80]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block[:80]


@pytest.mark.parametrize("name", [*PINNED, "common"])
def test_everything_asked_for_by_name_is_pinned(name):
    asked = re.findall(r"^([a-z][a-z0-9-]*)", requirement_text(f"{name}.in"), re.MULTILINE)
    assert asked
    missing = set(asked) - set(pins("course" if name == "common" else name))
    assert not missing


def test_environments_agree_on_what_they_share():
    course = pins("course")
    for other in ("cuda12", "dev"):
        theirs = pins(other)
        shared = course.keys() & theirs.keys()
        assert shared
        assert {name: theirs[name] for name in shared} == {name: course[name] for name in shared}


def test_conda_users_get_the_same_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, section = environment["dependencies"]
    assert section == {"pip": ["--require-hashes", "-r requirements/course.txt"]}
    assert [entry.split("=")[0] for entry in conda] == ["python", "pip"]
    python = next(entry for entry in conda if entry.startswith("python="))
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert tuple(map(int, python.split("=")[1].split("."))) >= set_up.MINIMUM
    assert oldest == ">=" + ".".join(map(str, set_up.MINIMUM))


def test_course_lib_declares_only_what_the_environment_pins():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(project["dependencies"]) <= pins("course").keys()
    assert set(extras["cuda13"]) <= pins("course").keys()
    assert set(extras["cuda12"]) <= pins("cuda12").keys()


def third_party_imports(folder: str) -> set[str]:
    """Top-level names of the packages that a folder's modules import, lazily or not."""
    names: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names)


def test_everything_that_is_imported_is_asked_for():
    """By name, not as somebody else's dependency: those come and go."""
    asked = set(re.findall(r"^([a-z][a-z0-9-]*)", requirement_text("common.in"), re.MULTILINE))
    packages = {"cuda": "cuda-pathfinder", "IPython": "ipykernel", "jupyter_client": "nbclient"}
    imported = third_party_imports("course_lib") | third_party_imports("tools")
    imported -= {"course_lib", "tools", "cupy", "case_files"}
    assert {packages.get(name, name) for name in imported} <= asked


def test_the_two_cudas_never_share_an_environment():
    for name, foreign in (
        ("course", re.compile(r"-cu12$|cuda12")),
        ("cuda12", re.compile("cuda13")),
    ):
        assert not [package for package in pins(name) if foreign.search(package)]


def test_an_old_python_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(set_up.sys, "version_info", (3, 9, 2))
    with pytest.raises(set_up.Missing, match=r"3\.11 or newer.*PYTHON=python3\.11"):
        set_up.check_platform()


@pytest.mark.parametrize(("platform", "word"), [("darwin", "container"), ("win32", "WSL2")])
def test_other_systems_are_sent_to_the_container(monkeypatch, platform, word):
    monkeypatch.setattr(set_up.sys, "platform", platform)
    with pytest.raises(set_up.Missing, match=word) as problem:
        set_up.check_platform()
    page, heading = re.search(r"(docs/\S+), '(.+)'", str(problem.value)).groups()
    assert f"## {heading}" in (ROOT / page).read_text()


def test_a_python_without_venv_names_the_package_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(set_up, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(set_up, "has_module", lambda name: False)
    with pytest.raises(set_up.Missing, match=r"sudo apt install python3\.\d+-venv"):
        set_up.make_venv()


def test_an_environment_left_without_pip_is_completed_later(monkeypatch, tmp_path):
    """Debian without python3-venv leaves half an environment; with the package, it goes on."""
    monkeypatch.setattr(set_up, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(set_up, "STAMP", str(tmp_path / ".venv" / "stamp"))
    asked: list[list[str]] = []
    really_run = set_up.run

    def run(command: list[str], hint: str = "") -> None:
        asked.append(command[1:3])
        if "install" not in command:
            really_run(command, hint)

    monkeypatch.setattr(set_up, "run", run)
    monkeypatch.setattr(set_up, "has_module", lambda name: name == "venv")
    monkeypatch.setattr(set_up.shutil, "which", lambda name: None)
    with pytest.raises(set_up.Missing, match="sudo apt install"):
        set_up.make_venv()
    monkeypatch.setattr(set_up, "has_module", lambda name: name != "pip")
    set_up.make_venv()
    assert asked == [["-m", "venv"], ["-m", "ensurepip"], ["-m", "pip"]]


def test_a_step_that_fails_becomes_a_sentence():
    with pytest.raises(set_up.Missing, match="failed with the words above. Look here"):
        set_up.run([sys.executable, "-c", "raise SystemExit(3)"], "Look here.")


def test_an_unknown_cuda_is_refused_before_anything_is_made(tmp_path):
    answer = subprocess.run(
        [sys.executable, ROOT / "tools" / "set_up.py"],
        env={**os.environ, "CUDA": "11"},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 1
    assert "CUDA=11 is not known here" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.fixture
def fake_set_up(monkeypatch, tmp_path):
    """set_up() with every slow step replaced by a note; gives the notes."""
    notes: list[str] = []
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    monkeypatch.setattr(set_up, "VENV", str(tmp_path))
    monkeypatch.setattr(set_up, "STAMP", str(tmp_path / "stamp"))
    monkeypatch.setattr(set_up, "make_venv", lambda: None)
    monkeypatch.setattr(set_up, "site_packages", lambda: str(tmp_path))
    monkeypatch.setattr(set_up, "warm", lambda: None)
    monkeypatch.setattr(set_up, "settle_jupyter", lambda: None)
    monkeypatch.setattr(
        set_up, "sync", lambda files: notes.append("+".join(Path(file).stem for file in files))
    )
    return notes


def test_a_second_set_up_does_nothing_and_a_learner_never_loses_dev(fake_set_up):
    set_up.set_up("course", "")
    set_up.set_up("course", "")
    assert fake_set_up == ["course"]
    set_up.set_up("dev", "")
    set_up.set_up("course", "")
    assert fake_set_up == ["course", "course+dev"]


def test_the_choice_of_cuda_12_is_remembered(fake_set_up):
    set_up.set_up("course", "12")
    set_up.set_up("course", "")
    assert fake_set_up == ["cuda12"]
    set_up.set_up("dev", "")
    assert fake_set_up == ["cuda12", "cuda12+dev"]


def test_make_alone_lists_every_command_that_the_readme_names():
    words = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in set(re.findall(r"`make ([a-z]+)", (ROOT / "README.md").read_text())):
        assert command in targets
        assert command == "pin" or f"make {command}" in words


def test_ci_runs_the_readmes_commands():
    script = (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert re.findall(r"^make (\w+)$", script, re.MULTILINE) == ["lint", "test"]


def test_the_container_recipes_are_consistent():
    recipe = (ROOT / "Containerfile").read_text()
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["build"]["dockerfile"] == "../Containerfile"
    assert f"WORKDIR {container['workspaceFolder']}" in recipe
    for source in re.findall(r"^COPY --chown=learner (.+) \S+$", recipe, re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists(), name


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_importing_the_course_is_quick():
    code = "import time; t = time.perf_counter(); import course_lib; print(time.perf_counter() - t)"
    times = [
        float(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT)) for _ in range(3)
    ]
    assert min(times) < 0.3
