"""Make the course's environment in .venv from pinned, hashed requirements.

    python3 tools/set_up.py            what a learner needs
    python3 tools/set_up.py dev        and what tests and linters need
    python3 tools/set_up.py --pin      choose versions anew: requirements/*.in -> *.txt

Runs under any Python 3 with the standard library only, so that it can say what is missing. A second
run finds its stamp and returns at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time

MINIMUM = (3, 11)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
REQUIREMENTS = os.path.join(ROOT, "requirements")
STAMP = os.path.join(VENV, "course-stamp")
NOTIFICATIONS = "@jupyterlab/apputils-extension:notification"
LEVELS = ("course", "dev")
PIN = ("pip", "compile", "--quiet", "--universal", "--python-version", "3.11")
PIN_FORM = ("--generate-hashes", "--no-emit-index-url", "--no-emit-find-links")


class Missing(Exception):
    """Something that this machine lacks, in words that say what to do."""


def main(arguments: list[str]) -> int:
    """Set up what `arguments` name; 1 where something is missing."""
    try:
        if "--pin" in arguments:
            return pin()
        level = arguments[0] if arguments else "course"
        if level not in LEVELS:
            raise Missing(f"{level!r} is no part of the course's set-up; there are: {LEVELS}")
        set_up(level, os.environ.get("CUDA", "").split(".")[0])
    except Missing as problem:
        print(f"set-up stopped: {problem}", file=sys.stderr)
        return 1
    return 0


def set_up(level: str, cuda: str) -> None:
    """Bring .venv to `level` for CUDA `cuda` ("12", "13"; "" keeps what there is), unless it is."""
    check_platform()
    done = read_stamp()
    cuda = cuda or done.get("cuda", "13")
    if done.get("level") == "dev":
        level = "dev"  # what is there already stays
    files = requirement_files(level, cuda)
    wanted = {"level": level, "cuda": cuda, "content": digest(files), "root": ROOT}
    if done == wanted and os.path.exists(python_of_venv()):
        return
    start = time.time()
    print(f"setting up {VENV} ({level}, CUDA {cuda}); this happens once …", flush=True)
    make_venv()
    sync(files)
    with open(os.path.join(site_packages(), "course.pth"), "w") as file:
        file.write(ROOT + "\n")  # so that notebooks in any folder can import course_lib
    settle_jupyter()
    warm()
    write_stamp(wanted)
    print(f"set-up took {time.time() - start:.0f} s; the environment is in {VENV}", flush=True)


def check_platform() -> None:
    """Raise Missing where the course cannot run."""
    if sys.version_info < MINIMUM:
        raise Missing(
            f"this is Python {platform.python_version()} and the course needs 3.11 or newer. "
            "Install one (Debian, Ubuntu: sudo apt install python3.11 python3.11-venv), then name "
            "it: make lab PYTHON=python3.11"
        )
    if sys.platform == "darwin":
        raise Missing(
            "CUDA's compiler does not exist for macOS. Use the container instead, which needs no "
            "GPU: docs/getting_started.md, 'Windows and macOS'"
        )
    if sys.platform != "linux":
        raise Missing(
            "the course runs on Linux. On Windows use WSL2 or the container: "
            "docs/getting_started.md, 'Windows and macOS'"
        )
    if platform.machine() not in ("x86_64", "aarch64"):
        raise Missing(f"CuPy has no build for this processor ({platform.machine()})")


def requirement_files(level: str, cuda: str) -> list[str]:
    """The .txt files that make up `level`."""
    names = {"13": "course.txt", "12": "cuda12.txt"}
    if cuda not in names:
        raise Missing(f"CUDA={cuda} is not known here; CUDA=13 (or nothing) or CUDA=12")
    files = [names[cuda]] + (["dev.txt"] if level == "dev" else [])
    return [os.path.join(REQUIREMENTS, name) for name in files]


def digest(files: list[str]) -> str:
    """A hash of the files' content, and of the pinned uv's."""
    content = hashlib.sha256()
    for path in [*files, os.path.join(REQUIREMENTS, "uv.txt")]:
        with open(path, "rb") as file:
            content.update(file.read())
    return content.hexdigest()


def read_stamp() -> dict[str, str]:
    """What the last complete set-up wrote; empty where there was none."""
    try:
        with open(STAMP) as file:
            return dict(line.rstrip("\n").split("=", 1) for line in file)
    except (OSError, ValueError):
        return {}


def write_stamp(values: dict[str, str]) -> None:
    """Say that the set-up is complete."""
    with open(STAMP, "w") as file:
        file.writelines(f"{name}={value}\n" for name, value in values.items())


def python_of_venv() -> str:
    """The environment's interpreter."""
    return os.path.join(VENV, "bin", "python")


