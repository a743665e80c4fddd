"""Runs the checker on random programs under every policy and compares it with the oracle."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
from fuzz.graph import Log, Undecided, build
from fuzz.oracle import RACE, REMARK, Pair, racy_bytes
from fuzz.patterns import random_program
from fuzz.programs import Program
from fuzz.text import log_slots, to_ptx

from course_lib.ptx.parse import parse
from course_lib.virtual_gpu.launch import launch

POLICIES = [
    (order, landing)
    for order in ("round_robin", "one_last", "one_first", "random")
    for landing in ("early", "late", "random")
]


def kernel_of(program: Program) -> Any:
    """The program as what `launch` takes."""
    return SimpleNamespace(
        name="fuzz", module=parse(to_ptx(program)), threads=program.warps * 32, shared_bytes=0,
        arch="sm_90a", extra_parameters=0,
        source='extern "C" __global__ void fuzz(unsigned* x, unsigned* log) {}',
    )  # fmt: skip


def run(
    program: Program, kernel: Any, order: str, landing: str, seed: int
) -> tuple[set[Pair], Log]:
    """What the checker reports under one policy, and what the run decided."""
    slots = log_slots(program)
    threads = program.warps * 32
    log = np.zeros(2 + 2 * len(slots) * threads, np.uint32)
    result = launch(
        kernel, 1, [np.zeros(256, np.uint32), log], check=True, order=order, landing=landing,
        victim=seed, seed=seed, workers=1,
    )  # fmt: skip
    if not result.ok:
        raise AssertionError(repr(result))
    lines = [site.cell_line for site in kernel.module.sites]
    pairs = set()
    for race in result.races:
        first, second = (int(lines[a.site] or 0) - 1 for a in (race.first, race.second))
        kind = REMARK if race.missing == "proxy-read" else RACE
        pairs.add(Pair(min(first, second), max(first, second), kind))
    table = log[2:].reshape(-1, threads, 2)
    decided = {
        (number, thread): (int(table[row, thread, 0]), int(table[row, thread, 1]))
        for number, row in slots.items()
        for thread in map(int, np.flatnonzero(table[row, :, 0]))
    }
    return pairs, decided


def difference(seed: int) -> tuple[str, bool]:
    """What the checker and the oracle disagree about, empty where they agree; and whether the
    program has races.

    Policies change in which order racing accesses meet, so which of a byte's races is reported may
    differ, but not whether there is one.
    """
    program = random_program(seed)
    kernel = kernel_of(program)
    known: dict[object, Any] = {}
    racy = False
    for order, landing in POLICIES:
        where = f"seed {seed}, {order}, {landing}"
        try:
            found, log = run(program, kernel, order, landing, seed)
        except AssertionError as error:
            return f"{where}: {error}", racy
        key = tuple(sorted(log.items()))
        if key not in known:
            try:
                known[key] = racy_bytes(build(program, log))
            except Undecided:
                known[key] = None
        expected = known[key]
        if expected is None:
            continue
        racy = racy or any(pair.kind == RACE for pair in expected)
        text = compare(expected, found)
        if text:
            return f"{where}: {text}", racy
    return "", racy


def compare(expected: Any, found: set[Pair]) -> str:
    """Every reported pair must be one of the oracle's, and every racy byte be reported."""
    if found - set(expected):
        wrong = sorted((p.first, p.second, p.kind) for p in found - set(expected))
        return f"reported in error {wrong}"
    for kinds in ((RACE,), (RACE, REMARK)):
        wanted = {byte for pair in expected if pair.kind in kinds for byte in expected[pair]}
        told = {byte for pair in found if pair.kind in kinds for byte in expected[pair]}
        if wanted != told:
            missed = [(p.first, p.second, p.kind) for p in expected if expected[p] - told]
            return f"missed some of {sorted(missed)}"
    return ""


def main(count: int, first: int = 0) -> int:
    """Compare `count` programs; prints every difference."""
    racy = 0
    wrong = 0
    for seed in range(first, first + count):
        text, races = difference(seed)
        racy += races
        if text:
            wrong += 1
            print(text, flush=True)
    print(f"{count} programs x {len(POLICIES)} policies: {racy} with races, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
