"""Draw the README's picture: lesson 03's kernels with one and with two buffers, on one time axis.

    python -m tools.picture [file.png]

The device is whatever there is, and the picture names it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat

from tools.bench import LESSON, ROOT

if TYPE_CHECKING:
    from course_lib.kernel import Kernel

FILE = ROOT / "docs" / "images" / "one_and_two_buffers.png"
KERNELS = {"one_buffer_async": "One buffer", "two_buffers": "Two buffers"}
TILES = (8, 12)
BLOCKS = 128  # one block on each multiprocessor, so that nothing else hides its waits


def kernels() -> dict[str, Kernel]:
    """The lesson's kernels by name."""
    from course_lib.cuda_magic import kernel_from_text

    cells = [cell.source for cell in nbformat.read(LESSON, as_version=4).cells]
    named = {text.split()[1]: text for text in cells if text.startswith("%%cuda ")}
    return {name: kernel_from_text(named[name]) for name in KERNELS}


def draw(path: Path) -> str:
    """Trace both kernels and draw them one above the other; says what was drawn."""
    from course_lib import TileReduction, trace

    problem = TileReduction(rows=4096, columns=4096, tile_elements=4096, blocks=BLOCKS)
    traced = {name: trace(kernel, problem) for name, kernel in kernels().items()}
    one, two = (traced[name] for name in KERNELS)
    title = "The same loads and the same arithmetic, before and after pipelining"
    figure = one.plot(model=two, tiles=TILES, title=title)
    for axes, (name, words) in zip(figure.axes, KERNELS.items(), strict=False):
        timeline = traced[name]
        axes.set_title(
            f"{words}: {timeline.mean_iteration():,.0f} {timeline.clock} per tile",
            loc="left",
            fontsize=10.5,
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return f"{one.device_label}: {one.mean_iteration():,.0f} and {two.mean_iteration():,.0f} cycles"


def main(arguments: list[str]) -> int:
    """Draw into the file that is named, or the README's."""
    path = Path(arguments[0]) if arguments else FILE
    print(f"picture: {draw(path)} per tile; look at {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
