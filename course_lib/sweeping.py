"""``sweep``: one kernel under many defines and problem sizes, its time beside what it costs.

Every variant is compiled, its resources are read, ``verify`` judges it on each problem, and only
what is right is timed and ranked. On a real GPU the right variants of one problem are timed
together by ``compare``: interleaved rounds in one process, L2 flushed. On the virtual GPU times are
virtual cycles of one SM, and say so. A variant that cannot be compiled or launched keeps its row,
with the reason in words; an interrupted sweep keeps the rows that are done.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.diagnostics import CompileError
from course_lib.problem_runs import VIRTUAL_LABEL, DoesNotRun
from course_lib.progress import progress_bar
from course_lib.sweep_report import Row, Sweep

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.problems import Problem

DEFAULT = {"STAGES": range(1, 9)}
"""What is varied where the call names nothing."""


def sweep(
    kernel: Kernel,
    problems: Problem | Sequence[Problem] | Mapping[str, Problem],
    *,
    device: str = "auto",
    rounds: int = 20,
    deadline: float = 120.0,
    **defines: Any,
) -> Sweep:
    """Measure every combination of ``defines`` on every problem.

    ``sweep(ring, [short, long], STAGES=range(1, 9))``; several defines give all their combinations,
    a single value is set for all. Without any, STAGES goes from 1 to 8. ``problems`` is one, a
    list, or labelled. ``rounds`` and ``deadline`` (seconds) go to ``compare``. Interrupting the
    cell gives what is done, and ``.interrupted`` says so.

    Raises:
        CompileError: for a define that the source never mentions.
        ValueError: for no problems, or a define without values.
    """
    from course_lib.devices import resolve

    labelled = _labelled(problems)
    choices = _choices(kernel, defines or DEFAULT)
    where, _ = resolve(device, kernel)
    run = _Run(kernel, labelled, choices, where, rounds, deadline)
    interrupted = False
    steps = len(choices) * (1 + 3 * len(labelled))
    with progress_bar(steps, f"sweep of {kernel.name}") as bar:
        try:
            for _ in run.steps():
                bar.update(1)
        except KeyboardInterrupt:
            interrupted = True
    varied = [name for name in choices[0] if len({str(c[name]) for c in choices}) > 1]
    return Sweep(
        tuple(run.rows.values()), kernel.name, where, run.device_label, tuple(labelled),
        tuple(varied or choices[0]), interrupted,
    )  # fmt: skip


def _labelled(problems: Any) -> dict[str, Problem]:
    """Problems by label; without labels of the caller's, by what tells them apart."""
    if isinstance(problems, Mapping):
        found = dict(problems)
    else:
        several = list(problems) if isinstance(problems, Iterable) else [problems]
        labels = _labels(several)
        found = dict(zip(labels, several, strict=True))
    if not found:
        raise ValueError("sweep needs at least one problem")
    return found


def _labels(problems: Sequence[Problem]) -> list[str]:
    tiles = [getattr(problem, "tiles", None) for problem in problems]
    if None not in tiles and len(set(tiles)) == len(tiles):
        return [f"{count} tile{'s' * (count != 1)}" for count in tiles]
    own = [problem.parameters() for problem in problems]
    differing = [name for name in own[0] if len({str(p.get(name)) for p in own}) > 1]
    if not differing:
        return [repr(problem) for problem in problems]
    return [", ".join(f"{name}={p.get(name)}" for name in differing) for p in own]


