"""``explore_stages``: sliders over the model of a pipeline, for one's own figures or a kernel's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from course_lib.explore import stage_picture
from course_lib.explore.explorer import Explorer
from course_lib.explore.situation import PRESETS, Situation
from course_lib.svg import Picture

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.problems import Problem

_SLIDERS: dict[str, tuple[str, str, int, int, int]] = {
    "L": ("L (cycles)", "L: cycles to load a tile", 0, 6000, 1),
    "C": ("C (cycles)", "C: cycles to compute on a tile", 0, 6000, 1),
    "S": ("stages S", "S: stages of the ring", 1, 8, 1),
    "tiles": ("tiles / block", "tiles per block", 1, 256, 1),
    "tile_bytes": ("bytes / tile", "bytes per tile", 1024, 65536, 1024),
    "registers": ("regs / thread", "registers per thread", 16, 255, 1),
    "threads": ("threads / block", "threads per block", 32, 1024, 32),
    "blocks": ("blocks / SM", "blocks that one SM has to get through", 1, 32, 1),
    "bandwidth": (
        "bytes / cycle",
        "memory bandwidth in bytes per cycle of one SM (0: no limit)",
        0,
        64,
        1,
    ),
}
"""Field of ``Situation`` -> short words, words, least, most, step."""


def explore_stages(
    kernel: Kernel | None = None,
    problem: Problem | None = None,
    *,
    device: str = "auto",
    stages: Iterable[int] = range(1, 9),
    **figures: Any,
) -> StageExplorer:
    """Sliders for L, C, S and the like; the picture says what the model makes of them.

    ``explore_stages()`` begins with figures that the lessons measured, ``explore_stages(L=500,
    C=220)`` with your own (fields of ``Situation``). ``explore_stages(kernel, problem)`` takes L
    and C from a trace of the kernel with one stage, reads its resources, and lays the times that
    ``sweep`` measures for ``stages`` over the model.

    Raises:
        ValueError: for a kernel without a problem.
        TypeError: for a figure that ``Situation`` does not have.
    """
    if kernel is None:
        return StageExplorer(replace(next(iter(PRESETS.values())), **figures))
    if problem is None:
        raise ValueError("to measure a kernel takes a problem: explore_stages(kernel, problem)")
    from course_lib.explore.from_kernel import from_kernel

    found = from_kernel(kernel, problem, device, stages)
    return StageExplorer(
        replace(found.situation, **figures), found.measured, found.device_words, kernel.name
    )


class StageExplorer(Explorer):
    """The widget: ``situation`` is what its sliders say, ``measured`` cycles by stages."""

    def __init__(
        self,
        start: Situation,
        measured: dict[int, float] | None = None,
        device_words: str = "",
        kernel_name: str = "",
    ) -> None:
        self.start, self.measured, self.device_words = start, dict(measured or {}), device_words
        self.presets = {f"this kernel: {kernel_name}": start} if kernel_name else {}
        if not kernel_name and start not in PRESETS.values():
            self.presets = {"your own figures": start}
        self.presets |= PRESETS
        self._base = start
        self._setting = False
        super().__init__()

    @property
    def situation(self) -> Situation:
        """What the sliders and the preset's other figures say now."""
        values = {name: slider.value for name, slider in self.sliders.items()}
        return replace(self._base, issue=self.issue.value, **values)

    def controls(self) -> list[Any]:
        import ipywidgets

        self.preset = ipywidgets.Dropdown(
            options=list(self.presets), description="preset",
            tooltip="figures to begin with", layout={"width": "34em"},
        )  # fmt: skip
        self.issue = ipywidgets.Dropdown(
            options=[
                ("once a tile is ready", "after_wait"),
                ("before the wait for a tile", "after_reuse"),
            ],
            value=self.start.issue,
            description="next load goes out",
            tooltip="where in its loop the kernel begins the next load",
            style={"description_width": "initial"},
        )
        self.sliders = {name: self._slider(name) for name in _SLIDERS}
        for slider in [*self.sliders.values(), self.issue]:
            slider.observe(self._changed, "value")
        self.preset.observe(self._preset_chosen, "value")
        grid = ipywidgets.GridBox(
            [self._labelled(name) for name in self.sliders],
            layout={"grid_template_columns": "repeat(3, minmax(0, 1fr))", "max_width": "980px"},
        )
        return [ipywidgets.HBox([self.preset, self.issue]), grid]

    def _labelled(self, name: str) -> Any:
        """A number to type, and the slider of the same value.

        ipywidgets gives a slider no name that a screen reader could say; a field it does.
        """
        import ipywidgets

        short, words, *_ = _SLIDERS[name]
        slider = self.sliders[name]
        field = ipywidgets.BoundedIntText(
            value=slider.value, min=slider.min, max=slider.max, step=slider.step,
            description=short, tooltip=words, style={"description_width": "7.5em"},
            layout={"width": "13em", "flex": "0 0 auto"},
        )  # fmt: skip
        ipywidgets.dlink((slider, "max"), (field, "max"))
        ipywidgets.link((slider, "value"), (field, "value"))
        return ipywidgets.HBox([field, slider])

    def _slider(self, name: str) -> Any:
        import ipywidgets

        _, words, least, most, step = _SLIDERS[name]
        value = round(getattr(self.start, name))
        return ipywidgets.IntSlider(
            value=value, min=min(least, value), max=max(most, value), step=step,
            tooltip=words, readout=False, continuous_update=True,
            layout={"width": "auto", "flex": "1 1 0"},
        )  # fmt: skip

    def _changed(self, _: object) -> None:
        if not self._setting:
            self.redraw()

    def _preset_chosen(self, change: Any) -> None:
        self._base = self.presets[change["new"]]
        self._setting = True  # one picture for all sliders, not one for each
        for name, slider in self.sliders.items():
            value = round(getattr(self._base, name))
            slider.min, slider.max = min(slider.min, value), max(slider.max, value)
            slider.value = value
        self.issue.value = self._base.issue
        self._setting = False
        self.redraw()

    def picture(self) -> Picture:
        measured = self.measured if self._base is self.start else {}
        return stage_picture.draw(self.situation, measured, self.device_words)
