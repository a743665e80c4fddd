"""``compare``: which kernel takes less time; *inconclusive* rather than wrong.

On a real GPU all candidates run in one process, interleaved in random order, with the L2 cache
flushed before each launch, so that a warming card slows all alike. What is compared are medians
over rounds; the interval of a ratio comes from resampling whole rounds (bootstrap), which keeps
what the candidates of one round have in common. On the virtual GPU times are virtual cycles of one
SM: the same in every round, so they have no interval.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.problem_runs import VIRTUAL_LABEL, launch_timed
from course_lib.progress import progress

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from course_lib.problems import Problem

CONFIDENCE = 0.95
RESAMPLES = 4000
#: Differences below this share are not told apart on a real GPU: CUDA events step by 0.5 µs or so.
RESOLUTION = 0.005


@dataclass(frozen=True)
class Ratio:
    """A time over another one, with the bounds of its confidence interval."""

    value: float
    low: float
    high: float
    resolution: float = 0.0

    @property
    def conclusive(self) -> bool:
        """Whether the interval excludes 1, and the ratio differs from 1 by what can be measured."""
        outside = self.low > 1 or self.high < 1
        return outside and abs(self.value - 1) > self.resolution

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        words = f"{self.value:.2f}"
        if self.high > self.low:
            words += f" [{self.low:.2f}, {self.high:.2f}]"
        if not self.conclusive:
            words += " inconclusive" if self.high > self.low else " (no difference)"
        return words


@dataclass(frozen=True)
class Comparison:
    """Times of several candidates on one problem; the first label is the baseline.

    ``times`` has one value per round for each label, in ``unit``: ``"us"`` or ``"virtual cycles"``.
    ``doubts`` says of each label that ``verify`` calls wrong, why its times mean nothing.
    """

    times: Mapping[str, np.ndarray]
    unit: str
    device: str
    device_label: str
    problem_words: str = ""
    doubts: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """The candidates, baseline first."""
        return list(self.times)

    @property
    def rounds(self) -> int:
        """How often each candidate ran."""
        return len(self.times[self.labels[0]])

    def median(self, label: str) -> float:
        """The median time of a candidate, in ``unit``."""
        return float(np.median(self._of(label)))

    def interval(self, label: str) -> tuple[float, float]:
        """The confidence interval of a candidate's median, in ``unit``."""
        return median_interval(self._of(label))

    def ratio(self, over: str, under: str) -> Ratio:
        """Time of ``over`` divided by time of ``under``: above 1, ``under`` is faster."""
        return ratio_of(
            self._of(over), self._of(under), RESOLUTION if self.device == "gpu" else 0.0
        )

    def _of(self, label: str) -> np.ndarray:
        if label not in self.times:
            raise KeyError(f"nothing is labelled {label!r}; there are {', '.join(self.labels)}")
        return self.times[label]

    def figure_label(self) -> str:
        """The words that every figure of this comparison carries."""
        how = "measured" if self.device == "gpu" else "virtual cycles"
        return f"{self.device_label}, {how}"

    def to_frame(self) -> pd.DataFrame:
        """One row per candidate: median, ratio to the baseline, interval, conclusive, doubt."""
        import pandas as pd

        rows = []
        for label in self.labels:
            ratio = self.ratio(label, self.labels[0])
            rows.append(
                {
                    "candidate": label,
                    f"median ({self.unit})": self.median(label),
                    "ratio": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "conclusive": ratio.conclusive,
                    "doubt": self.doubts.get(label, ""),
                }
            )
        return pd.DataFrame(rows).set_index("candidate")

    def plot(self, title: str | None = None) -> Figure:
        """Bars of the times relative to the first candidate, with their intervals."""
        from course_lib import plots

        base = self.labels[0]
        ratios = [self.ratio(label, base) for label in self.labels]
        words = [f"{self._number(base)}", *map(str, ratios[1:])]
        words = [
            text + (" (wrong by verify)" if label in self.doubts else "")
            for label, text in zip(self.labels, words, strict=True)
        ]
        return plots.draw_ratios(
            self.labels,
            [r.value for r in ratios],
            [r.low for r in ratios],
            [r.high for r in ratios],
            words=words,
            xlabel=f"time relative to “{base}” (shorter is faster)",
            device_words=self.figure_label(),
            title=title,
        )

    def _number(self, label: str) -> str:
        digits = 1 if self.device == "gpu" else 0
        return f"{self.median(label):,.{digits}f} {self.unit}"

    def _lines(self) -> list[tuple[str, str, str]]:
        base = self.labels[0]
        lines = []
        for label in self.labels:
            told = "baseline" if label == base else str(self.ratio(label, base))
            if label in self.doubts:
                told += f"  {self.doubts[label]}"
            lines.append((label, f"{self._number(label)}", told))
        return lines

    def _how(self) -> str:
        if self.device == "gpu":
            return (
                f"{self.figure_label()}: medians of {self.rounds} interleaved rounds, L2 flushed; "
                f"ratios to the first with {CONFIDENCE:.0%} intervals"
            )
        return f"{self.figure_label()} of one SM with its resident blocks; ratios to the first"

    def __str__(self) -> str:
        lines = self._lines()
        widths = [max(len(line[i]) for line in lines) for i in range(2)]
        body = "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c}" for a, b, c in lines)
        return f"{body}\n({self._how()})"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        style = "text-align:left"
        rows = "".join(
            f"<tr><th style='{style}'>{html.escape(a)}</th><td>{html.escape(b)}</td>"
            f"<td style='{style}'>{html.escape(c)}</td></tr>"
            for a, b, c in self._lines()
        )
        return (
            f"<table><thead><tr><th style='{style}'>candidate</th><th>median</th>"
            f"<th style='{style}'>time relative to the first</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
            f"<div style='color:#5f5f5f'>{html.escape(self._how())}</div>"
        )


