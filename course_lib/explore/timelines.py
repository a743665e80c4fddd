"""``explore_timeline``: the ring as it fills and empties, moment by moment."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.explore import ring_picture
from course_lib.explore.explorer import Explorer
from course_lib.explore.ring_states import EDGE_OF, Slot, clashes_of, slots_at, stays_of
from course_lib.svg import Picture

if TYPE_CHECKING:
    from course_lib.hazards import HazardReport
    from course_lib.timeline import Timeline

FRAMES = 300
_WINDOW_ITERATIONS = 8
_FRAME_MILLISECONDS = 90


def explore_timeline(
    timeline: Timeline | HazardReport,
    hazards: HazardReport | None = None,
    *,
    block: int | None = None,
) -> TimelineExplorer:
    """Scrub or play through a timeline; every stage shows its state and its tile.

    What is drawn is what ``timeline.to_frame()`` holds, of ``block`` (default: the first).
    A stage in which one tile comes in while another is read is called unsafe where ``hazards``,
    which is what ``find_hazards`` says of the same kernel, has that edge; without ``hazards``,
    where ``verify`` called the kernel wrong when it was traced. In a right kernel such overlaps
    are parts of a stage that warps have to themselves, and nothing is said of them.
    A ``HazardReport`` in place of the timeline shows its first hazard: not to scale, as early as
    nothing keeps the second access from being.

    Raises:
        ValueError: for a timeline without loads or reads, or a report without hazards.
    """
    from course_lib.hazards import HazardReport

    if isinstance(timeline, HazardReport):
        from course_lib.explore.from_hazard import timeline_of

        return TimelineExplorer(timeline_of(timeline), {h.edge for h in timeline.hazards}, block)
    edges: set[str] | None = None if timeline.doubted else set()
    if hazards is not None:
        edges = {hazard.edge for hazard in hazards.hazards}
    return TimelineExplorer(timeline, edges, block)


class TimelineExplorer(Explorer):
    """The widget. ``time`` is the moment shown, in the timeline's cycles; ``slots()`` its ring."""

    def __init__(
        self, timeline: Timeline, edges: set[str] | None = None, block: int | None = None
    ) -> None:
        self.timeline = timeline
        self.stays = stays_of(timeline.to_frame(), block)
        if not self.stays:
            raise ValueError("this timeline has no loads and no reads: there is no ring to show")
        self.clashes = clashes_of(self.stays, landings_known=timeline.device != "gpu")
        if edges is not None:  # an overlap without its hazard is in bytes that are not shared
            self.clashes = [c for c in self.clashes if edges & {EDGE_OF[c.kind], "other"}]
        self.stages = 1 + max(stay.stage for stay in self.stays)
        total = max((row.end for row in timeline.intervals), default=1.0)
        self.scene = ring_picture.Scene(
            self.stays, self.clashes, self.stages, total,
            _WINDOW_ITERATIONS * max(timeline.mean_iteration(), total / 200), timeline.clock,
            timeline.figure_label(), edges is not None,
        )  # fmt: skip
        self.times = self._times(total)
        super().__init__()

    def _times(self, total: float) -> list[float]:
        """Frames: evenly through time, and one inside every clash, however short it is."""
        inside = [(clash.start + clash.end) / 2 for clash in self.clashes]
        return sorted({*map(float, np.linspace(0, total, FRAMES)), *inside})

    @property
    def time(self) -> float:
        """The moment that is shown, in cycles."""
        return self.times[self.frame.value]

    def go_to(self, time: float) -> None:
        """Show the frame nearest to a time."""
        after = bisect.bisect_left(self.times, time)
        near = [n for n in (after - 1, after) if 0 <= n < len(self.times)]
        self.frame.value = min(near, key=lambda n: abs(self.times[n] - time))

    def slots(self, time: float | None = None) -> list[Slot]:
        """The ring at a time (default: now)."""
        at = self.time if time is None else time
        return slots_at(self.stays, self.clashes, self.stages, at)

    def controls(self) -> list[Any]:
        import ipywidgets

        last = len(self.times) - 1
        self.play = ipywidgets.Play(
            min=0, max=last, step=1, interval=_FRAME_MILLISECONDS, tooltip="play through time",
            show_repeat=False,
        )  # fmt: skip
        self.frame = ipywidgets.IntSlider(
            min=0, max=last, value=self._first_frame(), readout=False, description="time",
            tooltip="time: arrow keys move it", layout={"width": "460px"},
            style={"description_width": "3em"},
        )  # fmt: skip
        self.play.value = self.frame.value
        self._link = ipywidgets.jslink((self.play, "value"), (self.frame, "value"))
        self.frame.observe(self.redraw, "value")
        row = [self.play, self.frame, self._button("◀ event", "to the event before", self._back)]
        row.append(self._button("event ▶", "to the next event", self._forth))
        if self.clashes:
            alarm = self._button("⚠ not safe", "to the next unsafe moment", self._to_clash)
            alarm.button_style = "warning"
            row.append(alarm)
        return [ipywidgets.HBox(row, layout={"align_items": "center", "flex_flow": "row wrap"})]

    def _button(self, words: str, tooltip: str, action: Any) -> Any:
        import ipywidgets

        button = ipywidgets.Button(description=words, tooltip=tooltip, layout={"width": "auto"})
        button.on_click(lambda _: action())
        return button

    def _first_frame(self) -> int:
        """The first clash, which nobody may miss; else the beginning."""
        if not self.clashes:
            return 0
        first = self.clashes[0]
        return bisect.bisect_left(self.times, (first.start + first.end) / 2)

    def _events(self) -> list[float]:
        rows = self.timeline.intervals
        return sorted({moment for row in rows for moment in (row.start, row.end)})

    def _forth(self) -> None:
        now = self.times[self.frame.value]
        self._step_to(min((t for t in self._events() if self._frame_of(t) > self.frame.value),
                          default=now))  # fmt: skip

    def _back(self) -> None:
        now = self.times[self.frame.value]
        self._step_to(max((t for t in self._events() if self._frame_of(t) < self.frame.value),
                          default=now))  # fmt: skip

    def _frame_of(self, time: float) -> int:
        """The first frame at which what happens at a time has happened."""
        return min(bisect.bisect_left(self.times, time), len(self.times) - 1)

    def _step_to(self, time: float) -> None:
        self.frame.value = self._frame_of(time)

    def _to_clash(self) -> None:
        """To the next clash after now, or round to the first."""
        middles = [(clash.start + clash.end) / 2 for clash in self.clashes]
        later = [middle for middle in middles if middle > self.time]
        self.go_to(min(later, default=min(middles)))

    def picture(self) -> Picture:
        return ring_picture.draw(self.scene, self.slots(), self.time)

    def still(self) -> Picture:
        """The present moment; the middle where nobody has moved yet, for more than a start."""
        moment = self.time if self.frame.value else self.scene.total / 2
        return ring_picture.draw(self.scene, self.slots(moment), moment)

    def static_words(self) -> str:
        return "A still picture of one moment: run this cell to move through time."
