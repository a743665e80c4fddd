"""What a worker keeps between launches of one kernel: the records of a core and their memory.

Allocating and filling these takes longer than a small launch, so they are kept by kernel and shape.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from course_lib.ptx.parse import Module
from course_lib.virtual_gpu import printing, runtime, shadow
from course_lib.virtual_gpu.abi import (
    ACCESS_LOG,
    B_ACCESSES,
    B_COUNTERS,
    B_LOCAL,
    B_LOCAL_BYTES,
    B_NCTAID_X,
    B_NTID_X,
    B_PARAMETERS,
    B_SHARED,
    B_SHARED_BYTES,
    B_SHARED_LATENCY,
    B_SLOTS,
    B_SM_COUNT,
    B_STALLS,
    B_TABLE,
    B_TABLE_COUNT,
    B_VALID,
    C_COUNT,
    CHECK_GLOBAL,
    CHECK_SHARED,
    RUNTIME_FUNCTIONS,
    T_LANE,
    T_THREAD,
    T_TID_X,
    T_TID_Y,
    T_TID_Z,
    T_WARP,
    WINDOW_GLOBALS,
    WINDOW_LOCAL,
    WINDOW_PARAMETERS,
    WINDOW_SHARED,
    WINDOW_USER,
)
from course_lib.virtual_gpu.global_races import Layout
from course_lib.virtual_gpu.jit import CompiledKernel, build, register
from course_lib.virtual_gpu.machine import Machine
from course_lib.virtual_gpu.memory import AddressSpace, aligned_bytes
from course_lib.virtual_gpu.records import (
    ACC_SLOTS,
    ACCESS_SCRATCH_SLOTS,
    B_BARRIERS,
    B_BULK_CAPACITY,
    B_BULKS,
    B_COPIES,
    B_COPY_CAPACITY,
    B_CORE,
    B_MBARRIER_CAPACITY,
    B_MBARRIER_INDEX,
    B_MBARRIERS,
    B_STEP,
    B_THREAD_BYTES,
    B_THREAD_COUNT,
    B_THREADS,
    B_WARP_COUNT,
    B_WARPGROUPS,
    B_WARPS,
    BAR_SLOTS,
    BARRIER_COUNT,
    BUCKET_CYCLES,
    BULK_SLOTS,
    CP_SLOTS,
    FLIGHT,
    G_CLOCKS,
    G_ENDS,
    G_HELD,
    G_PENDING,
    G_SLOTS,
    G_TILES,
    G_VALUES,
    GROUP_RING,
    K_ACCESS_SCRATCH,
    K_ACCESSES,
    K_ACCUMULATORS,
    K_ACCUMULATORS_CAPACITY,
    K_BARRIER_CYCLES,
    K_BARRIER_WARP_CYCLES,
    K_BLOCK_BYTES,
    K_BLOCKS,
    K_BURST_CYCLES,
    K_COLLECTIVE_CYCLES,
    K_COPY_ISSUE_CYCLES,
    K_COPY_LATENCY,
    K_CROWD_DELAY,
    K_EXHAUSTED,
    K_ISSUE_QUEUES,
    K_L1_LATENCY,
    K_L2_LATENCY,
    K_LATENCY,
    K_LINES,
    K_MATRIX_SCRATCH,
    K_MBARRIER_CYCLES,
    K_MEMORY_QUEUE,
    K_NOTES,
    K_NOTES_CAPACITY,
    K_RACE_COUNT,
    K_RESIDENT,
    K_SECTORS,
    K_SEEN,
    K_SHARE_QUEUE,
    K_SHARED_QUEUE,
    K_SHUFFLE_CYCLES,
    K_SLOTS,
    K_STOP,
    K_TENSOR_FMA,
    K_TIMED,
    K_WGMMA_LATENCY,
    K_WINDOW_CAPACITY,
    LINES,
    LOG_SLOTS,
    M_SLOTS,
    MAX_BULKS,
    MAX_MBARRIERS,
    NOTE_SLOTS,
    PEND_SLOTS,
    PENDING,
    Q_CAPACITY,
    Q_SKIP,
    Q_SLOTS,
    Q_TAGS,
    Q_USED,
    QUEUE_BYTES,
    RING_BUCKETS,
    S_SLOTS,
    SCRATCH_FLOATS,
    SECTORS,
    TILE_SLOTS,
    W_SLOTS,
    WINDOW_BITS,
)

COPIES_PER_THREAD = 256
"""Room for copies in flight, on average over the block's threads."""
LOG_CAPACITY = 1 << 18
"""Copies that a traced launch remembers per worker."""
KEPT_PLANS = 12


