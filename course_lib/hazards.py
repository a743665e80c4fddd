"""``find_hazards``: which ordering edge does a kernel lack, whatever its results say?

The kernel runs on the virtual GPU, which follows every ordering that CUDA documents and reports two
accesses to the same shared memory that none of them joins. Raw reports become one ``Hazard`` for
each cause. An edge is named for what it protects:

ready   a tile must be complete before it is read
reuse   a tile must have been read before the next one is brought to its stage
other   two accesses that are neither
"""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from course_lib import hazard_words
from course_lib.hazard_places import Place, Places, shared_arrays
from course_lib.problem_runs import launch_virtual, shaped_for
from course_lib.ptx.parse import Instruction
from course_lib.verification import SMALL_POLICIES, Policy

if TYPE_CHECKING:
    import pandas as pd

    from course_lib.global_hazards import GlobalHazard
    from course_lib.kernel import Kernel
    from course_lib.plots import CourseFigure
    from course_lib.problems import Problem
    from course_lib.virtual_gpu.dependence import Dependence
    from course_lib.virtual_gpu.global_races import GlobalRace
    from course_lib.virtual_gpu.launch import LaunchResult
    from course_lib.virtual_gpu.races import RawAccess, RawRace

MOST_BLOCKS = 4
"""Blocks of one launch that are checked: the first ones, one in the middle, the last."""

SMALL_BYTES = 1 << 20
"""A problem that moves no more than this is checked as it is, beside its smaller cases."""

_READS = ("read", "wgmma read", "bulk store")
_BRINGS = ("copy", "bulk copy", "write")


class CannotCheck(RuntimeError):
    """The virtual GPU cannot run this kernel on this problem; the text says why."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback: the message says it all."""
        return [str(self)]


@dataclass(frozen=True)
class Access:
    """One side of a hazard. ``kind`` is "read", "write", "copy", "bulk copy" and the like.

    ``line`` and ``code`` are of the learner's cell (None and "" where the code is a header's);
    ``tile`` counts within the block, None where nothing tells it. Where the line is in a function
    that the kernel calls, ``call_line`` is the line of that call.
    """

    line: int | None
    code: str
    warp: int
    kind: str
    tile: int | None
    thread: int
    where: str
    role: str = ""
    called_from: str = ""
    call_line: int | None = None

    def outside(self) -> Access:
        """The same access seen from the kernel: at the line that calls the function it is in."""
        if self.call_line is None:
            return self
        return replace(self, line=self.call_line, where=f"line {self.call_line}")


@dataclass(frozen=True)
class Hazard:
    """Two accesses that no ordering joins. ``first`` must be over before ``second`` begins.

    ``missing`` is the checker's word for what is not there (``races.MISSING``), ``count`` the pairs
    of accesses with this cause, ``case`` where it was seen, ``also`` the same edge at other lines.
    """

    edge: str
    first: Access
    second: Access
    place: Place
    missing: str
    block: int
    count: int
    case: str
    message: str = ""
    also: tuple[Hazard, ...] = ()

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Scope:
    """What was looked at, and how far the verdict reaches."""

    shapes: int
    launches: int
    policies: tuple[Policy, ...]
    blocks_checked: int
    blocks_total: int
    dependence: Dependence
    skipped: tuple[str, ...] = ()

    @property
    def every_schedule(self) -> bool:
        """Whether the verdict holds for every schedule of the shapes that were run."""
        return not self.dependence.on_schedule

    def _how(self) -> str:
        """Orders of the warps, moments at which copies land, launches."""
        orders = {(p.order, p.victim, p.seed) for p in self.policies}
        landings = {p.landing for p in self.policies}
        launches = _count(self.launches, "launch")
        if len(orders) == len(landings) == 1:
            return f"in {launches}"
        land = " or ".join(_LANDINGS[landing] for landing in sorted(landings))
        order = _count(len(orders), "order")
        return f"with {order} of the warps and copies that land {land}, in {launches}"

    def __str__(self) -> str:
        blocks = _count(self.blocks_checked, "block")
        if self.blocks_checked < self.blocks_total:
            blocks = f"{self.blocks_checked} of {self.blocks_total} blocks"
        text = f"Ran {_count(self.shapes, 'shape')} of the problem ({blocks}) {self._how()}."
        if self.every_schedule:
            text += (
                " No branch, address or barrier depends on timing, so the verdict holds for every "
                "schedule of these shapes: any order of the warps, any moment at which copies land."
            )
        else:
            text += (
                " The verdict holds for these schedules, not for all: "
                f"{'; '.join((*self.dependence.reasons, *self.dependence.phases)[:3])}."
            )
        if self.dependence.on_data:
            text += f" It holds for this input, not for all: {'; '.join(self.dependence.data[:2])}."
        return " ".join([text, *self.skipped])


