"""tests/litmus: for each ordering one kernel that has it and one that lacks it.

NAME_right.cu must be free of races and NAME_wrong.cu must race, whatever the order of the warps and
the landing of the copies. docs/memory_model.md has a row for each pair.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from course_lib.kernel import Kernel, compile_kernel
from course_lib.virtual_gpu.launch import launch
from course_lib.virtual_gpu.races import RawRace
from course_lib.virtual_gpu.records import LANDINGS, ORDERS
from tests.async_device import PRELUDE

FOLDER = Path(__file__).resolve().parent / "litmus"
PAGE = FOLDER.parents[1] / "docs" / "memory_model.md"
VICTIMS = {"one_last": (0, 1), "one_first": (0, 1)}
POLICIES = [
    {"order": order, "landing": landing, "victim": victim, "seed": 1}
    for order, landing in itertools.product(ORDERS, LANDINGS)
    for victim in VICTIMS.get(order, (0,))
]


@dataclass(frozen=True)
class Pair:
    """What the wrong kernel of a pair lacks (`RawRace.missing` over all policies)."""

    missing: frozenset[str]
    threads: int = 64


def lacks(*missing: str, threads: int = 64) -> Pair:
    """A pair whose wrong kernel's races have these words."""
    return Pair(frozenset(missing), threads)


PAIRS: dict[str, Pair] = {
    "syncthreads": lacks("order"),
    "barrier_reduction": lacks("order"),
    "named_barrier": lacks("order", threads=96),
    "bar_arrive": lacks("order"),
    "bar_arrive_waits_for_nobody": lacks("order"),
    "syncwarp": lacks("order", threads=32),
    "syncwarp_mask": lacks("order", threads=32),
    "shuffle": lacks("order", threads=32),
    "vote": lacks("order", threads=32),
    "cp_async_wait": lacks("wait"),
    "cp_async_groups": lacks("wait"),
    "cp_async_others": lacks("wait", "visibility"),
    "cp_async_others_wait": lacks("wait"),
    "bytes": lacks("order"),
    "release_acquire": lacks("order"),
    "acquire": lacks("order"),
    "fence_before_flag": lacks("order"),
    "fence_after_flag": lacks("order"),
    "atomic_flag": lacks("order"),
    "reduction": lacks("order"),
    "release_sequence": lacks("order", threads=96),
    "release_then_store": lacks("order"),
    "read_then_acquire": lacks("order"),
    "chain": lacks("order", threads=96),
    "atomics": lacks("order"),
    "mbarrier": lacks("order"),
    "mbarrier_arrive": lacks("order"),
    "mbarrier_relaxed": lacks("order"),
    "mbarrier_elected": lacks("order"),
    "mbarrier_init": lacks("order"),
    "mbarrier_init_bulk": lacks("order"),
    "mbarrier_parity": lacks("phase"),
    "mbarrier_parity_again": lacks("order", threads=96),
    "mbarrier_token": lacks("order"),
    "cp_async_arrive": lacks("wait"),
    "cp_async_arrive_commits_nothing": lacks("wait"),
    "cp_async_arrive_orders_copies_only": lacks("order"),
    "bulk_load": lacks("phase"),
    "bulk_expect": lacks("phase"),
    "proxy_fence": lacks("proxy"),
    "proxy_fence_by_issuer": lacks("proxy"),
    "proxy_fence_elsewhere": lacks("proxy"),
    "bulk_wait_read": lacks("group"),
    "bulk_wait_others": lacks("group"),
    "wgmma_wait": lacks("group", "visibility", threads=128),
    "wgmma_proxy_fence": lacks("proxy", threads=128),
    "proxy_read": lacks("proxy-read"),
}


@cache
def litmus(name: str, threads: int) -> Kernel:
    """One compiled file."""
    source = (FOLDER / f"{name}.cu").read_text()
    if "course_pipeline.cuh" not in source:
        source = PRELUDE + source
    return compile_kernel(source, name="litmus", threads=threads)


def races_of(name: str, threads: int, policy: dict) -> list[RawRace]:
    """The races of one run, which must end well."""
    given, out = np.arange(1024, dtype=np.uint32), np.zeros(1024, np.uint32)
    result = launch(litmus(name, threads), 1, [given, out], check=True, **policy)
    assert result.ok, result.errors
    return result.races


@pytest.mark.parametrize("name", PAIRS)
def test_the_right_kernel_has_no_race(name: str) -> None:
    for policy in POLICIES:
        assert races_of(f"{name}_right", PAIRS[name].threads, policy) == [], policy


@pytest.mark.parametrize("name", PAIRS)
def test_the_wrong_kernel_races_under_every_policy(name: str) -> None:
    found = set()
    for policy in POLICIES:
        races = races_of(f"{name}_wrong", PAIRS[name].threads, policy)
        assert races, policy
        found |= {race.missing for race in races}
    assert found == PAIRS[name].missing


def test_every_pair_has_both_files_and_every_file_a_pair() -> None:
    files = {path.stem for path in FOLDER.glob("*.cu")}
    assert files == {f"{name}_{side}" for name in PAIRS for side in ("right", "wrong")}


def test_the_page_has_a_row_for_every_pair_with_its_words() -> None:
    lines = re.findall(r"^\| `(\w+)` \| .+? \| (.+?) \| ([\w, -]+) \|$", PAGE.read_text(), re.M)
    rows = {name: frozenset(words.split(", ")) for name, _, words in lines}
    assert len(rows) == len(lines), "a row is there twice"
    assert rows == {name: pair.missing for name, pair in PAIRS.items()}
    for name, given, _ in lines:
        assert re.search(r"PTX|Guide|\*assumption\* \d", given), name


def test_every_assumption_of_the_table_is_explained() -> None:
    text = PAGE.read_text()
    named = set(re.findall(r"\*assumption\* (\d+)", text))
    assert named and named <= set(re.findall(r"^(\d+)\. \*\*", text, re.M))
