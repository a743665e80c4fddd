"""Progress bars for whoever waits longer than a moment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

DELAY_SECONDS = 1.5  #: what takes less shows no bar


def progress(items: Iterable[Any], words: str) -> Iterable[Any]:
    """The items, with a bar."""
    from tqdm.auto import tqdm

    return tqdm(list(items), desc=words, delay=DELAY_SECONDS, leave=False)


def progress_bar(total: int, words: str) -> Any:
    """A bar to be used in a ``with`` and moved on by ``.update(count)``."""
    from tqdm.auto import tqdm

    return tqdm(total=total, desc=words, delay=DELAY_SECONDS, leave=False)
