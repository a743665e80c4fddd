"""``profile``: where warps wait, line by line, and how much was moved and computed.

On the virtual GPU the waits are the stalls of its clock: every cycle that a warp could not go on is
charged to the line whose instruction waited. On a real GPU they come from clock stamps around
waits, barriers and stores of loaded values. Bytes and arithmetic are counted, exactly, on the
virtual GPU in both cases; they are counts of PTX instructions executed by threads.

A waiting line is where the time shows, which is not always where it is lost: the profile is a
hypothesis, to be tested by changing one thing.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from course_lib.problem_runs import VIRTUAL_LABEL, launch_timed, timed_blocks

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from course_lib.kernel import Kernel
    from course_lib.problems import Problem

#: Words for the kinds of ``ptx.probes.kind_of``, the most telling first.
KIND_WORDS = {
    "wait": "waits for copies",
    "barrier": "barrier",
    "store": "stores loaded values",
    "load": "loads from global memory",
    "read": "reads shared memory",
    "copy": "issues copies",
    "commit": "closes a group of copies",
    "arrive": "arrives at a barrier",
}

VALUE_WORDS = "needs a value that is on its way"
ARITHMETIC_WORDS = "needs the result of arithmetic"


class WaitingLine(NamedTuple):
    """A line of the learner's cell and the cycles that an average warp waits there."""

    line: int
    source: str
    kind: str
    wait_cycles: float
    share: float