_LANDINGS = {"early": "at once", "late": "as late as they may", "random": "at random"}


def _count(number: int, word: str) -> str:
    plural = word[:-1] + "ies" if word.endswith("y") else word + "es" * word.endswith("ch")
    plural = plural if plural != word else word + "s"
    return f"{number} {word if number == 1 else plural}"


@dataclass(frozen=True)
class HazardReport:
    """What ``find_hazards`` found, most important first.

    ``memory_errors`` are accesses out of bounds and the like, ``deadlock`` why nobody can go on
    (None where that never happens), ``errors`` whatever else ended a run, ``remarks`` what is worth
    knowing and no hazard. ``ok`` is True where nothing but remarks was found.
    """

    kernel_name: str
    hazards: tuple[Hazard, ...]
    memory_errors: tuple[Any, ...]
    deadlock: Any
    errors: tuple[Any, ...]
    remarks: tuple[str, ...]
    scope: Scope
    seconds: float = 0.0
    fills: dict[int | None, tuple[int, ...]] = field(default_factory=dict, repr=False)
    global_hazards: tuple[GlobalHazard, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no hazard, memory error, deadlock or other error was found."""
        found = (*self.hazards, *self.global_hazards, *self.memory_errors, *self.errors)
        return not (found or self.deadlock)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return "\n\n".join([self._headline(), *self._findings(), *self._remarks(), str(self.scope)])

    __repr__ = __str__

    def _headline(self) -> str:
        if self.ok:
            return f"{self.kernel_name}: no hazard."
        parts = []
        for edge, words in (
            ("ready", "missing ready edge"),
            ("reuse", "missing reuse edge"),
            ("other", "other race"),
        ):
            number = sum(hazard.edge == edge for hazard in self.hazards)
            if number:
                parts.append(_count(number, words))
        if self.global_hazards:
            parts.append(_count(len(self.global_hazards), "race") + " in global memory")
        if self.memory_errors:
            parts.append(_count(len(self.memory_errors), "memory error"))
        if self.deadlock:
            parts.append("a deadlock")
        if self.errors:
            parts.append(_count(len(self.errors), "other error"))
        return f"{self.kernel_name}: {', '.join(parts)}."

    def _findings(self) -> list[str]:
        found = [*self.memory_errors, *([self.deadlock] if self.deadlock else []), *self.errors]
        return [str(item) for item in [*found, *self.hazards, *self.global_hazards]]

    def _remarks(self) -> list[str]:
        return [f"Remark: {remark}" for remark in self.remarks]

    def _repr_html_(self) -> str:
        color, mark = ("#12703a", "✓") if self.ok else ("#a32018", "✗")
        parts = [f"<b style='color:{color}'>{mark} {html.escape(self._headline())}</b>"]
        for text in self._findings():
            parts.append(
                f"<pre style='white-space:pre-wrap;margin:6px 0'>{html.escape(text)}</pre>"
            )
        if self.hazards:
            picture = self.plot()._repr_png_()
            parts.append(_image(picture, self.hazards[0].message.split("\n")[0]))
        small = "color:#5f5f5f;font-size:90%"
        for text in [*self._remarks(), str(self.scope)]:
            parts.append(f"<div style='{small}'>{html.escape(text)}</div>")
        return "<div>" + "".join(parts) + "</div>"

    def plot(self, number: int = 0) -> CourseFigure:
        """The picture of one hazard: the ring's timeline, the missing arrow dashed.

        Raises ``IndexError`` with a sentence where there is no such hazard.
        """
        from course_lib.hazard_plots import draw_hazard

        if not 0 <= number < len(self.hazards):
            raise IndexError(
                f"{self.kernel_name} has {_count(len(self.hazards), 'hazard')} to draw, "
                f"numbered from 0: there is no number {number}"
            )
        hazard = self.hazards[number]
        return draw_hazard(hazard, self.kernel_name, self.fills)

    def to_frame(self) -> pd.DataFrame:
        """A row for each hazard."""
        import pandas as pd

        rows = [
            {
                "edge": h.edge, "place": h.place.name, "stage": h.place.stage, "block": h.block,
                "first_line": h.first.line, "first_kind": h.first.kind, "first_warp": h.first.warp,
                "first_tile": h.first.tile, "second_line": h.second.line,
                "second_kind": h.second.kind, "second_warp": h.second.warp,
                "second_tile": h.second.tile, "missing": h.missing, "count": h.count,
            }
            for h in self.hazards
        ]  # fmt: skip
        columns = list(rows[0]) if rows else ["edge", "place", "first_line", "second_line"]
        return pd.DataFrame(rows, columns=columns)


def _image(png: bytes, words: str) -> str:
    import base64

    data = base64.b64encode(png).decode()
    source = f"data:image/png;base64,{data}"
    return f"<img style='max-width:100%' alt='{html.escape(words)}' src='{source}'/>"


# --- running --------------------------------------------------------------------------------------


def find_hazards(
    kernel: Kernel,
    problem: Problem,
    *,
    policies: Sequence[Policy] | None = None,
    most_blocks: int = MOST_BLOCKS,
    global_memory: bool | None = None,
) -> HazardReport:
    """Check a kernel's ordering edges on small cases of a problem, on the virtual GPU.

    Runs ``problem.small()``, its awkward shapes (one tile, an odd number of them, ...), and
    ``problem.long()`` or, where that has none and it is small, the problem itself. Where the
    kernel's control flow depends on no timing one policy decides for every schedule; otherwise all
    of ``verification.SMALL_POLICIES`` are run, or those given. ``report.scope`` says so.

    ``global_memory`` also looks for races in global memory, within and between the blocks of each
    launch, in launches of their own; they are in ``report.global_hazards``. Left to itself it does
    so where the kernel reads an array that it also writes, as ``out[i] += x`` does.

    Raises ``CannotCheck`` where the kernel doesn't fit the problem, or has an instruction that the
    virtual GPU does not have.
    """
    from course_lib.ptx.parse import PtxSyntaxError
    from course_lib.virtual_gpu.flow import Unsupported
    from course_lib.virtual_gpu.launch import ArgumentError, LaunchError

    begin = time.perf_counter()
    try:
        report = _find(kernel, problem, policies, most_blocks, global_memory)
    except (Unsupported, PtxSyntaxError) as missing:
        raise CannotCheck(
            f"{kernel.name} cannot be checked, because the virtual GPU cannot run it: {missing}"
        ) from None
    except (ArgumentError, LaunchError) as misfit:
        raise CannotCheck(f"{kernel.name} cannot be checked on this problem: {misfit}") from None
    return replace(report, seconds=time.perf_counter() - begin)


@dataclass
class _Seen:
    """One launch of one shape under one policy."""

    problem: Problem
    policy: Policy
    result: LaunchResult


def _find(
    kernel: Kernel,
    problem: Problem,
    policies: Sequence[Policy] | None,
    most_blocks: int,
    global_memory: bool | None,
) -> HazardReport:
    from course_lib.virtual_gpu.dependence import dependence

    depends = dependence(kernel.module, kernel.name)
    if policies is None:
        policies = SMALL_POLICIES if depends.on_schedule else SMALL_POLICIES[:1]
    small = problem.small()
    seen: list[_Seen] = []
    skipped: list[str] = []
    checked = total = 0
    longer = problem.long()
    if longer is not None and longer != problem:
        own = [longer]
    else:
        own = [problem] if problem != small and problem.bytes_moved() <= SMALL_BYTES else []
    for shape in (small, *own, *_awkward(kernel, problem, small)):
        blocks = _sample(shape.blocks(kernel), most_blocks)
        runs = _runs(kernel, shape, policies, blocks, until_error=not depends.on_schedule)
        if shape not in (small, *own) and not shape.dense_tiles and _faults(runs):
            # Not every kernel takes every size: its tile may not divide this one.
            skipped.append(f"{shape!r} was left out: the kernel runs out of bounds on it.")
            continue
        seen += runs
        checked, total = checked + len(blocks), total + shape.blocks(kernel)
    shapes = list({id(run.problem): run.problem for run in seen}.values())
    scope = Scope(len(shapes), len(seen), tuple(policies), checked, total, depends, tuple(skipped))
    report = _report(kernel, seen, scope)
    if global_memory is None:
        global_memory = depends.updates
    if not global_memory or report.memory_errors or report.deadlock or report.errors:
        return report
    return _with_global(report, kernel, shapes, policies)


def _with_global(
    report: HazardReport, kernel: Kernel, shapes: Sequence[Problem], policies: Sequence[Policy]
) -> HazardReport:
    """The report with the races in global memory of the shapes whose grids are not too large."""
    from course_lib.global_hazards import MOST_BLOCKS as MOST_WHOLE
    from course_lib.global_hazards import global_hazards

    races: list[tuple[Problem, GlobalRace]] = []
    launches = 0
    for shape in shapes:
        if shape.blocks(kernel) > MOST_WHOLE:
            continue
        inputs = shape.inputs()
        for policy in policies:
            result, _ = launch_virtual(
                kernel, shape, inputs, order=policy.order, landing=policy.landing,
                victim=policy.victim, seed=policy.seed, check_global=True,
            )  # fmt: skip
            launches += 1
            races += [(shape, race) for race in result.global_races]
    hazards, remarks = global_hazards(kernel, races)
    words = f"Global memory was checked too, all blocks of {_count(launches, 'launch')}."
    if not launches:
        words = f"Global memory was not checked: every grid has more than {MOST_WHOLE} blocks."
    scope = replace(report.scope, skipped=(*report.scope.skipped, words))
    return replace(
        report,
        global_hazards=tuple(hazards),
        remarks=(*report.remarks, *remarks),
        scope=scope,
    )


def _awkward(kernel: Kernel, problem: Problem, small: Problem) -> list[Problem]:
    """The awkward shapes whose outputs the kernel's tile divides."""
    tile = problem.tile(kernel)
    kept = []
    for shape in problem.awkward():
        m, n = getattr(shape, "m", None), getattr(shape, "n", None)
        fits = tile is None or m is None or n is None or not (m % tile[0] or n % tile[1])
        if fits and shape not in (small, problem):
            kept.append(shape)
    return kept


def _sample(blocks: int, most: int) -> list[int]:
    if blocks <= most:
        return list(range(blocks))
    return sorted({0, 1, blocks // 2, blocks - 1})[:most]


def _runs(
    kernel: Kernel,
    problem: Problem,
    policies: Iterable[Policy],
    blocks: Sequence[int],
    until_error: bool,
) -> list[_Seen]:
    """One launch under each policy; `until_error` stops at the first that does not end well.

    Where timing decides on the way through the kernel, one schedule may end in a deadlock and
    another show the race behind it: then all of them are run, whatever the first says.
    """
    inputs = problem.inputs()
    runs = []
    for policy in policies:
        result, _ = launch_virtual(
            kernel, problem, inputs, order=policy.order, landing=policy.landing,
            victim=policy.victim, seed=policy.seed, blocks=blocks, check=True,
        )  # fmt: skip
        runs.append(_Seen(problem, policy, result))
        if until_error and not result.ok:
            break  # what follows would only say it again
    return runs


def _faults(runs: Sequence[_Seen]) -> bool:
    from course_lib.virtual_gpu.report import MemoryFault

    return any(isinstance(error, MemoryFault) for run in runs for error in run.result.errors)


# --- from raw races to hazards ------------------------------------------------------------------


def _report(kernel: Kernel, seen: Sequence[_Seen], scope: Scope) -> HazardReport:
    from course_lib.virtual_gpu.report import Deadlock, MemoryFault

    errors: dict[str, Any] = {}
    for run in seen:
        for error in run.result.errors:
            errors.setdefault(f"{type(error).__name__} {error.line}", error)
    memory = tuple(e for e in errors.values() if isinstance(e, MemoryFault))
    deadlock = next((e for e in errors.values() if isinstance(e, Deadlock)), None)
    rest = tuple(e for e in errors.values() if not isinstance(e, (MemoryFault, Deadlock)))
    hazards: list[Hazard] = []
    remarks: dict[str, None] = {}
    fills: dict[int | None, tuple[int, ...]] = {}
    if any(run.result.races for run in seen):
        reader = Reader(kernel, seen)
        hazards = reader.hazards()
        remarks = dict.fromkeys(reader.remarks())
        if hazards:
            fills = reader.fills_of(hazards[0])
    for run in seen:
        for note in run.result.warnings:
            if type(note).__name__ == "BarrierAtTwoLines":
                remarks[str(note)] = None
    return HazardReport(
        kernel.name, tuple(hazards), memory, deadlock, rest, tuple(remarks), scope, fills=fills
    )


class Reader:
    """Turns the raw races of some launches into hazards, one for each cause."""

    def __init__(self, kernel: Kernel, seen: Sequence[Any]) -> None:
        from course_lib.virtual_gpu.flow import flatten
        from course_lib.virtual_gpu.report import Lines

        self.kernel, self.seen = kernel, seen
        self.flat = flatten(kernel.module, kernel.name)
        self.lines = Lines(kernel, kernel.module)
        self.style = hazard_words.style_of(kernel, self.flat)
        self.arrays = shared_arrays(kernel, self.flat, kernel.shared_bytes)
        self.inits = {
            item.site
            for item in self.flat.code
            if isinstance(item, Instruction) and item.opcode.startswith("mbarrier.init")
        }
        self._places: dict[tuple[int, int], Places] = {}

    # --- facts

    def places(self, run: _Seen, block: int) -> Places:
        """Names and tiles of one block of a run, from where a timed launch puts its copies."""
        key = (id(run.problem), block)
        if key not in self._places:
            places = Places(self.arrays, run.problem, run.result.array_addresses)
            log, addresses = _copies(self.kernel, run.problem, block)
            if log is not None:
                places.learn(log, addresses, block)
                places.addresses = run.result.array_addresses
            self._places[key] = places
        return self._places[key]

    def fills_of(self, hazard: Hazard) -> dict[int | None, tuple[int, ...]]:
        """Tiles that come to each stage of the array of a hazard, for its picture."""
        for run in self.seen:
            if case_of(run.problem) != hazard.case:
                continue
            places = self.places(run, hazard.block)
            found: dict[int | None, tuple[int, ...]] = {}
            for stage in range(hazard.place.stages):
                at = replace(hazard.place, stage=stage)
                found[stage] = tuple(places.tiles_at(at))
            return found
        return {}

    def access(self, raw: RawAccess, places: Places, block: int, tile: int | None) -> Access:
        line = self.lines.line(raw.site)
        call_line = self.call_line(raw.site)
        initialises = raw.kind == "write" and raw.site in self.inits
        return Access(
            line,
            self.lines.code(line) if line is not None else "",
            raw.warp,
            "initialisation" if initialises else raw.kind,
            tile if tile is not None else places.tile(raw.source, block),
            raw.thread,
            f"line {line}" if line is not None else self.lines.where(raw.site),
            self.role(raw, places),
            f"  (called from line {call_line})" if call_line is not None else "",
            call_line,
        )

    def call_line(self, site: int) -> int | None:
        """The kernel's line that calls the function in which an access is; None where none is."""
        inner, *outer = self.kernel.module.sites[site].cell_lines or (None,)
        return next((line for line in reversed(outer) if line != inner), None)

    def role(self, raw: RawAccess, places: Places) -> str:
        """Producer or consumer, where only some of the block's warps issue copies."""
        copying = places.copying_warps
        threads = places.problem.threads(self.kernel)
        if not copying or len(copying) >= -(-threads // 32):
            return ""
        if raw.warp not in copying:
            return "consumer"
        return "producer" if raw.kind in ("copy", "bulk copy") else ""

    # --- judging

    def hazards(self) -> list[Hazard]:
        """One hazard for each cause, most important first."""
        found: dict[tuple[Any, ...], Hazard] = {}
        for run in self.seen:
            races = self._races_of(run.problem)
            for race in run.result.races:
                if race.missing == "proxy-read":
                    continue
                hazard = self.hazard(run, race, races)
                key = (hazard.edge, hazard.missing, hazard.first.where, hazard.second.where)
                if key in found:
                    found[key] = replace(found[key], count=found[key].count + hazard.count)
                else:
                    found[key] = hazard
        causes = _joined(sorted(_without_consequences(list(found.values())), key=_importance))
        return [replace(h, message=hazard_words.message(h, self.style)) for h in causes]

    def _races_of(self, problem: Problem) -> list[RawRace]:
        """The races of every schedule of one shape: what one shows tells the others' edges."""
        return [
            race
            for run in self.seen
            if run.problem is problem
            for race in run.result.races
            if race.missing != "proxy-read"
        ]

    def hazard(self, run: _Seen, race: RawRace, all_races: Sequence[RawRace]) -> Hazard:
        places = self.places(run, race.block)
        place = places.place(race.offset, race.bytes)
        edge, flipped = self.edge(race, all_races, places, place)
        early, late = (race.second, race.first) if flipped else (race.first, race.second)
        early_tile, late_tile = _tiles(edge, early, late, places, place, race.block)
        return Hazard(
            edge,
            self.access(early, places, race.block, early_tile),
            self.access(late, places, race.block, late_tile),
            place,
            race.missing,
            race.block,
            race.count,
            case_of(run.problem),
        )

    def edge(
        self, race: RawRace, races: Sequence[RawRace], places: Places, place: Place
    ) -> tuple[str, bool]:
        """(edge, whether the run had the two accesses in the wrong order).

        A race is a race in both directions, and the run may have taken the wrong one: a slow warp
        reads a tile after a fast one has issued the next copy to that stage. The first tile of a
        stage has nothing before it that could be overwritten, so a race with its copy is about the
        ready edge; a race with a later tile's copy is about the reuse edge, where the run also
        shows the stage being overwritten.
        """
        first, second = race.first, race.second
        if race.missing == "proxy":  # ordered, so the run had it right
            return ("ready" if first.kind in _BRINGS else "reuse"), False
        if "write" in (first.kind, second.kind) and self._same_line(first.site, second.site):
            reads = first.kind in _READS
            return ("ready", reads) if first.kind != second.kind else ("other", False)
        if first.kind in _BRINGS and second.kind in _READS:
            if self.overwriting(race, races, places, place):
                return "reuse", True
            return "ready", False
        if first.kind in _READS and second.kind in _BRINGS:
            if self.comes_first(race, places):
                return "ready", True
            return "reuse", False
        if {first.kind, second.kind} <= {"copy", "bulk copy"}:
            return "reuse", False
        return "other", False

    def overwriting(
        self, race: RawRace, races: Sequence[RawRace], places: Places, place: Place
    ) -> bool:
        """Whether a copy or store that a later read races with is the *next* tile of the stage."""
        copy = race.first
        if copy.kind == "write":
            return not self._not_yet_stored(copy, race.second)
        if self._first_fill(race, copy, places) is not False:
            return False
        mine = [
            other
            for other in races
            if other.second.kind in _BRINGS
            and self._same_line(other.second.site, copy.site)
            and places.place(other.offset).array == place.array
        ]
        if any(
            other.first.kind in _READS and not self._first_fill(other, other.second, places)
            for other in mine
        ):
            return True
        if race.found_reads:  # and in order, or they were among the races: the tile before is done
            return False
        over_copies = any(other.first.kind in ("copy", "bulk copy") for other in mine)
        return over_copies and not self._ready_is_missing(race, races, places)

    def _first_fill(self, race: RawRace, copy: RawAccess, places: Places) -> bool | None:
        """Whether a copy brings the first tile of its stage; None where nothing tells."""
        tile = places.tile(copy.source, race.block)
        first = places.first_fill(places.place(race.offset), tile)
        return race.fill == 1 if first is None and race.fill else first

    def _ready_is_missing(self, race: RawRace, races: Sequence[RawRace], places: Places) -> bool:
        """Whether the same read races with the first tile of a stage as well."""
        return any(
            other.first.kind in ("copy", "bulk copy")
            and other.second.kind in _READS
            and self._first_fill(other, other.first, places) is True
            and self._same_line(other.second.site, race.second.site)
            for other in races
        )

    def comes_first(self, race: RawRace, places: Places) -> bool:
        """Whether what a read should have seen came only after it."""
        if race.second.kind == "write":
            return self._not_yet_stored(race.second, race.first)
        return self._first_fill(race, race.second, places) is True

    def _not_yet_stored(self, store: RawAccess, read: RawAccess) -> bool:
        """Whether it is the ready edge between a store and a read of these lines that is missing.

        No tile number tells old from new here. But the first store to a place overwrites nothing:
        where a read races with it, or finds nothing there, the ready edge is missing. Where it
        does not, a store above the read has its ready edge. A store below the read (the next
        tile's) lacks the reuse edge, unless a barrier stands between the two.
        """
        if self._uninitialised(read.site) or self._races_with_first_store(store, read):
            return True
        if not self._above(read.site, store.site):
            return False
        lines = (self.outer_line(read.site) or 0, self.outer_line(store.site) or 0)
        return any(lines[0] < (sync.line or 0) < lines[1] for sync in self.style.of("barrier"))

    def _races_with_first_store(self, store: RawAccess, read: RawAccess) -> bool:
        lines = {self.lines.line(store.site), self.lines.line(read.site)}
        return any(
            other.fill == 1
            and {self.lines.line(other.first.site), self.lines.line(other.second.site)} == lines
            for run in self.seen
            for other in run.result.races
        )

    def outer_line(self, site: int) -> int | None:
        """The line of the kernel itself at which an access, or the call that makes it, stands."""
        return self.call_line(site) or self.lines.line(site)

    def _above(self, one: int, other: int) -> bool:
        above, below = self.outer_line(one), self.outer_line(other)
        return above is not None and below is not None and above < below

    def _same_line(self, one: int, other: int) -> bool:
        return one == other or self.lines.line(one) == self.lines.line(other) is not None

    def _uninitialised(self, site: int) -> bool:
        """Whether some run read memory there that nobody had written."""
        return any(
            type(note).__name__ == "UninitialisedRead" and note.line == self.lines.line(site)
            for run in self.seen
            for note in run.result.warnings
        )

    def remarks(self) -> list[str]:
        """The lower kind: in practice safe, but more than the manual promises."""
        lines = {
            (self.lines.short(race.first.site), self.lines.short(race.second.site))
            for run in self.seen
            for race in run.result.races
            if race.missing == "proxy-read"
        }
        return [
            f"{read} reads a stage that the bulk copy on {copy} fills again. The two are ordered, "
            "but with no fence.proxy.async in between, which the manual asks for between generic "
            "accesses and the async proxy. NVIDIA's own libraries leave it out after reads too."
            for read, copy in sorted(lines)
        ]


def case_of(problem: Problem) -> str:
    """The shape in words that tell it from the others."""
    return repr(problem)


def _tiles(
    edge: str, early: RawAccess, late: RawAccess, places: Places, place: Place, block: int
) -> tuple[int | None, int | None]:
    """Tile of the access that must come first, and of the one that must come after it."""
    one, two = places.tile(early.source, block), places.tile(late.source, block)
    if edge == "ready":
        tile = one if one is not None else two
        return tile, tile
    if edge == "reuse" and early.kind in _READS:
        if one is None or one == two:
            one = places.tile_before(place, two)
        return one, two
    return one, two


def _without_consequences(hazards: list[Hazard]) -> list[Hazard]:
    """Leaves out what only follows from another hazard: a copy over a copy nobody waited for."""
    unready = {h.first.where for h in hazards if h.edge == "ready"}
    reused = {h.second.where for h in hazards if h.edge == "reuse" and h.first.kind in _READS}
    kept = []
    for hazard in hazards:
        over_a_copy = hazard.edge == "reuse" and hazard.first.kind not in _READS
        if over_a_copy and (hazard.first.where in unready or hazard.second.where in reused):
            continue
        kept.append(hazard)
    return _one_of_each_pair(kept)


def _one_of_each_pair(hazards: list[Hazard]) -> list[Hazard]:
    """One hazard for the same edge between the same lines: the checker's reasons may differ."""
    order = {"wait": 0, "phase": 1, "group": 2, "visibility": 3, "order": 4, "proxy": 5}
    found: dict[tuple[Any, ...], Hazard] = {}
    for hazard in sorted(hazards, key=lambda h: order.get(h.missing, 9)):
        key = (hazard.edge, hazard.first.where, hazard.second.where, hazard.place.array)
        if key in found:
            found[key] = replace(found[key], count=found[key].count + hazard.count)
        else:
            found[key] = hazard
    return list(found.values())


def _joined(hazards: list[Hazard]) -> list[Hazard]:
    """One report where the same edge is missing at several lines: they share one of the two."""
    kept: list[Hazard] = []
    for hazard in hazards:
        for number, other in enumerate(kept):
            same = (hazard.edge, hazard.missing) == (other.edge, other.missing)
            if same and any(_share_a_line(hazard, one) for one in (other, *other.also)):
                kept[number] = replace(other, also=(*other.also, hazard))
                break
        else:
            kept.append(hazard)
    return kept


def _share_a_line(one: Hazard, other: Hazard) -> bool:
    return one.first.where == other.first.where or one.second.where == other.second.where


def _importance(hazard: Hazard) -> tuple[Any, ...]:
    edges = {"ready": 0, "reuse": 1, "other": 2}
    return (
        edges[hazard.edge],
        hazard.missing == "proxy",
        hazard.first.line is None or hazard.second.line is None,
        hazard.second.line or 0,
        hazard.first.line or 0,
    )


def _copies(kernel: Kernel, problem: Problem, block: int) -> tuple[Any, dict[str, int]]:
    """The log of one block's copies and the arrays' addresses; (None, {}) where it cannot run."""
    from course_lib.virtual_gpu.flow import Unsupported

    shaped = shaped_for(kernel, problem)
    try:
        result, _ = launch_virtual(
            shaped, problem, timed=True, landing="late", blocks=[block], trace=True, resident=1
        )
    except Unsupported:
        return None, {}
    return result.landings, result.array_addresses
