"""``verify``: is the result of a kernel right, and if not, what does the way it is wrong tell?

On the virtual GPU the same launch runs under several warp orders and landing policies, because a
kernel with a missing wait or barrier is often right by luck. Which of them go wrong tells apart the
two ordering edges of a pipeline:

* wrong only when copies land *late* (as late as a wait allows): something reads a stage before its
  copy is complete;
* wrong only when copies land *early*, or only when one warp lags behind: something overwrites a
  stage that is still being read, or reads what another warp has not written yet.
"""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from course_lib.problem_runs import VIRTUAL_LABEL, first_error, launch_virtual

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.problems import Problem

ORDER_WORDS = {
    "round_robin": "warps take turns",
    "one_last": "warp {victim} lags behind the others",
    "one_first": "warp {victim} runs ahead of the others",
    "random": "warps run in random order {seed}",
    "timed": "warps run by the virtual clock",
}
LANDING_WORDS = {
    "early": "copies land at once",
    "late": "copies land as late as a wait allows",
    "random": "copies land at random times",
}


@dataclass(frozen=True)
class Policy:
    """How the virtual GPU schedules warps, and when asynchronous copies land."""

    order: str = "round_robin"
    landing: str = "late"
    victim: int = 0
    seed: int = 0

    def __str__(self) -> str:
        order = ORDER_WORDS[self.order].format(victim=self.victim, seed=self.seed)
        return f"{LANDING_WORDS[self.landing]}, {order}"


SMALL_POLICIES = (
    Policy("round_robin", "late"),
    Policy("round_robin", "early"),
    Policy("one_last", "late"),
    Policy("one_last", "early"),
    Policy("one_first", "late"),
    Policy("one_first", "early"),
    Policy("random", "random", seed=1),
)


@dataclass(frozen=True)
class Run:
    """One launch that was judged. ``failure`` is the words of an error that ended it, or ""."""

    policy: Policy | None
    problem: Problem
    device: str
    ok: bool
    max_error: float
    first_wrong: str = ""
    failure: str = ""
    seconds: float = 0.0

    @property
    def words(self) -> str:
        """What is wrong with it, or ""."""
        return self.failure or self.first_wrong


