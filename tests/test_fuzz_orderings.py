"""The happens-before checker against brute-force reachability (tests/fuzz)."""

from __future__ import annotations

import pytest
from fuzz.oracle import racy_pairs
from fuzz.programs import random_program
from fuzz.runner import difference

PROGRAMS = 300
BATCH = 50


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_the_checker_agrees_with_brute_force_under_every_policy(first):
    """Racy bytes are the oracle's, and no ordered pair is reported."""
    wrong = [text for seed in range(first, first + BATCH) if (text := difference(seed))]
    assert not wrong, "\n".join(wrong)


def test_programs_of_both_kinds_occur():
    racy = sum(bool(racy_pairs(random_program(seed))) for seed in range(PROGRAMS))
    assert PROGRAMS // 4 < racy < 3 * PROGRAMS // 4