@dataclass(frozen=True)
class Profile:
    """Where warps wait, and what was done.

    ``cycles`` is the run's length on one SM; ``wait_cycles`` what an average warp spends waiting,
    of the ``warp_cycles`` that it lives. ``global_bytes``, ``arithmetic`` (integer and floating
    point operations) and ``instructions`` (of warps) are for the whole launch. ``issue_rate`` is
    warp instructions per cycle of one SM (4 at most). ``None`` is what could not be counted.
    """

    lines: tuple[WaitingLine, ...]
    wait_cycles: float
    warp_cycles: float
    cycles: float
    global_bytes: int | None
    arithmetic: int | None
    instructions: int | None
    issue_rate: float | None
    device: str
    device_label: str
    kernel_name: str
    notes: tuple[str, ...] = ()

    @property
    def by_line(self) -> pd.DataFrame:
        """The waits as a table: line, source, kind, wait_cycles, share."""
        import pandas as pd

        return pd.DataFrame(list(self.lines), columns=list(WaitingLine._fields)).set_index("line")

    def to_frame(self) -> pd.DataFrame:
        """The same as ``by_line``."""
        return self.by_line

    @property
    def unit(self) -> str:
        """What the cycles are."""
        return "cycles" if self.device == "gpu" else "virtual cycles"

    def figure_label(self) -> str:
        """The words that every figure of this profile carries."""
        how = "measured" if self.device == "gpu" else "virtual cycles"
        return f"{self.device_label}, {how}"

    @property
    def hypothesis(self) -> str:
        """What the waits suggest, worded as what it is: something to test."""
        if not self.lines or self.wait_cycles <= 0:
            return "Warps hardly wait: more overlap would gain little here."
        first = self.lines[0]
        if first.kind == ARITHMETIC_WORDS:
            return (
                f"Hypothesis: line {first.line} holds {first.share:.0%} of the waiting, for the "
                "results of its own arithmetic: computing itself, not loading, limits this kernel, "
                "and overlap cannot help more. The counters alone do not prove it. Test it: take "
                "arithmetic away from that line, keep the copies the same, and see whether the "
                "time falls."
            )
        text = (
            f"Hypothesis: line {first.line} ({first.kind}) holds {first.share:.0%} of the waiting, "
            f"so what it waits for may limit this kernel. "
        )
        if first.kind == KIND_WORDS["barrier"]:
            text += "At a barrier that is whatever the slowest warp waited for before it. "
        if first.kind in (KIND_WORDS["wait"], KIND_WORDS["store"], KIND_WORDS["load"]):
            text += "That would be the arrival of the next tile: memory latency, exposed. "
        return text + (
            "The counters alone do not prove it. Test it: change only the overlap, keep bytes and "
            "arithmetic the same, and see whether these waits and the time fall together."
        )

    def plot(self, title: str | None = None, top: int = 8) -> Figure:
        """Bars of the waits beside the learner's own lines."""
        from course_lib import plots

        rows = [
            (f"{row.line:>3}  {_code(row.source)}", row.wait_cycles) for row in self.lines[:top]
        ]
        return plots.draw_lines_of_source(
            rows,
            xlabel=f"{self.unit} that an average warp waits at the line",
            device_words=self.figure_label(),
            title=title or f"Where {self.kernel_name} waits",
        )

    def _facts(self) -> list[tuple[str, str]]:
        facts = [
            (
                "waiting",
                f"{self.wait_cycles:,.0f} of {self.warp_cycles:,.0f} {self.unit} "
                "of an average warp",
            )
        ]
        if self.issue_rate is not None:
            facts.append(
                ("issue rate", f"{self.issue_rate:.2f} warp instructions per cycle and SM")
            )
        if self.global_bytes is not None:
            facts.append(("global memory", f"{self.global_bytes:,} bytes"))
        if self.arithmetic is not None:
            facts.append(("arithmetic", f"{self.arithmetic:,} operations"))
        return facts

    def __str__(self) -> str:
        head = f"{self.kernel_name} on {self.figure_label()}"
        rows = [
            f"{row.line:>5} {row.wait_cycles:>12,.0f} {row.share:>6.0%}  {row.source}  [{row.kind}]"
            for row in self.lines
        ]
        table = f"{'line':>5} {'wait cycles':>12} {'share':>6}  source"
        facts = [f"{name}: {words}" for name, words in self._facts()]
        return "\n".join([head, table, *rows, *facts, self.hypothesis, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        left = "text-align:left"
        rows = "".join(
            f"<tr><td>{row.line}</td><td style='{left}'><code>{html.escape(row.source)}</code></td>"
            f"<td style='{left}'>{html.escape(row.kind)}</td><td>{row.wait_cycles:,.0f}</td>"
            f"<td>{row.share:.0%}</td></tr>"
            for row in self.lines
        )
        facts = " · ".join(f"{name}: {words}" for name, words in self._facts())
        notes = "".join(f"<div>{html.escape(note)}</div>" for note in self.notes)
        return (
            f"<table><thead><tr><th>line</th><th style='{left}'>"
            f"{html.escape(self.kernel_name)}</th>"
            f"<th style='{left}'>kind</th><th>wait {self.unit} per warp</th><th>share</th></tr>"
            f"</thead><tbody>{rows}</tbody></table><div>{html.escape(facts)}</div>"
            f"<div>{html.escape(self.hypothesis)}</div>{notes}"
            f"<div style='color:#5f5f5f'>{html.escape(self.figure_label())}</div>"
        )


def profile(kernel: Kernel, problem: Problem, device: str = "auto") -> Profile:
    """Waits by source line, issue rate, bytes and arithmetic of one launch.

    A kernel that ``verify`` finds wrong on the problem's small case is measured all the same, and
    a note says so. Raises ``DoesNotRun`` (virtual) or ``GpuError`` (real) where it doesn't finish.
    """
    from course_lib.devices import resolve
    from course_lib.verification import doubt

    where, _ = resolve(device, kernel)
    found = (_profile_real if where == "gpu" else _profile_virtual)(kernel, problem)
    wrong = doubt(kernel, problem)
    return replace(found, notes=(wrong, *found.notes)) if wrong else found


class Counts(NamedTuple):
    """Counts for the whole launch, and per SM for the issue rate."""

    global_bytes: int
    arithmetic: int
    instructions: int
    instructions_per_sm: float
    cycles: float
    stalls: Mapping[Any, float]
    warps: int


def count(kernel: Kernel, problem: Problem) -> Counts:
    """One timed launch; its counts scaled from the blocks of one SM to the grid.

    Raises ``DoesNotRun`` where the launch ends in an error.
    """
    result = launch_timed(kernel, problem)
    blocks = problem.blocks(kernel)
    simulated = len(timed_blocks(kernel, problem))
    scale = blocks / simulated
    counters = defaultdict(int, result.counters)
    moved = counters["global_load_bytes"] + counters["global_store_bytes"] + counters["copy_bytes"]
    arithmetic = counters["flops"] + counters["integer_ops"]
    warps = simulated * -(-problem.threads(kernel) // 32)
    return Counts(
        round(moved * scale),
        round(arithmetic * scale),
        round(counters["instructions"] * scale),
        counters["instructions"],
        float(result.cycles),
        result.stalls,
        warps,
    )


def _profile_virtual(kernel: Kernel, problem: Problem) -> Profile:
    counts = count(kernel, problem)
    module = kernel.module
    waits: dict[int | None, float] = defaultdict(float)
    for site, cycles in counts.stalls.items():
        waits[module.sites[site].cell_line] += cycles / counts.warps
    return Profile(
        _table(kernel, waits),
        sum(waits.values()),
        counts.cycles,
        counts.cycles,
        counts.global_bytes,
        counts.arithmetic,
        counts.instructions,
        counts.instructions_per_sm / counts.cycles if counts.cycles else None,
        "virtual",
        VIRTUAL_LABEL,
        kernel.name,
    )


def _profile_real(kernel: Kernel, problem: Problem) -> Profile:
    from course_lib.real_gpu.guard import shared_helper
    from course_lib.virtual_gpu.flow import Unsupported

    helper = shared_helper()
    answer = helper.call(
        "trace_problem", kernel=kernel.to_spec(), problem=problem.to_spec(), lock=True
    )
    waits, warps, span = _waits_of_stamps(answer)
    notes = tuple(answer["notes"])
    properties = helper.call("device_info", lock=False)
    cycles = answer["plain_us"] * properties["clock_mhz"]
    counts = None
    try:
        counts = count(kernel, problem)
    except Unsupported as missing:
        notes += (f"Bytes and arithmetic were not counted: {missing}",)
    rate = None
    if counts is not None:
        rate = counts.instructions / properties["sms"] / cycles
        notes += ("Bytes, arithmetic and instructions were counted on the virtual GPU.",)
    return Profile(
        _table(kernel, {line: total / max(warps, 1) for line, total in waits.items()}),
        sum(waits.values()) / max(warps, 1),
        span,
        cycles,
        counts.global_bytes if counts else None,
        counts.arithmetic if counts else None,
        counts.instructions if counts else None,
        rate,
        "gpu",
        answer["device"],
        kernel.name,
        notes,
    )


def _waits_of_stamps(answer: Mapping[str, Any]) -> tuple[dict[int | None, float], int, float]:
    """Cycles between the stamps before and after each waiting instruction, by line; warps; span."""
    lines = {site.index: site.cell_line for site in answer["sites"]}
    waits: dict[int | None, float] = defaultdict(float)
    begun: dict[tuple[int, int, int], float] = {}
    events = answer["events"]
    for event in events:
        key = int(event["block"]), int(event["warp"]), int(event["site"])
        if event["phase"] == 0:
            begun[key] = float(event["clock"])
        elif key in begun:
            waits[lines[key[2]]] += float(event["clock"]) - begun.pop(key)
    warps = {(int(e["block"]), int(e["warp"])) for e in events}
    span = float(events["clock"].max() - events["clock"].min()) if len(events) else 0.0
    return waits, len(warps), span


def _table(kernel: Kernel, waits: Mapping[int | None, float]) -> tuple[WaitingLine, ...]:
    total = sum(waits.values())
    kinds = _kinds_by_line(kernel)
    computing = _computing_lines(kernel)
    source = kernel.source.splitlines()
    rows = []
    for line, cycles in waits.items():
        if line is None or cycles <= 0 or cycles < 0.002 * total:
            continue
        text = source[line - 1].strip() if 0 < line <= len(source) else ""
        rows.append(
            WaitingLine(
                line,
                text,
                kinds.get(line, ARITHMETIC_WORDS if line in computing else VALUE_WORDS),
                cycles,
                cycles / total,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.wait_cycles))


def _code(text: str, width: int = 56) -> str:
    """A source line without its comment, cut to what a figure has room for."""
    text = text.split("//")[0].rstrip() or text
    return text if len(text) <= width else text[: width - 1] + "…"


def _kinds_by_line(kernel: Kernel) -> dict[int, str]:
    """What the instructions of each line do, in words."""
    from course_lib.ptx import probes
    from course_lib.ptx.parse import Label

    found: dict[int, set[str]] = defaultdict(set)
    module = kernel.module
    for function in module.functions.values():
        for item in function.body:
            if isinstance(item, Label):
                continue
            line = module.site_of(item).cell_line
            kind = probes.kind_of(item.opcode)
            if line is not None and kind is not None:
                found[line].add(kind)
    return {
        line: next(words for kind, words in KIND_WORDS.items() if kind in kinds)
        for line, kinds in found.items()
        if kinds & set(KIND_WORDS)
    }


def _computing_lines(kernel: Kernel) -> set[int]:
    """Lines few of whose instructions read what a load or an atomic wrote.

    Few is less than a quarter: in a long chain of arithmetic the first link may read a load.
    """
    reads: dict[int, list[bool]] = defaultdict(list)
    module = kernel.module
    for function in module.functions.values():
        code = list(function.instructions)
        loaded: set[str] = set()
        for item in code:
            if item.family in ("ld", "ldmatrix", "atom", "call") and not item.opcode.startswith(
                "ld.param"
            ):
                loaded |= _registers(item.operands[:1])
        for item in code:
            line, sources = module.site_of(item).cell_line, _registers(item.operands[1:])
            if line is not None and sources:
                reads[line].append(bool(sources & loaded))
    return {line for line, found in reads.items() if sum(found) < len(found) / 4}


def _registers(operands: Iterable[Any]) -> set[str]:
    """Names of the registers in operands, those of vectors, pairs and addresses included."""
    from course_lib.ptx.parse import Address, Arguments, Negated, Pair, Register, Vector

    found: set[str] = set()
    for operand in operands:
        if isinstance(operand, Register):
            found.add(operand.name)
        elif isinstance(operand, Vector | Arguments):
            found |= _registers(operand.elements)
        elif isinstance(operand, Pair):
            found |= _registers((operand.first, operand.second))
        elif isinstance(operand, Negated):
            found |= _registers((operand.operand,))
        elif isinstance(operand, Address):
            found |= _registers((operand.base, *operand.coordinates))
    return found
