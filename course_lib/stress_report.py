"""What a stress run found, in numbers and in words."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from course_lib.stress_plan import Delay, delay_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Failures(NamedTuple):
    """Iterations with a wrong result: in all, and in each half."""

    in_all: int
    delayed: int
    undelayed: int


@dataclass(frozen=True)
class Failure:
    """One iteration that went wrong.

    ``warp`` is the one that was delayed, None in an undelayed iteration. ``block`` and ``tile`` are
    those of the first wrong element where the problem can tell, ``stage`` the one that the tile has
    in shared memory. ``replay`` is the call that runs this iteration again.
    """

    seed: int
    iteration: int
    warp: int | None
    factor: float | None
    block: int | None
    tile: int | None
    stage: int | None
    words: str
    replay: str

    def __str__(self) -> str:
        how = "no warp was delayed" if self.warp is None else f"warp {self.warp} was delayed"
        where = "" if self.stage is None else f" (stage {self.stage})"
        if self.tile is None and self.block is not None:
            where = f" (block {self.block})"
        return f"iteration {self.iteration}, {how}: {self.words}{where}"


@dataclass(frozen=True)
class StressReport:
    """How often a kernel failed over many iterations, with and without a delayed warp.

    ``iterations`` is how many were run of the ``planned`` ones; ``stopped`` says why where these
    differ, or where a run ended in an error. ``failed`` are the numbers of the failing iterations.
    ``latency_cycles`` is the copy latency that delays are multiples of (None on the virtual GPU,
    where the delayed warp runs only when no other can).
    """

    kernel_name: str
    problem: Any
    device: str
    device_label: str
    seed: int
    first: int
    planned: int
    iterations: int
    failed: tuple[int, ...]
    first_failure: Failure | None
    consumers: tuple[int, ...]
    latency_cycles: float | None
    latency_words: str
    stopped: str
    seconds: float
    again: Callable[[int], StressReport] | None = field(default=None, repr=False, compare=False)

    @property
    def delayed_iterations(self) -> int:
        """How many of the iterations had a delayed warp."""
        return sum(self.delay(number) is not None for number in self._numbers())

    @property
    def failures(self) -> Failures:
        """How many iterations failed: in all, delayed, undelayed."""
        delayed = sum(self.delay(number) is not None for number in self.failed)
        return Failures(len(self.failed), delayed, len(self.failed) - delayed)

    @property
    def ok(self) -> bool:
        """Everything that was planned was run, and nothing failed. No proof: see ``words``."""
        return not self.failed and not self.stopped and self.iterations > 0

    def __bool__(self) -> bool:
        return self.ok

    def delay(self, iteration: int) -> Delay | None:
        """What is delayed in an iteration."""
        return delay_of(self.seed, iteration, self.consumers)

    def _numbers(self) -> range:
        return range(self.first, self.first + self.iterations)

    def replay(self) -> StressReport:
        """Run the first failing iteration again: the same input, the same delay.

        On the virtual GPU it fails again. On a real one a race need not show each time.
        """
        if self.first_failure is None or self.again is None:
            raise ValueError("no iteration failed, so there is none to replay")
        return self.again(self.first_failure.iteration)

    @property
    def words(self) -> str:
        """What the two halves tell together."""
        parts = [self._counts(), self._pattern()]
        if self.first_failure is not None:
            parts.append(f"First: {self.first_failure}.")
            parts.append(f"Replay: {self.first_failure.replay}")
        if self.stopped:
            parts.insert(1, self.stopped)
        return " ".join(part for part in parts if part)

    def _counts(self) -> str:
        count = self.iterations
        of = "" if count == self.planned else f" of {self.planned:,} planned"
        failures, delayed = self.failures, self.delayed_iterations
        return (
            f"{failures.in_all:,} of {count:,}{of} iterations failed: {failures.delayed:,} of "
            f"{delayed:,} with a delayed warp, {failures.undelayed:,} of {count - delayed:,} "
            "without."
        )

    def _pattern(self) -> str:
        failures, delayed = self.failures, self.delayed_iterations
        undelayed = self.iterations - delayed
        if not self.iterations:
            return ""
        if not failures.in_all:
            return (
                "That is no proof: a race may need another timing than these. find_hazards follows "
                "the orderings themselves."
            )
        if failures.in_all == self.iterations:
            return "It fails every time, so this is no matter of luck."
        if failures.delayed and not failures.undelayed and undelayed:
            return (
                "It fails only where a warp lags, so luck hides the fault otherwise: something "
                "overwrites a stage that the lagging warp still reads (the reuse edge), or reads "
                "what it has not brought yet."
            )
        if failures.undelayed and not failures.delayed and delayed:
            return (
                "It fails only where nothing is delayed: a delay gives the copies time to land. "
                "Something reads a stage before its copy is complete (the ready edge): look at the "
                "waits and at what they count."
            )
        return "It fails in both halves: an ordering edge is missing. find_hazards names it."

    def __str__(self) -> str:
        mark = "Right so far" if self.ok else "Wrong" if self.failed else "Not finished"
        return f"{mark} ({self.device_label}, {self.seconds:.2f} s). {self.words}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        color, mark = ("#12703a", "✓ no failure") if self.ok else ("#a32018", "✗ fails")
        if not self.ok and not self.failed:
            color, mark = "#8a5a00", "not finished"
        failures, delayed = self.failures, self.delayed_iterations
        rows = (
            ("a warp delayed", failures.delayed, delayed),
            ("nothing delayed", failures.undelayed, self.iterations - delayed),
        )
        cells = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td>{wrong:,}</td><td>{count:,}</td></tr>"
            for name, wrong, count in rows
        )
        about = f"{self.kernel_name} · {self.device_label} · {self.seconds:.2f} s"
        return (
            f"<div><b style='color:{color}'>{mark}</b> <span style='color:#5f5f5f'>"
            f"{html.escape(about)}</span><table><tr><th></th><th>failed</th><th>of</th></tr>{cells}"
            f"</table><span style='white-space:pre-wrap'>{html.escape(self.words)}</span></div>"
        )

    def plot(self) -> Figure:
        """Failures so far, over the iterations, of both halves."""
        from course_lib import plots

        return plots.draw_stress(self)