def ratio_of(over: np.ndarray, under: np.ndarray, resolution: float = 0.0) -> Ratio:
    """Ratio of medians with a bootstrap interval over rounds (the i-th values are one round)."""
    over, under = np.asarray(over, float), np.asarray(under, float)
    value = float(np.median(over) / np.median(under))
    if len(over) < 2 or over is under or np.array_equal(over, under):
        return Ratio(value, value, value, resolution)
    rounds = min(len(over), len(under))
    chosen = np.random.default_rng(0).integers(0, rounds, (RESAMPLES, rounds))
    ratios = np.median(over[chosen], axis=1) / np.median(under[chosen], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Ratio(value, float(low), float(high), resolution)


def median_interval(times: np.ndarray) -> tuple[float, float]:
    """Bounds of the median by bootstrap over rounds; the value itself where there is one round."""
    times = np.asarray(times, float)
    if len(times) < 2:
        return float(times[0]), float(times[0])
    chosen = np.random.default_rng(0).integers(0, len(times), (RESAMPLES, len(times)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(times[chosen], axis=1), [tail, 1 - tail])
    return float(low), float(high)


def compare(
    kernels: Mapping[str, Any] | Sequence[Any] | Any,
    problem: Problem,
    rounds: int = 20,
    device: str = "auto",
    *,
    deadline: float = 120.0,
) -> Comparison:
    """Time kernels (or, on a real GPU, callables that take the inputs by name) on one problem.

    ``kernels`` are labelled, or a list, or one: then their names are the labels. A kernel that
    ``verify`` finds wrong on the problem's small case is timed all the same, and its row says so.
    Kernels run in the helper process with a deadline; where one candidate is a Python callable,
    all run in this process, unguarded.

    Raises:
        TypeError: for what is neither a kernel nor callable.
        ValueError: for no kernels, or a callable on the virtual GPU.
        DoesNotRun: when a kernel ends in an error on the virtual GPU.
    """
    from course_lib.devices import resolve

    kernels = _labelled(kernels)
    if not kernels:
        raise ValueError("compare needs at least one kernel: compare({'one buffer': kernel}, …)")
    if rounds < 2:
        raise ValueError("an interval needs at least 2 rounds")
    compiled = [k for k in kernels.values() if not _is_callable(k)]
    where, _ = resolve(device, compiled[0] if compiled else None)
    if where == "virtual":
        result = _compare_virtual(kernels, problem)
    elif len(compiled) == len(kernels):
        result = _compare_guarded(kernels, problem, rounds, deadline)
    else:
        result = _compare_here(kernels, problem, rounds)
    return replace(result, doubts=_doubts(kernels, problem))


def _doubts(kernels: Mapping[str, Any], problem: Problem) -> dict[str, str]:
    from course_lib.verification import doubt

    found = {
        label: doubt(kernel, problem)
        for label, kernel in kernels.items()
        if not _is_callable(kernel)
    }
    return {label: words for label, words in found.items() if words}


def _labelled(kernels: Any) -> dict[str, Any]:
    """The candidates by label: a list or a single one is labelled by names, made unique."""
    if isinstance(kernels, Mapping):
        labelled = dict(kernels)
    else:
        several = kernels if isinstance(kernels, list | tuple) else [kernels]
        labelled = {}
        for kernel in several:
            name = getattr(kernel, "name", None) or getattr(kernel, "__name__", "kernel")
            same = sum(label.split(" (")[0] == name for label in labelled)
            labelled[f"{name} ({same + 1})" if same else name] = kernel
    for kernel in labelled.values():
        if not hasattr(kernel, "ptx") and not callable(kernel):
            raise TypeError(
                "compare takes kernels by label, compare({'one buffer': kernel, …}, problem), or a "
                f"list of kernels; {type(kernel).__name__} is no kernel."
            )
    return labelled


def _is_callable(candidate: Any) -> bool:
    return callable(candidate) and not hasattr(candidate, "ptx")


def _compare_virtual(kernels: Mapping[str, Any], problem: Problem) -> Comparison:
    for label, kernel in kernels.items():
        if _is_callable(kernel):
            raise ValueError(
                f"{label!r} is a Python callable: only kernels have virtual cycles. Leave it out "
                "here, or compare on a real GPU."
            )
    inputs = problem.inputs()
    times = {}
    for label in progress(kernels, "virtual clock"):
        times[label] = np.array([launch_timed(kernels[label], problem, inputs).cycles], float)
    return Comparison(times, "virtual cycles", "virtual", VIRTUAL_LABEL, repr(problem))


def _compare_guarded(
    kernels: Mapping[str, Any], problem: Problem, rounds: int, deadline: float
) -> Comparison:
    from course_lib.real_gpu.guard import shared_helper

    answer = shared_helper().call(
        "time_kernels",
        kernels={label: kernel.to_spec() for label, kernel in kernels.items()},
        problem=problem.to_spec(),
        rounds=rounds,
        deadline=deadline,
        lock=True,
    )
    times = {label: np.array(answer["microseconds"][label]) for label in kernels}
    return Comparison(times, "us", "gpu", answer["device"], repr(problem))


def _compare_here(kernels: Mapping[str, Any], problem: Problem, rounds: int) -> Comparison:
    import cupy

    from course_lib.real_gpu import device
    from course_lib.real_gpu.lock import gpu_lock

    inputs, outputs = problem.inputs(cupy), problem.outputs(cupy)
    initial = {name: array.copy() for name, array in outputs.items()}

    def reset() -> None:
        for name, array in outputs.items():
            array[...] = initial[name]

    def launcher(candidate: Any) -> Callable[[], None]:
        if _is_callable(candidate):
            return lambda: candidate(**inputs)
        loaded = device.load_kernel(candidate, problem)
        arguments = problem.arguments(candidate, inputs, outputs)
        return lambda: loaded.launch(problem.grid(candidate), arguments)

    launches = [launcher(candidate) for candidate in kernels.values()]
    properties = device.properties()
    with gpu_lock(properties["uuid"]):
        microseconds = device.time_interleaved(launches, rounds, prepare=reset)
    times = {label: microseconds[:, i] for i, label in enumerate(kernels)}
    return Comparison(times, "us", "gpu", properties["name"], repr(problem))