@dataclass(frozen=True)
class Verdict:
    """Whether a kernel is right.

    ``max_error`` is the largest error found, ``first_wrong`` the first wrong element in words,
    ``why`` what the pattern of right and wrong runs tells, ``runs`` everything that was tried.
    """

    ok: bool
    max_error: float
    first_wrong: str
    why: str
    device: str
    device_label: str
    kernel_name: str
    runs: tuple[Run, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        mark = "Right" if self.ok else "Wrong"
        parts = [f"{mark} ({self.device_label}). {self.why}"]
        parts += [_sentence(text) for text in self.notes]
        text = " ".join(parts)
        return f"{text}\n{self.warnings[0]}" if self.warnings else text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        color, mark = ("#12703a", "✓ right") if self.ok else ("#a32018", "✗ wrong")
        rest = str(self).split(". ", 1)[1]
        return (
            f"<div><b style='color:{color}'>{mark}</b> <span style='color:#5f5f5f'>"
            f"{html.escape(self.kernel_name)} · {html.escape(self.device_label)}</span><br>"
            f"<span style='white-space:pre-wrap'>{html.escape(rest)}</span></div>"
        )


def verify(
    kernel: Kernel,
    problem: Problem,
    device: str = "auto",
    *,
    preflight: bool = True,
    order: str | None = None,
    landing: str | None = None,
    victim: int = 0,
    seed: int = 0,
    deadline: float = 20.0,
) -> Verdict:
    """Run the kernel on the problem and compare with the reference.

    On the virtual GPU: a small case under several warp orders and landing policies, then the whole
    problem. With ``order`` or ``landing`` only that policy, on the whole problem. On a real GPU:
    first the small case on the virtual GPU (``preflight``), where a deadlock or a wild pointer is
    explained, then the whole problem in a helper process with ``deadline`` seconds.
    """
    from course_lib.devices import resolve

    where, _ = resolve(device, kernel)
    chosen = order is not None or landing is not None
    if where == "virtual":
        if chosen:
            policy = Policy(order or "round_robin", landing or "late", victim, seed)
            return _judge(kernel, *_run_virtual(kernel, problem, (policy,)), problem)
        return _verify_virtual(kernel, problem)
    if chosen:
        raise ValueError('order= and landing= belong to the virtual GPU: add device="virtual"')
    return _verify_real(kernel, problem, preflight, deadline)


# --- The virtual GPU ----------------------------------------------------------------------------


def _verify_virtual(kernel: Kernel, problem: Problem) -> Verdict:
    small = problem.small()
    runs, warnings = _run_virtual(kernel, small, SMALL_POLICIES)
    if all(run.ok for run in runs) and small != problem:
        more, more_warnings = _run_virtual(kernel, problem, (Policy(),))
        runs += more
        warnings += [text for text in more_warnings if text not in warnings]
    return _judge(kernel, runs, warnings, problem)


def _run_virtual(
    kernel: Kernel, problem: Problem, policies: Sequence[Policy]
) -> tuple[list[Run], list[str]]:
    """Runs under each policy, ended early by an error that no policy would change."""
    inputs = problem.inputs()
    reference = problem.reference(inputs)
    runs: list[Run] = []
    warnings: list[str] = []
    for policy in policies:
        begin = time.perf_counter()
        result, outputs = launch_virtual(
            kernel, problem, inputs, order=policy.order, landing=policy.landing,
            victim=policy.victim, seed=policy.seed,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        warnings += [text for text in map(_message, result.warnings) if text not in warnings]
        if not result.ok:
            failure = first_error(result)
            runs.append(Run(policy, problem, "virtual", False, float("inf"), "", failure, seconds))
            break
        ok, error, words = problem.compare(outputs, reference)
        runs.append(Run(policy, problem, "virtual", ok, error, words, "", seconds))
    return runs, warnings


def _message(item: Any) -> str:
    return str(getattr(item, "message", item))


def _judge(
    kernel: Kernel, runs: Sequence[Run], warnings: Sequence[str], problem: Problem
) -> Verdict:
    wrong = [run for run in runs if not run.ok]
    first = wrong[0] if wrong else None
    why = _why_right(runs, problem) if first is None else _why_wrong(runs)
    # A note on uninitialised memory is noise beside a right result: compilers load speculatively.
    told = () if first is None else tuple(warnings)
    return Verdict(
        first is None,
        max((run.max_error for run in runs), default=0.0),
        first.words if first else "",
        why,
        "virtual",
        VIRTUAL_LABEL,
        kernel.name,
        tuple(runs),
        told,
    )


def _why_right(runs: Sequence[Run], problem: Problem) -> str:
    error = max(run.max_error for run in runs)
    tolerance = getattr(problem, "tolerance", 0.0)
    how = "Equal to the reference"
    if tolerance:
        how = f"Within the tolerance (largest error {error:.2g}; {_allowed(problem)} allowed)"
    if len(runs) == 1:
        return f"{how} where {runs[0].policy}."
    return f"{how} under {len(runs)} combinations of warp order and landing of copies."


def _why_wrong(runs: Sequence[Run]) -> str:
    wrong = [run for run in runs if not run.ok]
    first = wrong[0]
    if first.failure:
        return _sentence(first.failure)
    size = f" ({_size(first.problem)})" if first.problem else ""
    place = f"{_sentence(first.first_wrong)} Seen where {first.policy}{size}."
    reason = _pattern(runs)
    return f"{reason} {place}" if reason else place


def _pattern(runs: Sequence[Run]) -> str:
    """What the policies under which it is right and wrong have in common."""
    if len(runs) < 2:
        return ""
    late, early = (
        [r for r in runs if r.policy and r.policy.landing == landing]
        for landing in ("late", "early")
    )
    if all(not r.ok for r in runs):
        return "Wrong in every order, so this is no matter of luck."
    if early and late and all(r.ok for r in early) and not all(r.ok for r in late):
        return (
            "Right when copies land at once, wrong when they land as late as a wait allows: the "
            "kernel reads a stage before its copy is complete. Look at the wait before the read; "
            "find_hazards(kernel, problem) names the lines."
        )
    lagging = [r for r in runs if r.policy and r.policy.order in ("one_last", "one_first")]
    turns = [r for r in runs if r.policy and r.policy.order == "round_robin"]
    if all(r.ok for r in turns) and not all(r.ok for r in lagging):
        kind = "when copies land at once" if all(r.ok for r in late) else "whenever copies land"
        return (
            f"Right while warps keep together, wrong {kind} and one warp lags: a stage is "
            "overwritten, or read, before every warp has got there. Look at the barrier after the "
            "reads (the reuse edge) and at the one before them; find_hazards(kernel, problem) "
            "names the lines."
        )
    return (
        "Right under some orders and wrong under others: an ordering edge is missing. "
        "find_hazards(kernel, problem) names it."
    )


def _allowed(problem: Problem) -> str:
    """The tolerance in words: halves are rounded when they are stored, in proportion to them."""
    words = f"{getattr(problem, 'tolerance', 0.0):.2g}"
    if getattr(problem, "dtype", "") == "float16":
        words += " and the rounding of the result to half"
    return words


def _size(problem: Problem) -> str:
    tiles = getattr(problem, "tiles", None)
    if tiles is None:
        return repr(problem)
    blocks = problem.blocks()
    return f"{tiles} tile{'s' * (tiles != 1)}, {blocks} block{'s' * (blocks != 1)}"


def _sentence(text: str) -> str:
    text = text.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


# --- The real GPU -------------------------------------------------------------------------------


def _verify_real(kernel: Kernel, problem: Problem, preflight: bool, deadline: float) -> Verdict:
    notes: tuple[str, ...] = ()
    runs: list[Run] = []
    if preflight:
        verdict = _preflight(kernel, problem)
        if isinstance(verdict, str):
            notes = (verdict,)
        elif not verdict.ok:
            return verdict
        else:
            runs += verdict.runs
    return _on_gpu(kernel, problem, deadline, runs, notes)


def _preflight(kernel: Kernel, problem: Problem) -> Verdict | str:
    """The virtual GPU's verdict on a small case, or why it has none."""
    from course_lib.ptx.parse import PtxSyntaxError
    from course_lib.virtual_gpu.flow import Unsupported

    try:
        runs, warnings = _run_virtual(kernel, problem.small(), SMALL_POLICIES)
    except (Unsupported, PtxSyntaxError) as missing:
        return f"The virtual GPU could not look at it first: {missing}"
    verdict = _judge(kernel, runs, warnings, problem)
    if verdict.ok:
        return verdict
    return Verdict(
        **{
            **{name: getattr(verdict, name) for name in verdict.__dataclass_fields__},
            "notes": ("It was not run on the real GPU (preflight=False does that).",),
        }
    )


_DOUBTS: dict[tuple[str, ...], str] = {}
"""What ``doubt`` has found, by the content of kernel and problem."""


def doubt(kernel: Kernel, problem: Problem) -> str:
    """Why times of this kernel mean nothing, in one line; "" where nothing speaks against them.

    The preflight of ``verify``, whose answer is kept: the small case on the virtual GPU under
    several orders. Says nothing of a kernel that the virtual GPU cannot run.
    """
    small = problem.small()
    shape = (kernel.name, kernel.ptx_text, kernel.threads, kernel.tile, kernel.shared_bytes)
    facts = (*shape, kernel.defines, kernel.cluster, type(small), small, vars(small))
    key = tuple(map(repr, facts))
    if key not in _DOUBTS:
        _DOUBTS[key] = _doubt(kernel, problem)
    return _DOUBTS[key]


def _doubt(kernel: Kernel, problem: Problem) -> str:
    if kernel.extra_parameters:  # rewritten for a launch of its own
        return ""
    verdict = _preflight(kernel, problem)
    if isinstance(verdict, str) or verdict.ok:
        return ""
    always = all(not run.ok and not run.failure for run in verdict.runs)
    reason = verdict.first_wrong if always else verdict.why
    first = " ".join(reason.split()).split(". ")[0].rstrip(".")
    return f"WRONG by verify: {first}. Its times mean nothing."


def _on_gpu(
    kernel: Kernel, problem: Problem, deadline: float, runs: list[Run], notes: tuple[str, ...]
) -> Verdict:
    from course_lib.real_gpu.guard import GpuFault, GpuHung, shared_helper

    label = "real GPU"
    try:
        answer = shared_helper().call(
            "run_problem",
            kernel=kernel.to_spec(),
            problem=problem.to_spec(),
            deadline=deadline,
        )
    except (GpuHung, GpuFault) as failure:
        run = Run(None, problem, "gpu", False, float("inf"), "", str(failure))
        why = _sentence(str(failure))
        return Verdict(
            False, float("inf"), run.words, why, "gpu", label, kernel.name, (*runs, run), (), notes
        )
    reference = problem.reference(problem.inputs())
    ok, error, words = problem.compare(answer["outputs"], reference)
    run = Run(None, problem, "gpu", ok, error, words, "", answer["microseconds"] * 1e-6)
    if ok:
        tolerance = getattr(problem, "tolerance", 0.0)
        why = "Equal to the reference"
        if tolerance:
            why = f"Within the tolerance (largest error {error:.2g}; {_allowed(problem)} allowed)"
        if runs:
            why += f"; before that right under {len(runs)} orders on the virtual GPU"
        why += "."
    else:
        why = _sentence(words)
        if runs:
            why += " The small case was right on the virtual GPU under every order that was tried."
    return Verdict(
        ok, error, "" if ok else words, why, "gpu", answer["device"], kernel.name, (*runs, run), (),
        notes,
    )  # fmt: skip
