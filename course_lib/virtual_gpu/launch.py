"""Launching a kernel on the virtual GPU.

An untimed launch deals the blocks out to the machine's cores, one resident block for each. A timed
launch simulates SM after SM, each with all its resident blocks on one virtual clock: block `b` of
the grid runs on SM `b % sms`. The kernel's arrays are NumPy arrays, written in place.
"""

from __future__ import annotations

import numbers
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.gpu_limits import KB, STATIC_SHARED_LIMIT, limits_of
from course_lib.virtual_gpu import printing, report, runtime, shadow
from course_lib.virtual_gpu.abi import (
    B_SM,
    C_COPY_BYTES,
    C_FLOPS,
    C_GLOBAL_LOAD_BYTES,
    C_GLOBAL_STORE_BYTES,
    C_INSTRUCTIONS,
    C_INTEGER_OPS,
    C_SHARED_LOAD_BYTES,
    C_SHARED_STORE_BYTES,
    CHECK_GLOBAL,
)
from course_lib.virtual_gpu.accumulators import collect_accumulators
from course_lib.virtual_gpu.global_races import GlobalRace, Layout, between_blocks, within_blocks
from course_lib.virtual_gpu.machine import H200, Machine
from course_lib.virtual_gpu.memory import AddressSpace, ArgumentError, Slot
from course_lib.virtual_gpu.races import RawRace
from course_lib.virtual_gpu.records import (
    BUDGET,
    DONE,
    EXHAUSTED,
    K_ACCUMULATORS_COUNT,
    K_COMPULSORY,
    K_CYCLES,
    K_FORCED_LANDINGS,
    K_FUEL,
    K_LANDING,
    K_LANDINGS,
    K_LANDINGS_CAPACITY,
    K_LANDINGS_COUNT,
    K_NOTES_COUNT,
    K_ORDER,
    K_QUEUE,
    K_QUEUE_LENGTH,
    K_RANDOM,
    K_STEP_BUDGET,
    K_TURNS,
    K_VICTIM,
    LANDINGS,
    LOG_SLOTS,
    ORDERS,
    STOPPED,
)
from course_lib.virtual_gpu.session import (
    LOG_CAPACITY,
    Plan,
    Shape,
    Worker,
    address_of,
    compiled_kernel,
    plan_for,
    shared_size,
)
from course_lib.virtual_gpu.signature import declared_parameters, unnamed

if TYPE_CHECKING:
    from course_lib.kernel import Kernel
    from course_lib.ptx.parse import Module

JOB_SECONDS = 20.0
"""Seconds that one core may spend on one SM, or on a 64th of the grid. The step budget counts turns
of loops and not what a turn costs; an endless loop that prints or loads would run for minutes."""

RUN_IN_ANY_CASE = 8
"""Jobs of a checked launch that are run even after another's error: were they left out or not by
which core was faster, the same launch would show other races the next time."""

MOST_BLOCKS = 10_000_000
"""Blocks of a grid that is run whole."""

STEP_BUDGET = 1_000_000_000
"""Steps that a block may take: loop iterations of its threads, and 10 for every yield. A second or
two of simulation."""

FUEL = 20_000
"""Loop iterations after which a thread lets others run."""

SHADOW_BYTES = 1 << 29
"""Memory for the shadows of global memory, one for each block that runs at the same time."""

MOST_SIDE_BY_SIDE = 64
"""Blocks that run at the same time where global memory is checked."""

LANDING_TYPE = np.dtype(
    [(name, np.int64) for name in
     ("block", "warp", "shared_offset", "address", "site", "issued", "landed")]
)  # fmt: skip

_COUNTERS = {
    "instructions": (C_INSTRUCTIONS, 32),
    "global_load_bytes": (C_GLOBAL_LOAD_BYTES, 1),
    "global_store_bytes": (C_GLOBAL_STORE_BYTES, 1),
    "shared_load_bytes": (C_SHARED_LOAD_BYTES, 1),
    "shared_store_bytes": (C_SHARED_STORE_BYTES, 1),
    "copy_bytes": (C_COPY_BYTES, 1),
    "flops": (C_FLOPS, 1),
    "integer_ops": (C_INTEGER_OPS, 1),
}
"""Name: index, and how many lanes make one of what is counted."""


