"""``stress``: many runs on random inputs, half of them with one consumer warp held up.

A kernel with a missing edge is often right by luck, because its warps keep together. Holding one of
them up takes that luck away. The other half runs undisturbed, since a delay can also hide a fault:
it gives a copy that nobody waits for the time to land.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.problem_runs import VIRTUAL_LABEL, first_error, launch_virtual, shaped_for
from course_lib.progress import progress_bar
from course_lib.stress_plan import consumers_of, delay_of, input_number
from course_lib.stress_report import Failure, Failures, StressReport

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.problems import Problem

__all__ = ["Failure", "Failures", "StressReport", "stress"]

UNDELAYED_LANDINGS = ("late", "random", "early")
DELAYED_LANDINGS = ("early", "late")
"""Early landings show an overwritten stage, late ones a read before the copy is there."""
INTERRUPTED = "It was interrupted; this is what had been run."


def stress(
    kernel: Kernel,
    problem: Problem,
    iterations: int = 1000,
    device: str = "auto",
    seed: int = 0,
    *,
    first: int = 0,
    deadline: float = 20.0,
) -> StressReport:
    """Run a kernel on ``iterations`` fresh random inputs, and count wrong results.

    Every second iteration delays one random consumer warp (a warp that reads shared memory). On a
    real GPU it sleeps for 2 to 8 copy latencies before its reads, and in some iterations also
    before its arrivals and after its waits; the kernel's PTX is rewritten for that. On the virtual
    GPU, which takes the problem's small case, the warp runs only when no other can, once with
    copies that land at once and once with copies that land as late as a wait allows.

    Iteration ``n`` depends on ``seed`` and ``n`` alone: ``iterations=1, first=n`` replays it.
    ``deadline``: seconds without news after which a real GPU's run counts as hung. Ctrl-C ends a
    run, and what had been run is reported.

    Raises ``ValueError`` for a number of iterations below 1, and what ``launch`` raises where the
    kernel does not fit the problem.
    """
    from course_lib.devices import gpu, resolve

    for name, value, least in (
        ("iterations", iterations, 1),
        ("first", first, 0),
        ("seed", seed, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    where, _ = resolve(device, kernel)
    case = problem.small() if where == "virtual" else problem
    run = _Run(kernel, case, int(iterations), where, int(seed), int(first))
    found = gpu()
    if where == "gpu" and found is not None:
        run.label = found.name
    begin = time.perf_counter()
    with run.interruptible():
        if where == "virtual":
            _run_virtual(run)
        else:
            _run_real(run, deadline)
    return run.report(time.perf_counter() - begin)


@dataclass
class _Run:
    """A stress run as far as it has come."""

    kernel: Kernel
    problem: Problem
    planned: int
    device: str
    seed: int
    first: int
    label: str = VIRTUAL_LABEL
    consumers: tuple[int, ...] = ()
    latency_cycles: float | None = None
    latency_words: str = ""
    done: int = 0
    failed: list[int] = field(default_factory=list)
    wrong: tuple[str, int] | None = None  #: output and element of the first failure
    words: str = ""  #: about it
    stopped: str = ""

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.stopped = INTERRUPTED

    def numbers(self) -> range:
        return range(self.first, self.first + self.planned)

    def fail(self, iteration: int, words: str, wrong: tuple[str, int] | None = None) -> None:
        if not self.failed:
            self.words, self.wrong = words, wrong
        if iteration not in self.failed[-1:]:
            self.failed.append(iteration)

    def report(self, seconds: float) -> StressReport:
        def again(iteration: int) -> StressReport:
            return stress(self.kernel, self.problem, 1, self.device, self.seed, first=iteration)

        return StressReport(
            self.kernel.name,
            self.problem,
            self.device,
            self.label,
            self.seed,
            self.first,
            self.planned,
            self.done,
            tuple(self.failed),
            self._first_failure() if self.failed else None,
            self.consumers,
            self.latency_cycles,
            self.latency_words,
            self.stopped,
            seconds,
            again,
        )

    def _first_failure(self) -> Failure:
        iteration = self.failed[0]
        delay = delay_of(self.seed, iteration, self.consumers)
        block, tile = (None, None)
        if self.wrong is not None:
            block, tile = self.problem.place_of(*self.wrong, self.kernel)
        seed = f", seed={self.seed}" if self.seed else ""
        replay = (
            f'stress({self.kernel.name}, {self.problem!r}, iterations=1, device="{self.device}"'
            f"{seed}, first={iteration})"
        )
        return Failure(
            self.seed,
            iteration,
            delay.warp if delay else None,
            delay.factor if delay else None,
            block,
            tile,
            None if tile is None else _stage_of(self.kernel, self.problem, tile),
            self.words.rstrip("."),
            replay,
        )


def _stage_of(kernel: Kernel, problem: Problem, tile: int) -> int | None:
    """The stage of a tile, as the virtual GPU's timeline of the small case has it."""
    from course_lib.problem_runs import DoesNotRun
    from course_lib.ptx.parse import PtxSyntaxError
    from course_lib.tracing import trace_virtual
    from course_lib.virtual_gpu.flow import Unsupported

    try:
        timeline = trace_virtual(kernel, problem.small())
    except (DoesNotRun, PtxSyntaxError, Unsupported):
        return None
    stages = {row.tile: row.stage for row in timeline.rows("load")}
    if tile in stages:
        return stages[tile]
    ring = all(stage == known % timeline.stages for known, stage in stages.items())
    return tile % timeline.stages if ring and stages else None


