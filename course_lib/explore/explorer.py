"""What every widget here has: controls, a picture that follows them, and a picture that stays.

A widget needs a kernel. So that an exported page, or a notebook that is opened without one, shows
something all the same, the picture of the first moment is displayed before the widget as a plain
image. While the widget lives, its style hides that image.
"""

from __future__ import annotations

import html
from typing import Any

from course_lib.svg import Picture

STATIC = "course-static-picture"
LIVE = "course-live-widget"
_HIDE = (
    "<style>"
    f".jp-OutputArea-child:has(.{STATIC}):has(+ .jp-OutputArea-child .{LIVE}),"
    f".output_subarea:has(.{STATIC}):has(~ .output_subarea .{LIVE})"
    "{display:none}"
    f".{LIVE} :focus-visible{{outline:2px solid #0072B2}}"
    "</style>"
)


class Explorer:
    """A widget in a notebook; ``picture()`` is what it shows now, as SVG."""

    def __init__(self) -> None:
        import ipywidgets

        self._shown = ipywidgets.HTML()
        self._shown.layout.width = "100%"
        self.widget = ipywidgets.VBox([*self.controls(), self._shown, ipywidgets.HTML(_HIDE)])
        self.widget.add_class(LIVE)
        self.redraw()

    def controls(self) -> list[Any]:
        """The ipywidgets above the picture, made once."""
        raise NotImplementedError

    def picture(self) -> Picture:
        """The picture of the present state."""
        raise NotImplementedError

    def still(self) -> Picture:
        """The picture that stands for it where nothing moves: the present one."""
        return self.picture()

    def redraw(self, *_: object) -> None:
        """Bring the picture up to date with the controls."""
        self._shown.value = str(self.picture())

    def static_html(self) -> str:
        """A still picture, for a page without a kernel."""
        return (
            f'<div class="{STATIC}">{self.still().as_image()}'
            f'<div style="color:#5f5f5f">{html.escape(self.static_words())}</div></div>'
        )

    def static_words(self) -> str:
        """What stands below a picture that cannot move."""
        return "A still picture: run this cell to move the sliders."

    def _repr_html_(self) -> str:
        return self.static_html()

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/html": self.static_html(), "text/plain": self.still().label}, raw=True)
        view = self.widget._repr_mimebundle_()
        # No "VBox(children=…)" beside the still picture where widgets are not understood.
        display({**view, "text/plain": "", "text/html": ""}, raw=True)