class LaunchError(ValueError):
    """The launch cannot be made; the message says what does not fit."""


@dataclass
class LaunchResult:
    """What a launch did. `stalls` maps site to cycles that warps waited there (timed)."""

    ok: bool
    errors: list[report.RunError] = field(default_factory=list)
    warnings: list[report.Note] = field(default_factory=list)
    printed: str = ""
    cycles: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    stalls: dict[int, float] = field(default_factory=dict)
    landings: np.ndarray = field(default_factory=lambda: np.zeros(0, LANDING_TYPE))
    array_addresses: dict[str, int] = field(default_factory=dict)
    races: list[RawRace] = field(default_factory=list)
    global_races: list[GlobalRace] = field(default_factory=list)
    resident: int = 1
    seconds: float = 0.0

    def __repr__(self) -> str:
        if self.errors:
            return "\n\n".join(error.message for error in self.errors)
        time_text = f"{self.cycles:,} virtual cycles, " if self.cycles else ""
        lines = [f"finished: {time_text}{self.seconds * 1e3:.1f} ms to simulate"]
        return "\n\n".join([*lines, *(note.message for note in self.warnings)])


@dataclass(frozen=True)
class Policy:
    """How a run chooses where CUDA leaves a choice."""

    order: str
    landing: str
    victim: int
    seed: int
    step_budget: int
    trace: bool


def launch(
    kernel: Kernel,
    grid: int | Sequence[int],
    arrays: Sequence[Any],
    *,
    order: str = "round_robin",
    victim: int = 0,
    landing: str = "early",
    seed: int = 0,
    step_budget: int = STEP_BUDGET,
    blocks: Iterable[int] | None = None,
    workers: int | None = None,
    trace: bool = False,
    machine: Machine | None = None,
    module: Module | None = None,
    threads: int | Sequence[int] | None = None,
    timed: bool | None = None,
    resident: int | None = None,
    check: bool = False,
    check_global: bool = False,
    progress: Callable[[float], None] | None = None,
) -> LaunchResult:
    """Run a kernel and return what happened; arrays are written in place.

    `arrays` are the kernel's arguments in order: NumPy arrays, numbers, or bytes for structures.
    `order` chooses the next warp (`victim` is the warp of `one_last` and `one_first`), `landing`
    when asynchronous copies land. `blocks` runs only these linear block indices. `module` is other
    PTX of the same kernel. `trace` logs the copies of every warp's lane 0 into `.landings`.
    `check` follows every access to shared memory: pairs that nothing orders are in `.races`.
    `check_global` follows the arrays in place of shared memory, and the blocks run side by side on
    one core; what nothing orders is in `.global_races`.
    `progress` is called now and then with the share of the work that is done. Ctrl-C stops a run.

    Raises ArgumentError or LaunchError where arguments or shape do not fit, and
    `flow.Unsupported` for an instruction that the virtual GPU does not have.
    """
    start = time.perf_counter()
    policy = Policy(
        _known("order", order, ORDERS), _known("landing", landing, LANDINGS),
        victim, seed, step_budget, trace,
    )  # fmt: skip
    timed = order == "timed" if timed is None else timed
    machine = machine or H200
    checks = CHECK_GLOBAL if check_global else int(check)
    compiled = compiled_kernel(
        kernel.module if module is None else module, kernel.name, timed, checks
    )
    grid3 = _three("grid", grid)
    block3 = _three("block", kernel.threads if threads is None else threads)
    dynamic = kernel.shared_bytes
    _check_shape(kernel, grid3, block3, dynamic, shared_size(compiled, dynamic))
    space = AddressSpace(_slots(kernel, compiled.parameters), arrays, compiled.parameter_bytes)
    if resident is None:
        resident = _resident(kernel, block3) if timed else 1
    jobs = _jobs(grid3, blocks, timed, machine, workers)
    layout = None
    if check_global:
        jobs = [_Job(0, np.concatenate([job.blocks for job in jobs]))]
        layout = Layout(space, len(compiled.global_data))
        resident = _side_by_side(layout, shadow.cell_shift(compiled.flat, checks))
    resident = max(1, min(resident, max((len(job.blocks) for job in jobs), default=1)))
    plan = plan_for(compiled, Shape(block3, dynamic, resident, timed, machine, checks))
    run = _Run(kernel, plan, policy, grid3, space, jobs, progress, layout)
    run.run(_worker_count(workers, len(jobs)))
    result = run.result()
    space.write_back()
    result.seconds = time.perf_counter() - start
    return result