def _choices(kernel: Kernel, defines: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the values of each define."""
    values: dict[str, list[Any]] = {}
    for name, given in defines.items():
        kernel.check_define(name)
        several = isinstance(given, Iterable) and not isinstance(given, str)
        values[name] = list(given) if several else [given]
        if not values[name]:
            raise ValueError(f"{name} has no values: {name}=range(1, 9) has eight")
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


class _Run:
    """One sweep under way: rows are filled in step by step, so that none is lost."""

    def __init__(
        self,
        kernel: Kernel,
        problems: Mapping[str, Problem],
        choices: Sequence[Mapping[str, Any]],
        where: str,
        rounds: int,
        deadline: float,
    ) -> None:
        self.kernel, self.problems, self.where = kernel, problems, where
        self.rounds, self.deadline = rounds, deadline
        self.choices = choices
        self.device_label = VIRTUAL_LABEL if where == "virtual" else "real GPU"
        self.unit = "virtual cycles" if where == "virtual" else "us"
        self.variants: dict[int, Kernel] = {}
        self.errors: dict[int, str] = {}
        self.rows: dict[tuple[str, int], Row] = {
            (label, number): Row(label, dict(choice), unit=self.unit)
            for label in problems
            for number, choice in enumerate(choices)
        }

    def steps(self) -> Iterator[None]:
        """Compile all; then, problem by problem, verify, time and profile."""
        for number, choice in enumerate(self.choices):
            self._compile(number, choice)
            yield
        for label, problem in self.problems.items():
            right = []
            for number in range(len(self.choices)):
                if self._verify(label, problem, number):
                    right.append(number)
                yield
            for group in [right] if self.where == "gpu" and right else [[n] for n in right]:
                self._time(label, problem, group)
                yield from [None] * len(group)
            for number in right:
                self._profile(label, problem, number)
                yield
            yield from [None] * (2 * (len(self.choices) - len(right)))

    def _update(self, label: str, number: int, **facts: Any) -> None:
        self.rows[label, number] = self.rows[label, number]._replace(**facts)

    def _compile(self, number: int, choice: Mapping[str, Any]) -> None:
        try:
            self.variants[number] = self.kernel.variant(**choice)
        except CompileError as problem:
            self.errors[number] = _first_words(problem)

    def _verify(self, label: str, problem: Problem, number: int) -> bool:
        """Whether the variant is right on this problem, with its resources and its faults told."""
        if number in self.errors:
            self._update(label, number, error=self.errors[number])
            return False
        variant = self.variants[number]
        resources = _resources(variant, problem)
        self._update(label, number, **resources)
        if resources.get("blocks_per_sm") == 0:
            self._update(
                label, number,
                error=f"not one block fits an SM: too much of {resources['limited_by']}",
            )  # fmt: skip
            return False
        try:
            verdict = _judged(variant, problem, self.where)
        except _faults() as fault:
            self._update(label, number, error=_sentence(fault))
            return False
        self._update(label, number, right=verdict.ok, wrong="" if verdict.ok else verdict.why)
        return verdict.ok

    def _time(self, label: str, problem: Problem, group: Sequence[int]) -> None:
        from course_lib.timing import compare

        kernels = {str(number): self.variants[number] for number in group}
        try:
            found = compare(kernels, problem, self.rounds, self.where, deadline=self.deadline)
        except _faults() as fault:
            for number in group:
                self._update(label, number, error=_sentence(fault))
            return
        self.device_label = found.device_label
        for number in group:
            low, high = found.interval(str(number))
            self._update(
                label, number, time=found.median(str(number)), low=low, high=high,
                times=np.asarray(found.times[str(number)]),
            )  # fmt: skip

    def _profile(self, label: str, problem: Problem, number: int) -> None:
        from course_lib.profiling import profile

        try:
            found = profile(self.variants[number], problem, self.where)
        except _faults() as fault:
            self._update(label, number, note=f"not profiled: {_sentence(fault)}")
            return
        share = found.wait_cycles / found.warp_cycles if found.warp_cycles else None
        self._update(label, number, wait_cycles=found.wait_cycles, wait_share=share)


def _judged(variant: Kernel, problem: Problem, where: str) -> Any:
    from course_lib.verification import verify

    return verify(variant, problem, where)


def _resources(variant: Kernel, problem: Problem) -> dict[str, Any]:
    """Registers, shared and spilled bytes, residency; without an assembler only shared bytes."""
    from course_lib.ptx_facts import static_shared
    from course_lib.ptxas import NoAssembler

    shared = variant.shared_bytes + static_shared(variant.ptx_text, variant.name)
    try:
        resources = variant.resources
        resident = variant.blocks_per_sm(problem.threads(variant))
    except NoAssembler as missing:
        return {"shared_bytes": shared, "note": str(missing)}
    return {
        "registers": resources.registers,
        "shared_bytes": shared,
        "spill_bytes": resources.spill_bytes,
        "blocks_per_sm": resident.blocks,
        "limited_by": resident.limited_by,
        "threads": resident.threads,
    }


def _faults() -> tuple[type[Exception], ...]:
    """What ends one variant, and not the sweep."""
    from course_lib.ptx.parse import PtxSyntaxError
    from course_lib.real_gpu.guard import GpuError
    from course_lib.virtual_gpu.flow import Unsupported
    from course_lib.virtual_gpu.memory import ArgumentError

    return DoesNotRun, GpuError, Unsupported, PtxSyntaxError, ArgumentError, CompileError


def _first_words(problem: CompileError) -> str:
    """The first diagnostic's message: a table has no room for the quoted source."""
    first = problem.diagnostics[0]
    where = f"line {first.line}: " if first.line else ""
    return f"{where}{first.message}"


def _sentence(fault: Exception) -> str:
    return _first_words(fault) if isinstance(fault, CompileError) else " ".join(str(fault).split())