def site_packages() -> str:
    """The environment's folder of packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.check_output([python_of_venv(), "-c", code], text=True).strip()


def make_venv() -> None:
    """Make .venv with this Python, and uv in it."""
    with_pip = has_module("ensurepip")
    if os.path.exists(STAMP):
        os.unlink(STAMP)
    if not (os.path.exists(python_of_venv()) and works([python_of_venv(), "-c", "pass"])):
        if os.path.exists(VENV):
            shutil.rmtree(VENV)
        if not has_module("venv"):
            raise Missing(venv_is_missing())
        run([sys.executable, "-m", "venv", *([] if with_pip else ["--without-pip"]), VENV])
    if not works([uv(), "--version"]):
        install_uv()


def install_uv() -> None:
    """Install the pinned uv with whatever pip there is."""
    if has_module("ensurepip") and not works([python_of_venv(), "-m", "pip", "--version"]):
        run([python_of_venv(), "-m", "ensurepip", "--default-pip"])
    pinned = ["install", "--quiet", "--require-hashes", "-r", os.path.join(REQUIREMENTS, "uv.txt")]
    if works([python_of_venv(), "-m", "pip", "--version"]):
        run([python_of_venv(), "-m", "pip", *pinned], hint=network_hint())
    elif has_module("pip"):
        run([sys.executable, "-m", "pip", "--python", python_of_venv(), *pinned], network_hint())
    elif not shutil.which("uv"):
        raise Missing(venv_is_missing())


def uv() -> str:
    """The environment's own uv, or the machine's where the environment could get none."""
    own = os.path.join(VENV, "bin", "uv")
    return own if os.path.exists(own) else shutil.which("uv") or own


def sync(files: list[str]) -> None:
    """Install exactly what the files pin, and uv itself."""
    own = os.path.join(REQUIREMENTS, "uv.txt")
    where = {"VIRTUAL_ENV": VENV, **package_index()}
    run([uv(), "pip", "sync", "--quiet", "--require-hashes", *files, own], network_hint(), where)


def package_index() -> dict[str, str]:
    """The index that pip was told to use here, for uv, which does not read pip's settings."""
    if "UV_DEFAULT_INDEX" in os.environ or "UV_INDEX_URL" in os.environ:
        return {}
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    answer = subprocess.run(command, capture_output=True, text=True)
    chosen = os.environ.get("PIP_INDEX_URL") or answer.stdout.strip()
    return {"UV_DEFAULT_INDEX": chosen} if chosen else {}


def settle_jupyter() -> None:
    """Keep JupyterLab's questions about news out of a newcomer's way."""
    folder = os.path.join(VENV, "share", "jupyter", "lab", "settings")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "overrides.json"), "w") as file:
        json.dump({NOTIFICATIONS: {"fetchNews": "false", "checkForUpdates": False}}, file)


def warm() -> None:
    """Compile the virtual GPU's runtime now, so that no learner waits for it."""
    run([python_of_venv(), "-m", "course_lib.virtual_gpu.warm"])


def has_module(name: str) -> bool:
    """Whether this Python has the module."""
    from importlib.util import find_spec

    return find_spec(name) is not None


def works(command: list[str]) -> bool:
    """Whether the command can be run and succeeds."""
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def run(command: list[str], hint: str = "", environment: dict[str, str] | None = None) -> None:
    """Run a step in the repository; Missing with `hint` where it fails."""
    result = subprocess.run(command, cwd=ROOT, env={**os.environ, **(environment or {})})
    if result.returncode:
        step = " ".join(os.path.basename(word) for word in command[:4])
        raise Missing(f"`{step} …` failed with the words above. {hint}".strip())


def venv_is_missing() -> str:
    """What to do where Debian has split venv off Python."""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    return f"Python's venv module is missing here. Install it: sudo apt install {package}"


def network_hint() -> str:
    """What to look at where packages did not arrive."""
    return (
        "If they speak of connections: this step downloads about 800 MB of packages, so it needs "
        "the network (a proxy goes into HTTPS_PROXY, a mirror into PIP_INDEX_URL). If they speak "
        "of space: .venv needs 2 GB, uv's cache as much (UV_CACHE_DIR moves it). If a hash does "
        "not match, a proxy changes packages on the way. Then run the same command again."
    )


def pin() -> int:
    """Choose versions anew; `uv pip compile` keeps no address in what it writes."""
    for name in ("course", "cuda12", "dev", "uv"):
        run(
            [
                uv(),
                *PIN,
                *PIN_FORM,
                *("--upgrade", "--custom-compile-command", "python3 tools/set_up.py --pin"),
                f"requirements/{name}.in",
                *("-o", f"requirements/{name}.txt"),
            ],
            network_hint(),
        )
    print("pinned: look at `git diff requirements/`, then copy the changes to environment.yml")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