# --- checks -----------------------------------------------------------------------------------


def _known(what: str, value: str, table: dict[str, int]) -> str:
    if value not in table:
        raise LaunchError(f"{what}={value!r} is unknown: choose from {', '.join(table)}.")
    return value


def _three(what: str, size: Any) -> tuple[int, int, int]:
    """(x, y, z) of a number or of up to three of them."""
    if size is None:
        raise LaunchError(
            "The kernel has no number of threads: write --threads 256 on its %%cuda line."
        )
    given = list(size) if isinstance(size, Iterable) else [size]
    whole = all(isinstance(n, numbers.Real) and float(n).is_integer() for n in given)
    sizes = [int(n) for n in given] if whole else []
    if not 1 <= len(sizes) <= 3 or any(n < 1 for n in sizes):
        raise LaunchError(f"The {what} {size} must be one to three whole numbers of at least 1.")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _check_shape(
    kernel: Kernel,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic: int,
    shared: int,
) -> None:
    """Limits of the architecture (CUDA C++ Programming Guide, Compute Capabilities), in words."""
    limits = limits_of(kernel.arch)
    threads = block[0] * block[1] * block[2]
    if threads > limits.threads_per_block or block[2] > 64:
        raise LaunchError(
            f"A block of {threads} threads is too large: a block has at most "
            f"{limits.threads_per_block} threads (and 64 in z)."
        )
    if grid[0] >= 1 << 31 or grid[1] > 65535 or grid[2] > 65535:
        raise LaunchError(f"The grid {grid} is too large: at most 2147483647 x 65535 x 65535.")
    if shared - dynamic > STATIC_SHARED_LIMIT and dynamic == 0:
        raise LaunchError(
            f"{shared} bytes of static shared memory: at most {STATIC_SHARED_LIMIT} may be static; "
            f"make the array `extern __shared__` and give its size with --shared."
        )
    if shared > limits.shared_per_block:
        raise LaunchError(
            f"The block asks for {shared} bytes of shared memory, and {kernel.arch} gives a block "
            f"at most {limits.shared_per_block} ({limits.shared_per_block // KB} KB): use fewer "
            f"stages or smaller tiles."
        )


def _slots(kernel: Kernel, parameters: Sequence[Any]) -> list[Slot]:
    extra = kernel.extra_parameters
    own = len(parameters) - extra
    declared = declared_parameters(kernel.source, kernel.name, own)
    declared += [unnamed(own + k) for k in range(extra)]
    return [
        Slot(text, p.offset, p.size, p.type) for text, p in zip(declared, parameters, strict=True)
    ]


def _resident(kernel: Kernel, block: tuple[int, int, int]) -> int:
    """Blocks per SM; 1 where no assembler can tell the registers."""
    from course_lib.ptxas import NoAssembler

    try:
        return max(1, kernel.blocks_per_sm(block[0] * block[1] * block[2]).blocks)
    except NoAssembler:
        return 1


# --- dealing out the work ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """Blocks that one core runs in one go: a chunk of the grid, or one SM's share (timed)."""

    sm: int
    blocks: np.ndarray


