"""What all tests share: caches of their own, and no waiting for a compiler in the middle of one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Drawing never needs a screen, here and in the processes that tests start."""
    os.environ.setdefault("MPLBACKEND", "agg")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


def pytest_make_parametrize_id(val: object) -> str | None:
    """Sets in the same words in every process: those that share out the tests must agree."""
    return repr(sorted(map(str, val))) if isinstance(val, set | frozenset) else None
