"""The vector clocks of a checked block against a model that knows no shortcuts.

The block keeps a base that everybody knows, remembers what a thread has changed since, and joins no
more than that. The model keeps a whole dictionary for each thread and joins everything, always.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numba import njit

from course_lib.virtual_gpu import abi, records
from course_lib.virtual_gpu import vector_clocks as clocks
from course_lib.virtual_gpu.shadow import COLUMN_COPY, COLUMN_MBARRIER

SLOTS = 1024  # 64-bit words of each record: more than any has
THREADS = 70  # two whole warps and six lanes of a third
WARPS = 3
OPERATIONS = (
    "begin", "new vector", "new column", "release", "acquire", "complete", "fence", "arrive",
    "renew", "join lanes", "reached", "reached by fence", "kind", "owner",
)  # fmt: skip


@cache
def operate() -> Callable[..., int]:
    """One compiled function for all operations, by their number in OPERATIONS."""
    begin_clocks, add_vector, add_column = clocks.begin_clocks, clocks.add_vector, clocks.add_column
    release_clock, acquire_clock = clocks.release_clock, clocks.acquire_clock
    complete_column, fence_proxies = clocks.complete_column, clocks.fence_proxies
    join_into_base, renew_warp_base = clocks.join_into_base, clocks.renew_warp_base
    join_lanes, reached, reached_by_fence = (
        clocks.join_lanes, clocks.reached, clocks.reached_by_fence,
    )  # fmt: skip
    kind_of_column, owner_of_column = clocks.kind_of_column, clocks.owner_of_column

    @njit  # type: ignore[untyped-decorator]
    def run(code: int, block: int, thread: int, first: int, second: int) -> int:
        if code == 0:
            begin_clocks(block)
        elif code == 1:
            return add_vector(block)
        elif code == 2:
            return add_column(block, first, second)
        elif code == 3:
            release_clock(block, thread, first)
        elif code == 4:
            acquire_clock(block, thread, first)
        elif code == 5:
            complete_column(block, thread, first, second)
        elif code == 6:
            fence_proxies(block, thread)
        elif code == 7:
            join_into_base(block, thread)
        elif code == 8:
            renew_warp_base(block)
        elif code == 9:
            join_lanes(block, thread, first, second)
        elif code == 10:
            return 1 if reached(block, thread, first, second) else 0
        elif code == 11:
            return 1 if reached_by_fence(block, thread, first, second) else 0
        elif code == 12:
            return kind_of_column(block, first)
        elif code == 13:
            return owner_of_column(block, first)
        return 0

    return run  # type: ignore[no-any-return]


class Block:
    """Records of one block, and the operations on them."""

    def __init__(self, proxies: bool) -> None:
        self.core, self.block = np.zeros(SLOTS, np.int64), np.zeros(SLOTS, np.int64)
        self.threads = np.zeros((THREADS, SLOTS), np.int64)
        self.threads[:, abi.T_THREAD] = np.arange(THREADS)
        self.warp_base = np.zeros(WARPS, np.uint32)
        self.core[records.K_PROXIES], self.core[records.K_CHECK] = proxies, 1
        self.core[records.K_PARTS] = 1 + proxies
        for slot, value in (
            (records.B_CORE, self.core.ctypes.data), (records.B_THREADS, self.threads.ctypes.data),
            (records.B_THREAD_BYTES, SLOTS * 8), (records.B_THREAD_COUNT, THREADS),
            (records.B_WARP_COUNT, WARPS), (records.B_WARP_BASE, self.warp_base.ctypes.data),
        ):  # fmt: skip
            self.block[slot] = value
        self.do("begin")

    def do(self, what: str, thread: int = 0, first: int = 0, second: int = 0) -> int:
        address = self.threads[thread].ctypes.data
        code = OPERATIONS.index(what)
        return operate()(code, self.block.ctypes.data, address, first, second)


class Model:
    """What each thread knows, in whole: plain and through a fence."""

    def __init__(self) -> None:
        self.epoch = [1] * THREADS
        self.known: list[tuple[Counter[int], Counter[int]]] = [
            (Counter(), Counter()) for _ in range(THREADS)
        ]
        self.vectors: dict[int, tuple[Counter[int], Counter[int]]] = {}

    def next_epoch(self, thread: int) -> int:
        self.epoch[thread] += 1
        return self.epoch[thread] - 1

    def join(self, target: Any, source: Any) -> None:
        for half in range(2):
            target[half].update({k: 0 for k in source[half]})
            for column, value in source[half].items():
                target[half][column] = max(target[half][column], value)

    def together(self, members: list[int]) -> None:
        """A barrier of these threads."""
        everything: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        for thread in members:
            self.join(everything, self.known[thread])
        for thread in members:
            everything[0][thread] = self.next_epoch(thread)
        for thread in members:
            self.join(self.known[thread], everything)


class Pair:
    """A block and its model, which do the same."""

    def __init__(self, seed: int, proxies: bool) -> None:
        self.random, self.proxies = random.Random(seed), proxies
        self.block, self.model = Block(proxies), Model()
        self.columns: list[int] = []
        self.values: Counter[int] = Counter()

    def step(self) -> None:
        """One operation of a random thread."""
        kinds = ["release"] * 3 + ["acquire"] * 4 + ["complete"] * 3 + ["warp"] * 4
        kinds += ["block", "vector", "column"] + ["fence"] * (2 * self.proxies)
        getattr(self, "do_" + self.random.choice(kinds))(self.random.randrange(THREADS))

    def do_vector(self, thread: int) -> None:
        self.model.vectors[self.block.do("new vector")] = (Counter(), Counter())

    def do_column(self, thread: int) -> None:
        kind = self.random.choice((COLUMN_COPY, COLUMN_MBARRIER))
        column = self.block.do("new column", 0, kind, thread)
        assert column not in self.columns and column >= THREADS
        self.columns.append(column)
        if kind == COLUMN_COPY and self.block.threads[thread, records.T_COPY_COLUMN] == 0:
            self.block.threads[thread, records.T_COPY_COLUMN] = column
        assert self.block.do("kind", 0, column) == kind
        assert self.block.do("owner", 0, column) == thread

    def do_release(self, thread: int) -> None:
        if self.model.vectors:
            vector = self.random.choice(list(self.model.vectors))
            self.block.do("release", thread, vector)
            self.model.join(self.model.vectors[vector], self.model.known[thread])
            self.model.vectors[vector][0][thread] = self.model.next_epoch(thread)

    def do_acquire(self, thread: int) -> None:
        if self.model.vectors:
            vector = self.random.choice(list(self.model.vectors))
            self.block.do("acquire", thread, vector)
            self.model.join(self.model.known[thread], self.model.vectors[vector])

    def do_complete(self, thread: int) -> None:
        if self.columns:
            own = int(self.block.threads[thread, records.T_COPY_COLUMN])
            column = own if own and self.random.random() < 0.5 else self.random.choice(self.columns)
            self.values[column] += 1
            value = self.random.randint(1, self.values[column])
            self.block.do("complete", thread, column, value)
            known = self.model.known[thread][0]
            known[column] = max(known[column], value)

    def do_fence(self, thread: int) -> None:
        self.block.do("fence", thread)
        plain, fenced = known = self.model.known[thread]
        self.model.join(known, (Counter(), plain))
        fenced[thread] = self.model.next_epoch(thread)

    def do_warp(self, thread: int) -> None:
        first = thread // 32 * 32
        lanes = [k for k in range(first, min(first + 32, THREADS)) if self.random.random() < 0.7]
        mask = sum(1 << (lane - first) for lane in lanes)
        self.block.do("join lanes", first, SLOTS * 8, mask)
        self.model.together(lanes)

    def do_block(self, thread: int) -> None:
        for each in range(THREADS):
            self.block.do("arrive", each)
        self.block.do("renew")
        self.model.together(list(range(THREADS)))
        for warp, base in enumerate(self.block.warp_base):
            lanes = range(32 * warp, min(32 * warp + 32, THREADS))
            assert base == min(self.model.epoch[lane] - 1 for lane in lanes)

    def compare(self) -> None:
        """Some threads' knowledge of every column is exactly the model's."""
        for thread in self.random.sample(range(THREADS), 4):
            assert self.block.threads[thread, records.T_EPOCH] == self.model.epoch[thread]
            for half, word in enumerate(("reached", "reached by fence")[: 1 + self.proxies]):
                for column in [*range(THREADS), *self.columns]:
                    value = self.model.known[thread][half][column]
                    assert self.block.do(word, thread, column, value), (word, thread, column)
                    assert not self.block.do(word, thread, column, value + 1), (
                        word,
                        thread,
                        column,
                    )


@pytest.mark.parametrize("proxies", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_operations_orders_what_the_model_orders(seed: int, proxies: bool) -> None:
    pair = Pair(seed, proxies)
    for _ in range(40):
        for _ in range(5):
            pair.step()
        pair.compare()


@pytest.mark.parametrize("proxies", [False, True])
def test_rows_and_columns_grow_and_keep_what_they_hold(proxies: bool) -> None:
    pair = Pair(9, proxies)
    pair.do_vector(0)
    pair.do_column(5)
    for step in range(300):
        pair.do_vector(step % THREADS)
        pair.do_column(step % THREADS)
        for action in (pair.do_complete, pair.do_release, pair.do_acquire):
            action((7 * step) % THREADS)
    pair.compare()
    assert len(set(pair.columns)) == 301 and len(pair.model.vectors) == 301