# --- The virtual GPU ----------------------------------------------------------------------------


def _run_virtual(run: _Run) -> None:
    run.kernel = shaped_for(run.kernel, run.problem)
    run.consumers, run.stopped = _virtual_consumers(run.kernel, run.problem)
    if run.stopped:
        return
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    pool = ThreadPoolExecutor(workers)
    try:
        with progress_bar(run.planned, f"stress {run.kernel.name}") as bar:
            for outcome in pool.map(lambda number: _iterate(run, number), run.numbers()):
                run.done += 1
                bar.update()
                if outcome.words:
                    run.fail(outcome.iteration, outcome.words, outcome.wrong)
                if outcome.ended:  # it would end so each time, and may take seconds
                    run.stopped = "The run was ended by an error."
                    return
    finally:
        pool.shutdown(cancel_futures=True)


def _virtual_consumers(kernel: Kernel, problem: Problem) -> tuple[tuple[int, ...], str]:
    """The consumer warps; or the error that ends even a plain run."""
    from course_lib.ptx import delays

    made = delays.delay(kernel.ptx(), kernel.module, kernel.name)
    rewritten = kernel.rewritten(made.text, kernel.extra_parameters + delays.EXTRA_PARAMETERS)
    census = np.zeros(-(-problem.threads(kernel) // 32), np.uint32)
    result, _ = launch_virtual(rewritten, problem, extra=delays.launch_arguments(census=census))
    return consumers_of(census.tolist()), "" if result.ok else first_error(result)


@dataclass(frozen=True)
class _Outcome:
    """One iteration: what is wrong with it in words, and whether an error ended it."""

    iteration: int
    words: str = ""
    wrong: tuple[str, int] | None = None
    ended: bool = False


def _iterate(run: _Run, iteration: int) -> _Outcome:
    """One iteration on the virtual GPU, by one thread."""
    problem = run.problem
    inputs = problem.inputs(iteration=input_number(run.seed, iteration))
    reference = problem.reference(inputs)
    delay = delay_of(run.seed, iteration, run.consumers)
    if delay is None:
        landings: tuple[str, ...] = (UNDELAYED_LANDINGS[iteration // 2 % 3],)
    else:
        landings = DELAYED_LANDINGS
    for landing in landings:
        result, outputs = launch_virtual(
            run.kernel, problem, inputs, landing=landing, seed=iteration, workers=1,
            order="one_last" if delay else "round_robin", victim=delay.warp if delay else 0,
        )  # fmt: skip
        if not result.ok:
            return _Outcome(iteration, first_error(result), None, True)
        for name, bad in problem.wrong_elements(outputs, reference).items():
            if bad.any():
                words = problem.compare(outputs, reference)[2]
                return _Outcome(iteration, words, (name, int(np.argmax(bad))))
    return _Outcome(iteration)


# --- The real GPU -------------------------------------------------------------------------------


def _run_real(run: _Run, deadline: float) -> None:
    from course_lib.real_gpu.guard import GpuFault, GpuHung, shared_helper

    with progress_bar(run.planned, f"stress {run.kernel.name}") as bar:

        def receive(message: dict[str, Any]) -> None:
            if "consumers" in message:
                run.label, run.consumers = message["device"], tuple(message["consumers"])
                run.latency_cycles = message["latency_cycles"]
                run.latency_words = message["latency_words"]
                return
            run.done += message["done"]
            bar.update(message["done"])
            for iteration, name, count, index in message["wrong"]:
                run.fail(iteration, _element_words(run.problem, name, count, index), (name, index))

        try:
            shared_helper().call(
                "course_lib.real_gpu.stress_tasks:stress_problem",
                kernel=run.kernel.to_spec(),
                problem=run.problem.to_spec(),
                first=run.first,
                iterations=run.planned,
                seed=run.seed,
                deadline=deadline,
                on_partial=receive,
            )
        except (GpuHung, GpuFault) as failure:
            when = f"After iteration {run.first + run.done - 1}" if run.done else "At the start"
            run.stopped = f"{when}: {failure}"


def _element_words(problem: Problem, name: str, count: int, index: int) -> str:
    more = "" if count == 1 else f"; {count:,} elements are wrong"
    return f"{problem.element_words(name, index)} is wrong{more}"
