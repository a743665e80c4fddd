"""``%reset_cell``: put back the text with which an exercise's cell was released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STUBS = "stubs.json"


class NoSuchCell(ValueError):
    """There is no released text for a cell; the message says what to write."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback: the message says it all."""
        return [str(self)]


def released_text(cell: str, folder: Path | None = None) -> str:
    """The text with which the cell was released. Raises ``NoSuchCell``."""
    path = (folder or Path.cwd()) / STUBS
    try:
        stubs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise NoSuchCell(
            f"There is no {STUBS} beside this notebook, so nothing to go back to."
        ) from None
    if cell not in stubs:
        names = ", ".join(f"%reset_cell {name}" for name in stubs)
        raise NoSuchCell(f"Say which cell to put back: {names}")
    return str(stubs[cell])


def reset_cell(shell: Any, line: str) -> None:
    """Replace the cell that is being run by the released text of the cell named ``line``.

    Without a name it is the cell that is being run itself, where the front end says which that is
    (JupyterLab does).
    """
    parent = getattr(shell, "parent_header", None) or {}
    own = parent.get("metadata", {}).get("cellId", "")
    shell.set_next_input(released_text(line.strip() or own), replace=True)


def register(shell: Any) -> None:
    """Make ``%reset_cell`` known to an IPython shell."""

    def magic(line: str) -> None:
        """Put back the released text of this cell: write it alone in the cell, and run it."""
        reset_cell(shell, line)

    shell.register_magic_function(magic, magic_kind="line", magic_name="reset_cell")
