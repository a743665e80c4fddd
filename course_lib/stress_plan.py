"""What happens in each iteration of a stress run, decided by its seed and number alone.

Both devices and every replay read it here, so iteration 417 of seed 0 is the same one each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SHORTEST, LONGEST = 2.0, 8.0
"""Delays are between so many times the copy latency: less may pass unnoticed, more teaches nothing
new and takes longer."""


@dataclass(frozen=True)
class Delay:
    """One warp held up in one iteration.

    ``factor`` times the copy latency, before its reads, and also before its arrivals and after its
    waits where the flags say so.
    """

    warp: int
    factor: float
    arrives: bool
    waits: bool


def delay_of(seed: int, iteration: int, consumers: Sequence[int]) -> Delay | None:
    """The delay of an iteration: every second one has one, in a random consumer warp."""
    if iteration % 2 or not consumers:
        return None
    draw = np.random.Generator(np.random.SFC64([seed, iteration, 99]))
    warp = int(consumers[int(draw.integers(len(consumers)))])
    factor = float(draw.uniform(SHORTEST, LONGEST))
    return Delay(warp, factor, bool(draw.integers(2)), bool(draw.integers(2)))


def input_number(seed: int, iteration: int) -> int:
    """The ``iteration`` by which a problem makes the inputs: another for every seed."""
    return (seed << 32) + iteration


def consumers_of(census: Sequence[int]) -> tuple[int, ...]:
    """The warps to delay, from what each has met (``ptx.delays`` classes): those that read shared
    memory, else those that wait, else all."""
    from course_lib.ptx.delays import READS, WAITS

    for wanted in (READS, WAITS):
        found = tuple(warp for warp, met in enumerate(census) if int(met) & wanted)
        if found:
            return found
    return tuple(range(len(census)))