def address_of(array: np.ndarray) -> int:
    """Host address of an array's first byte."""
    return int(array.ctypes.data)


@dataclass(frozen=True)
class Shape:
    """What a worker's memory depends on."""

    block: tuple[int, int, int]
    dynamic_shared: int
    resident: int
    timed: bool
    machine: Machine
    checked: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Warps of a block, the last perhaps incomplete."""
        return -(-self.threads // 32)


@dataclass(eq=False)
class BlockState:
    """One resident block: its record, and what the record points to."""

    record: np.ndarray
    threads: np.ndarray
    warps: np.ndarray
    barriers: np.ndarray
    shared: np.ndarray
    valid: np.ndarray
    local: np.ndarray
    copies: np.ndarray
    table: np.ndarray
    mbarriers: np.ndarray
    mbarrier_index: np.ndarray
    bulks: np.ndarray

    def point_to(self, space: AddressSpace, global_data: np.ndarray, global_bytes: int) -> None:
        """Fill the window table for a launch."""
        entries = space.table_entries()
        if len(self.table) < 2 * (WINDOW_USER + len(entries)):
            self.table = np.zeros(2 * (WINDOW_USER + len(entries)), np.int64)
        table = self.table
        table[:] = 0
        for window, base, size in (
            (WINDOW_SHARED, self.record[B_SHARED], self.record[B_SHARED_BYTES]),
            (WINDOW_LOCAL, 0, self.record[B_LOCAL_BYTES]),
            (WINDOW_PARAMETERS, address_of(space.parameters), len(space.parameters) - 16),
            (WINDOW_GLOBALS, address_of(global_data), global_bytes),
            *((WINDOW_USER + k, base, size) for k, (base, size) in enumerate(entries)),
        ):
            table[2 * window : 2 * window + 2] = base, size
        self.record[B_PARAMETERS] = address_of(space.parameters)
        self.record[B_TABLE] = address_of(table)
        self.record[B_TABLE_COUNT] = WINDOW_USER + len(entries)


class Worker:
    """A core record with its resident blocks, queues, tags, notes and counters."""

    def __init__(self, compiled: CompiledKernel, shape: Shape, sites: int) -> None:
        self.compiled, self.shape = compiled, shape
        self.core = np.zeros(K_SLOTS, np.int64)
        self.queue = np.zeros(1, np.int64)
        self.seen = np.zeros(sites + 1, np.uint8)
        self.notes = np.zeros((2 * sites + 2, NOTE_SLOTS), np.int64)
        self.counters = np.zeros(C_COUNT, np.int64)
        self.stalls = np.zeros(sites + 1, np.int64)
        self.landings = np.zeros((0, LOG_SLOTS), np.int64)
        self.printed = printing.Printed()
        self.slots = compiled.thread_slots(shape.timed, shape.checked)
        self.records = np.zeros((shape.resident, B_SLOTS), np.int64)
        self._keep: list[np.ndarray] = []
        self._cells: list[np.ndarray] = []
        self.scratch = np.zeros(SCRATCH_FLOATS, np.float32)
        self.accumulators = np.zeros((2 * sites + 2, ACC_SLOTS), np.int64)
        self.blocks = [self._block(k) for k in range(shape.resident)]
        self.stop = np.zeros(1, np.int64)
        self._fill_core()
        if shape.timed:
            self._fill_clock()
        if shape.checked:
            shadow.prepare_core(self.core, compiled.flat, shape.checked)
            weakref.finalize(self, shadow.free_tables, self.core, self.records)

    @property
    def address(self) -> int:
        """Host address of the core record."""
        return address_of(self.core)

    def _block(self, index: int) -> BlockState:
        shape, compiled = self.shape, self.compiled
        shared_bytes = shared_size(compiled, shape.dynamic_shared)
        uses_mbarriers = compiled.uses("mbarrier.init")
        state = BlockState(
            record=self.records[index],
            threads=_thread_records(shape, self.slots),
            warps=np.zeros((shape.warps, W_SLOTS), np.int64),
            barriers=np.zeros((BARRIER_COUNT, BAR_SLOTS), np.int64),
            shared=aligned_bytes(shared_bytes),
            valid=aligned_bytes(shared_bytes),
            local=aligned_bytes(shape.threads * compiled.local_bytes),
            copies=np.empty((shape.threads * COPIES_PER_THREAD, CP_SLOTS), np.int64),
            table=np.zeros(2 * (WINDOW_USER + 8), np.int64),
            mbarriers=np.zeros((MAX_MBARRIERS if uses_mbarriers else 0, M_SLOTS), np.int64),
            mbarrier_index=np.zeros(shared_bytes // 8 if uses_mbarriers else 0, np.int64),
            bulks=np.zeros((MAX_BULKS, BULK_SLOTS), np.int64),
        )
        for slot, value in (
            (B_SHARED, address_of(state.shared)),
            (B_SHARED_BYTES, shared_bytes),
            (B_VALID, address_of(state.valid)),
            (B_LOCAL, address_of(state.local)),
            (B_LOCAL_BYTES, compiled.local_bytes),
            (B_STALLS, address_of(self.stalls)),
            (B_COUNTERS, address_of(self.counters)),
            (B_SHARED_LATENCY, shape.machine.shared_latency),
            (B_SM_COUNT, shape.machine.sms),
            (B_CORE, self.address),
            (B_STEP, compiled.address(shape.timed, shape.checked)),
            (B_THREADS, address_of(state.threads)),
            (B_THREAD_BYTES, self.slots * 8),
            (B_THREAD_COUNT, shape.threads),
            (B_WARPS, address_of(state.warps)),
            (B_WARP_COUNT, shape.warps),
            (B_BARRIERS, address_of(state.barriers)),
            (B_COPIES, address_of(state.copies)),
            (B_COPY_CAPACITY, len(state.copies)),
            (B_MBARRIERS, address_of(state.mbarriers)),
            (B_MBARRIER_CAPACITY, len(state.mbarriers)),
            (B_MBARRIER_INDEX, address_of(state.mbarrier_index) if uses_mbarriers else 0),
            (B_BULKS, address_of(state.bulks)),
            (B_BULK_CAPACITY, len(state.bulks)),
        ):
            state.record[slot] = value
        state.record[B_NTID_X : B_NTID_X + 3] = shape.block
        if shape.checked == CHECK_SHARED:
            shift = shadow.cell_shift(compiled.flat)
            self._keep += shadow.prepare_block(state.record, shared_bytes, shift)
        if compiled.has_wgmma and shape.threads >= 128:
            state.record[B_WARPGROUPS] = self._warpgroups(shape.threads // 128)
        return state

    def _warpgroups(self, count: int) -> int:
        """Address of the records of a block's warpgroups, with what they point to."""
        records = np.zeros((count, G_SLOTS), np.int64)
        memory = (
            (G_VALUES, np.empty((count, FLIGHT * 128), np.float32)),
            (G_TILES, np.zeros((count, FLIGHT * TILE_SLOTS), np.int64)),
            (G_PENDING, np.zeros((count, PENDING * PEND_SLOTS), np.int64)),
            (G_ENDS, np.zeros((count, GROUP_RING), np.int64)),
            (G_CLOCKS, np.zeros((count, GROUP_RING), np.int64)),
            (G_HELD, np.empty((count, PENDING * 64 * 16), np.float32)),
        )
        for slot, array in memory:
            for k in range(count):
                records[k, slot] = address_of(array[k])
            self._keep.append(array)
        self._keep.append(records)
        return address_of(records)

    def _fill_core(self) -> None:
        machine = self.shape.machine
        for slot, value in (
            (K_BLOCKS, address_of(self.records)),
            (K_BLOCK_BYTES, B_SLOTS * 8),
            (K_RESIDENT, self.shape.resident),
            (K_TIMED, int(self.shape.timed)),
            (K_STOP, address_of(self.stop)),
            (K_SEEN, address_of(self.seen)),
            (K_NOTES, address_of(self.notes)),
            (K_NOTES_CAPACITY, len(self.notes)),
            (K_MATRIX_SCRATCH, address_of(self.scratch)),
            (K_TENSOR_FMA, machine.tensor_fma_per_cycle),
            (K_ACCUMULATORS, address_of(self.accumulators)),
            (K_ACCUMULATORS_CAPACITY, len(self.accumulators)),
            (K_LATENCY, machine.global_latency),
            (K_L2_LATENCY, machine.l2_latency),
            (K_L1_LATENCY, machine.l1_latency),
            (K_BARRIER_CYCLES, machine.barrier_base_cycles),
            (K_BARRIER_WARP_CYCLES, machine.barrier_warp_cycles),
            (K_COPY_LATENCY, machine.copy_latency - machine.global_latency),
            (K_BURST_CYCLES, machine.burst_cycles),
            (K_CROWD_DELAY, machine.crowd_delay),
            (K_WINDOW_CAPACITY, round(machine.bytes_per_cycle * (1 << WINDOW_BITS))),
            (K_COLLECTIVE_CYCLES, machine.collective_cycles),
            (K_SHUFFLE_CYCLES, machine.shuffle_cycles),
            (K_MBARRIER_CYCLES, machine.mbarrier_cycles),
            (K_WGMMA_LATENCY, machine.wgmma_latency),
            (K_COPY_ISSUE_CYCLES, machine.copy_issue_cycles),
        ):
            self.core[slot] = value

    def _fill_clock(self) -> None:
        """Seven queues (`capacities` says of what), the caches' tags, access notes."""
        machine = self.shape.machine
        rates = (machine.burst_bytes_per_cycle, machine.bytes_per_cycle)
        capacities = [round(rate * 256 * BUCKET_CYCLES) for rate in rates]  # memory, its share
        capacities += [BUCKET_CYCLES] * 5  # four schedulers, shared memory
        queues = np.zeros((len(capacities), Q_SLOTS), np.int64)
        rings = np.zeros((len(capacities), 3, RING_BUCKETS), np.int64)
        for queue, ring, capacity in zip(queues, rings, capacities, strict=True):
            queue[Q_CAPACITY] = capacity
            queue[Q_TAGS], queue[Q_USED], queue[Q_SKIP] = (address_of(part) for part in ring)
        sectors = np.zeros((SECTORS, S_SLOTS), np.int64)
        lines = np.zeros(LINES, np.int64)
        self.core[K_MEMORY_QUEUE] = address_of(queues)
        self.core[K_SHARE_QUEUE] = address_of(queues) + QUEUE_BYTES
        self.core[K_ISSUE_QUEUES] = address_of(queues) + 2 * QUEUE_BYTES
        self.core[K_SHARED_QUEUE] = address_of(queues) + 6 * QUEUE_BYTES
        self.core[K_SECTORS] = address_of(sectors)
        self.core[K_LINES] = address_of(lines)
        accesses = np.zeros((32, ACCESS_LOG), np.int64)
        scratch = np.zeros(ACCESS_SCRATCH_SLOTS, np.int64)
        self.core[K_ACCESSES] = self.records[:, B_ACCESSES] = address_of(accesses)
        self.core[K_ACCESS_SCRATCH] = address_of(scratch)
        self._keep += [queues, rings, sectors, lines, accesses, scratch]

    def begin(self, grid: tuple[int, int, int], space: AddressSpace, globals_: np.ndarray) -> None:
        """Forget the launch before, and point every block at the arguments of this one."""
        self.seen[:] = 0
        self.core[K_RACE_COUNT] = self.core[K_EXHAUSTED] = 0
        self.counters[:] = 0
        self.stalls[:] = 0
        shadow.free_snapshots(self.core)
        self.printed = printing.Printed()
        printing.attach(self.address, self.printed)
        size = len(self.compiled.global_data)
        for state in self.blocks:
            state.record[B_NCTAID_X : B_NCTAID_X + 3] = grid
            state.point_to(space, globals_, size)

    def follow_global(self, layout: Layout) -> None:
        """Shadow cells for the arrays of one launch."""
        shift = shadow.cell_shift(self.compiled.flat, CHECK_GLOBAL)
        layout.prepare(self.core)
        self._cells = [
            array
            for record in self.records
            for array in shadow.prepare_block(record, layout.bytes, shift)
        ]


