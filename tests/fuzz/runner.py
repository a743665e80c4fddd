"""Runs the checker on random programs under every policy and compares it with the oracle."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
from fuzz.oracle import cells_of, racy_pairs
from fuzz.programs import Program, random_program, to_ptx

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
        arch="sm_90", extra_parameters=0,
        source='extern "C" __global__ void fuzz(const unsigned* x) {}',
    )  # fmt: skip


def found_pairs(kernel: Any, order: str, landing: str, seed: int) -> set[tuple[int, int]]:
    """Pairs of statements that the checker reports under one policy."""
    result = launch(
        kernel, 1, [np.zeros(16, np.uint32)], check=True, order=order, landing=landing,
        victim=seed, seed=seed, workers=1,
    )  # fmt: skip
    if not result.ok:
        raise AssertionError(repr(result))
    lines = [site.cell_line for site in kernel.module.sites]
    pairs = set()
    for race in result.races:
        first, second = (int(lines[a.site] or 0) - 1 for a in (race.first, race.second))
        pairs.add((min(first, second), max(first, second)))
    return pairs


def difference(seed: int) -> str:
    """What the checker and the oracle disagree about; empty where they agree. Policies change in
    which order racing accesses meet, so pairs may differ, but racy bytes may not."""
    program = random_program(seed)
    expected = racy_pairs(program)
    kernel = kernel_of(program)
    for order, landing in POLICIES:
        found = found_pairs(kernel, order, landing, seed)
        if found - expected:
            return f"seed {seed}, {order}, {landing}: reported in error {sorted(found - expected)}"
        if cells_of(program, found) != cells_of(program, expected):
            return f"seed {seed}, {order}, {landing}: missed some of {sorted(expected)}"
    return ""


def main(count: int) -> int:
    """Compare `count` programs; prints every difference."""
    racy = 0
    wrong = []
    for seed in range(count):
        racy += bool(racy_pairs(random_program(seed)))
        text = difference(seed)
        if text:
            wrong.append(text)
            print(text, flush=True)
    print(f"{count} programs x {len(POLICIES)} policies: {racy} with races, {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
