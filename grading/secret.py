"""The instructor's secret, from which the seeds of hidden checks follow. It is never in git.

Put any text into a file that only you can read, and name it:

    COURSE_GRADING_SECRET=/path/to/secret make grade

Without the variable it is ``~/.config/software-pipelining/secret``.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

VARIABLE = "COURSE_GRADING_SECRET"
DEFAULT = Path("~/.config/software-pipelining/secret")
SHORTEST = 8


class NoSecret(RuntimeError):
    """There is no usable secret; the text says what to do."""


def read_secret() -> str:
    """The secret's text. Raises ``NoSecret``."""
    path = Path(os.environ.get(VARIABLE) or DEFAULT).expanduser()
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise NoSecret(
            f"the hidden checks need your secret in {path} ({type(problem).__name__}): put any "
            f"text of at least {SHORTEST} characters there, or name another file in {VARIABLE}"
        ) from None
    if len(secret) < SHORTEST:
        raise NoSecret(f"the secret in {path} is shorter than {SHORTEST} characters")
    return secret


def seed_for(exercise: str, secret: str | None = None) -> int:
    """The seed of one exercise's hidden checks, 0 … 2³¹-1."""
    text = f"{exercise}\0{read_secret() if secret is None else secret}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