def _thread_records(shape: Shape, slots: int) -> np.ndarray:
    """Thread records with what never changes: indices, lane and warp."""
    records = np.zeros((shape.threads, slots), np.int64)
    thread = np.arange(shape.threads)
    width, height, _ = shape.block
    records[:, T_THREAD] = thread
    records[:, T_TID_X] = thread % width
    records[:, T_TID_Y] = thread // width % height
    records[:, T_TID_Z] = thread // (width * height)
    records[:, T_LANE] = thread % 32
    records[:, T_WARP] = thread // 32
    return records


def shared_size(compiled: CompiledKernel, dynamic: int) -> int:
    """Bytes of shared memory per block: static, then dynamic."""
    return compiled.dynamic_offset + dynamic if dynamic else compiled.static_shared


@dataclass(eq=False)
class Plan:
    """One kernel in one shape, with the workers that are free."""

    compiled: CompiledKernel
    shape: Shape
    sites: int
    free: list[Worker] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> Worker:
        """A worker for this thread alone."""
        with self.lock:
            if self.free:
                return self.free.pop()
        return Worker(self.compiled, self.shape, self.sites)

    def give_back(self, worker: Worker) -> None:
        """The worker can serve another launch."""
        printing.detach(worker.address)
        with self.lock:
            self.free.append(worker)


