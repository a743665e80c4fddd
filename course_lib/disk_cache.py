"""A small cache of compiled things on disk: a JSON file per content hash, written atomically."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_FILES = 4000
"""Above this many entries the oldest quarter goes (a kernel takes 10 to 100 KB)."""


def folder() -> Path:
    """`$COURSE_LIB_CACHE`, or `course_lib` in the user's cache folder (XDG)."""
    own = os.environ.get("COURSE_LIB_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "course_lib"


def key_of(*parts: object) -> str:
    """A name made of the content of `parts`; each must have a stable `repr`."""
    digest = hashlib.sha256()
    for part in parts:
        text = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    return digest.hexdigest()


def _path(kind: str, key: str) -> Path:
    return folder() / kind / f"{key}.json"


def load(kind: str, key: str) -> dict[str, Any] | None:
    """The entry, or None where there is none that can be read."""
    try:
        found = json.loads(_path(kind, key).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def store(kind: str, key: str, entry: Mapping[str, Any]) -> bool:
    """Write an entry; a folder that cannot be written to costs the cache and nothing else."""
    path = _path(kind, key)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            temporary = file.name
            json.dump(dict(entry), file)
        os.replace(temporary, path)
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    _prune(path.parent)
    return True


def _prune(directory: Path) -> None:
    with contextlib.suppress(OSError):
        entries = list(os.scandir(directory))
        if len(entries) <= MAX_FILES:
            return
        entries.sort(key=lambda entry: entry.stat().st_mtime)
        for entry in entries[: MAX_FILES // 4]:
            os.unlink(entry.path)