def _jobs(
    grid: tuple[int, int, int],
    blocks: Iterable[int] | None,
    timed: bool,
    machine: Machine,
    workers: int | None,
) -> list[_Job]:
    total = grid[0] * grid[1] * grid[2]
    if blocks is None and total > MOST_BLOCKS:
        raise LaunchError(
            f"A grid of {total:,} blocks would run for hours on the virtual GPU, which takes up to "
            f"{MOST_BLOCKS:,}: launch fewer, or name those to run with blocks=."
        )
    if blocks is None:
        chosen = np.arange(total, dtype=np.int64)
    else:
        chosen = np.array(sorted({int(b) for b in blocks}), np.int64)
        if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < total:
            raise LaunchError(f"blocks= must lie between 0 and {total - 1}.")
    if timed:
        on_sm = chosen % machine.sms
        return [_Job(int(sm), chosen[on_sm == sm]) for sm in np.unique(on_sm)]
    # Chunks do not depend on the number of workers, so neither do seeded choices.
    size = max(1, -(-len(chosen) // 64))
    return [_Job(0, chosen[at : at + size]) for at in range(0, len(chosen), size)]


def _side_by_side(layout: Layout, shift: int) -> int:
    """Blocks that may run at a time where each has a shadow of global memory."""
    shadow_bytes = (layout.bytes >> shift) * shadow.CELL_BYTES
    return max(1, min(MOST_SIDE_BY_SIDE, SHADOW_BYTES // max(1, shadow_bytes)))


def _worker_count(workers: int | None, jobs: int) -> int:
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return max(1, min(workers, jobs))


class _Run:
    """One launch: its jobs, its workers, and what they found."""

    def __init__(
        self,
        kernel: Kernel,
        plan: Plan,
        policy: Policy,
        grid: tuple[int, int, int],
        space: AddressSpace,
        jobs: list[_Job],
        progress: Callable[[float], None] | None,
        layout: Layout | None = None,
    ) -> None:
        self.layout = layout
        self.kernel, self.plan, self.policy, self.grid = kernel, plan, policy, grid
        self.space, self.jobs, self.progress = space, jobs, progress
        self.globals = np.frombuffer(plan.compiled.global_data + bytes(16), np.uint8).copy()
        self.next_job = 0
        self.errors: dict[int, report.RunError] = {}
        self.failures: list[BaseException] = []
        self.cycles = 0
        self.lock = threading.Lock()
        self.workers: list[Worker] = []
        self.begun: dict[Worker, float] = {}
        self.overdue: set[Worker] = set()
        self.found: LaunchResult | None = None

    def run(self, count: int) -> None:
        """Run every job on `count` threads; returns when all have ended."""
        runtime.load()
        self.workers = [self.plan.take() for _ in range(count)]
        try:
            for worker in self.workers:
                self._prepare(worker)
            self._run_threads()
            self.found = self._collect()
        finally:
            for worker in self.workers:
                self.plan.give_back(worker)
        if self.failures:
            raise self.failures[0]

    def result(self) -> LaunchResult:
        """What the run found."""
        assert self.found is not None
        return self.found

    def _prepare(self, worker: Worker) -> None:
        policy, core = self.policy, worker.core
        worker.begin(self.grid, self.space, self.globals)
        worker.stop[0] = 0
        if self.layout is not None:
            worker.follow_global(self.layout)
        if policy.trace and not len(worker.landings):
            worker.landings = np.empty((LOG_CAPACITY, LOG_SLOTS), np.int64)
        for slot, value in (
            (K_ORDER, ORDERS[policy.order]),
            (K_LANDING, LANDINGS[policy.landing]),
            (K_VICTIM, policy.victim),
            (K_STEP_BUDGET, policy.step_budget),
            (K_FUEL, max(1, min(FUEL, policy.step_budget))),
            (K_LANDINGS, address_of(worker.landings) if policy.trace else 0),
            (K_LANDINGS_CAPACITY, len(worker.landings)),
            (K_LANDINGS_COUNT, 0),
            (K_NOTES_COUNT, 0),
            (K_ACCUMULATORS_COUNT, 0),
            (K_FORCED_LANDINGS, 0),
            (K_TURNS, 0),
            (K_COMPULSORY, self._compulsory_bytes()),
        ):
            core[slot] = value

    def _compulsory_bytes(self) -> int:
        """One SM's part of all arrays: what it must fetch from HBM if every byte is fetched once.

        What it reads beyond that, some other SM has brought into L2.
        """
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        total = sum(size for _, size in self.space.table_entries())
        return -(-total // min(blocks, self.plan.shape.machine.sms))

    def _run_threads(self) -> None:
        threads = [
            threading.Thread(target=self._work, args=(worker,), daemon=True)
            for worker in self.workers
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.1)
                    self._stop_overdue()
                    if self.progress:
                        self.progress(min(1.0, self.next_job / max(1, len(self.jobs))))
        finally:  # Ctrl-C too: no thread may outlive the arrays that it writes to
            self.next_job = len(self.jobs)
            if any(thread.is_alive() for thread in threads):
                for worker in self.workers:
                    worker.stop[0] = 1
            for thread in threads:
                if thread.ident is not None:
                    thread.join()

    def _stop_overdue(self) -> None:
        """End jobs that have run for too long; they are reported as over their step budget."""
        now = time.monotonic()
        with self.lock:
            for worker, begun in self.begun.items():
                if now - begun > JOB_SECONDS:
                    self.overdue.add(worker)
                    worker.stop[0] = 1

    def _work(self, worker: Worker) -> None:
        """One thread: job after job, until none is left or one has failed."""
        try:
            while True:
                with self.lock:
                    number = self.next_job
                    failed = self.errors and not (
                        self.plan.shape.checked and number < RUN_IN_ANY_CASE
                    )
                    if number >= len(self.jobs) or failed:
                        return
                    self.next_job += 1
                self._run_job(worker, number)
        except BaseException as failure:
            self.failures.append(failure)

    def _run_job(self, worker: Worker, number: int) -> None:
        job = self.jobs[number]
        worker.queue = job.blocks
        worker.core[K_QUEUE] = address_of(job.blocks)
        worker.core[K_QUEUE_LENGTH] = len(job.blocks)
        worker.core[K_RANDOM] = _seeded(self.policy.seed, int(job.blocks[0]))
        worker.records[:, B_SM] = job.sm
        with self.lock:
            self.begun[worker] = time.monotonic()
        status = runtime.load().run_core(worker.address)
        with self.lock:
            del self.begun[worker]
            if worker in self.overdue:
                self.overdue.remove(worker)
                worker.stop[0] = 0
                status = BUDGET if status == STOPPED else status
        with self.lock:
            self.cycles = max(self.cycles, int(worker.core[K_CYCLES]))
            if status == EXHAUSTED:
                raise LaunchError(shadow.NO_MEMORY)
            if status not in (DONE, STOPPED):
                self.errors[number] = report.explain(self.kernel, worker, self.space, status)

    def _collect(self) -> LaunchResult:
        timed = self.plan.shape.timed
        result = LaunchResult(
            ok=not self.errors,
            # All jobs before the first that failed have run to their end: it does not depend on
            # which worker was faster, while later ones may or may not have failed too.
            errors=[self.errors[min(self.errors)]] if self.errors else [],
            warnings=report.notes(self.kernel, self.workers, self.plan.compiled.module),
            printed=printing.joined([worker.printed for worker in self.workers]),
            resident=self.plan.shape.resident,
            array_addresses=self.space.addresses(),
            races=[
                *shadow.collect_races([worker.core for worker in self.workers]),
                *collect_accumulators((w.core, w.accumulators) for w in self.workers),
            ],
        )
        if self.layout is not None:
            inside = within_blocks(result.races, self.layout)
            across = between_blocks(self.workers[0].core, self.layout)
            result.races, result.global_races = [], [*inside, *across]
        result.counters["turns"] = sum(int(worker.core[K_TURNS]) for worker in self.workers)
        if timed:
            result.cycles = self.cycles
            totals = np.sum([worker.counters for worker in self.workers], axis=0)
            for name, (index, lanes) in _COUNTERS.items():
                result.counters[name] = int(totals[index]) // lanes
            stalls = np.sum([worker.stalls for worker in self.workers], axis=0)
            result.stalls = {int(site): float(stalls[site]) / 32 for site in np.flatnonzero(stalls)}
        if self.policy.trace:
            result.landings = self._landings()
        return result

    def _landings(self) -> np.ndarray:
        parts = [
            worker.landings[: min(int(worker.core[K_LANDINGS_COUNT]), len(worker.landings))]
            for worker in self.workers
        ]
        log = np.ascontiguousarray(np.concatenate(parts)).view(LANDING_TYPE)[:, 0]
        return log[np.lexsort((log["issued"], log["warp"], log["block"]))]


def _seeded(seed: int, block: int) -> int:
    """A start for the generator, never 0 (splitmix64 of both numbers)."""
    value = (seed * 0x9E3779B97F4A7C15 + block * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % 2**64
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    value ^= value >> 27
    return (value & 0x7FFFFFFFFFFFFFFF) or 1


__all__ = ["ArgumentError", "LaunchError", "LaunchResult", "launch"]