_plans: OrderedDict[tuple[object, ...], Plan] = OrderedDict()
_compiled: OrderedDict[tuple[int, str], tuple[Module, CompiledKernel]] = OrderedDict()
_lock = threading.Lock()
_registered = False


def compiled_kernel(module: Module, name: str, timed: bool, checked: int = 0) -> CompiledKernel:
    """The kernel as machine code; translated and compiled the first time. Raises Unsupported."""
    global _registered
    with _lock:
        if not _registered:
            for function, address in runtime.load().addresses.items():
                if function in RUNTIME_FUNCTIONS:
                    register(function, address)
            register("rt_printf", printing.ADDRESS)
            _registered = True
        key = (id(module), name)
        if key not in _compiled:
            _compiled[key] = (module, build(module, name, timed, checked))
            while len(_compiled) > 2 * KEPT_PLANS:
                _compiled.popitem(last=False)
        _compiled.move_to_end(key)
        return _compiled[key][1]


def plan_for(compiled: CompiledKernel, shape: Shape) -> Plan:
    """The plan of a kernel in a shape, kept from the launch before."""
    key = (id(compiled), shape)
    with _lock:
        if key not in _plans:
            _plans[key] = Plan(compiled, shape, len(compiled.module.sites))
            while len(_plans) > KEPT_PLANS:
                _plans.popitem(last=False)
        _plans.move_to_end(key)
        return _plans[key]
