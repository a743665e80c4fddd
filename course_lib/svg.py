"""Pictures that are redrawn while a slider moves: SVG text, in the palette of ``plots``.

Matplotlib takes a good tenth of a second for a figure; this takes a few milliseconds, stays sharp
at any zoom, and its parts can carry labels for those who cannot see them.
"""

from __future__ import annotations

import base64
import html
import itertools

from course_lib.plots import INK, STYLES, Style

_numbers = itertools.count()


class Picture:
    """An SVG under construction; sizes in pixels, ``label`` is what a screen reader says of it."""

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width, self.height, self.label = width, height, label
        self._parts: list[str] = []
        # Ids are looked up in the whole page, so every picture needs hatchings of its own.
        self._prefix = f"course{next(_numbers)}"
        self._hatched: dict[str, Style] = {}

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        style: Style | None = None,
        *,
        fill: str = "none",
        edge: str = "none",
        line: float = 1.0,
        dash: str = "",
        title: str = "",
        data: dict[str, object] | None = None,
    ) -> None:
        """A box in a style of ``plots``, or in plain colours; ``data`` becomes data attributes."""
        if style is not None:
            fill, edge = self._fill(style), style.edge
        facts = "".join(
            f' data-{name}="{html.escape(str(value), quote=True)}"'
            for name, value in (data or {}).items()
        )
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        inside = f"<title>{html.escape(title)}</title>" if title else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" '
            f'fill="{fill}" stroke="{edge}" stroke-width="{line:g}"{dashed}{facts}>{inside}</rect>'
        )

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        color: str = INK,
        width: float = 1.0,
        dash: str = "",
    ) -> None:
        """A straight line."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
            f'stroke-width="{width:g}"{dashed}/>'
        )

    def path(self, points: list[tuple[float, float]], color: str, width: float = 2.0) -> None:
        """A broken line through points."""
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(
            f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="{width:g}"/>'
        )

    def dot(
        self, x: float, y: float, radius: float, fill: str, edge: str = INK, title: str = ""
    ) -> None:
        """A filled circle."""
        inside = f"<title>{html.escape(title)}</title>" if title else ""
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{edge}" '
            f'stroke-width="1.6">{inside}</circle>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 13,
        color: str = INK,
        anchor: str = "start",
        bold: bool = False,
        halo: str = "",
    ) -> None:
        """Words with their baseline at y; ``halo`` is a colour behind letters on hatching."""
        weight = ' font-weight="bold"' if bold else ""
        behind = f' stroke="{halo}" stroke-width="4" paint-order="stroke"' if halo else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{color}" '
            f'text-anchor="{anchor}"{weight}{behind}>{html.escape(words)}</text>'
        )

    def _fill(self, style: Style) -> str:
        if not style.hatch:
            return style.face
        name = f"{self._prefix}-{style.hatch[0].encode().hex()}-{style.face.strip('#')}"
        self._hatched[name] = style
        return f"url(#{name})"

    def __str__(self) -> str:
        patterns = "".join(_pattern(name, style) for name, style in self._hatched.items())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'aria-label="{html.escape(self.label, quote=True)}" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" '
            f'style="max-width:100%;height:auto;background:white" '
            f'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">'
            f"<title>{html.escape(self.label)}</title><defs>{patterns}</defs>"
            f"{''.join(self._parts)}</svg>"
        )

    def as_image(self) -> str:
        """An ``<img>`` of it that needs nothing else: for exported pages and viewers."""
        data = base64.b64encode(str(self).encode()).decode()
        words = html.escape(self.label, quote=True)
        return (
            f'<img src="data:image/svg+xml;base64,{data}" alt="{words}" width="{self.width:g}" '
            f'style="max-width:100%;height:auto">'
        )


def _pattern(name: str, style: Style) -> str:
    """A style's hatching as an SVG pattern."""
    back = f'<rect width="8" height="8" fill="{style.face}"/>'
    marks = {
        "/": f'<path d="M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4" stroke="{style.edge}"/>',
        "\\": f'<path d="M-2,6 l4,4 M0,0 l8,8 M6,-2 l4,4" stroke="{style.edge}"/>',
        ".": f'<circle cx="2" cy="2" r="1" fill="{style.edge}"/>'
        f'<circle cx="6" cy="6" r="1" fill="{style.edge}"/>',
        "x": f'<path d="M0,0 l8,8 M0,8 l8,-8" stroke="{style.edge}"/>',
    }[style.hatch[0]]
    return (
        f'<pattern id="{name}" width="8" height="8" patternUnits="userSpaceOnUse">{back}{marks}'
        "</pattern>"
    )


def legend(picture: Picture, x: float, y: float, styles: dict[str, Style] | None = None) -> float:
    """Swatches with their words in a row from (x, y); gives the x behind the last."""
    for style in (styles or dict(STYLES)).values():
        picture.rect(x, y - 11, 22, 13, style)
        picture.text(x + 28, y, style.words, size=12)
        x += 28 + 7.2 * len(style.words) + 22
    return x
