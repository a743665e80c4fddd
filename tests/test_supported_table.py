"""docs/virtual_gpu.md's tables are true: each row's small kernel runs, or is refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from supported_snippets import BODIES, HEADERS, Snippet

from course_lib.kernel import compile_kernel
from course_lib.virtual_gpu.flow import Unsupported
from course_lib.virtual_gpu.launch import launch

PAGE = Path(__file__).resolve().parent.parent / "docs" / "virtual_gpu.md"
SNIPPETS: dict[str, Snippet] = {**BODIES, **HEADERS}
THREADS = 128


def rows() -> dict[str, str]:
    """What the page says of each row: "yes" or "refused"."""
    found = re.findall(r"^\| (.+?) \| (yes|refused) \|", PAGE.read_text(), re.M)
    assert len(dict(found)) == len(found), "a row is there twice"
    return dict(found)


def test_every_row_has_a_kernel_and_every_kernel_a_row() -> None:
    assert set(rows()) == set(SNIPPETS)
    assert len(re.findall(r"^\| (?!---)", PAGE.read_text(), re.M)) == len(rows()) + 2  # two heads


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_row_is_true(name: str) -> None:
    snippet = SNIPPETS[name]
    kernel = compile_kernel(snippet.source, name="k", threads=THREADS)
    out = np.zeros(1024, np.uint32)
    if rows()[name] == "refused":
        with pytest.raises(Unsupported) as caught:
            launch(kernel, (1,), [out])
        assert re.search(r"\w+.* is not on the virtual GPU.*line \d+", str(caught.value))
        return
    result = launch(kernel, (1,), [out])
    assert result.ok, result.errors
    if snippet.expected is not None:
        wanted = snippet.expected(np.arange(THREADS))
        np.testing.assert_array_equal(out[:THREADS], np.asarray(wanted, np.int64) % 2**32)
