"""The happens-before checker against brute-force reachability (tests/fuzz)."""

from __future__ import annotations

import pytest
from fuzz.runner import difference

PROGRAMS = 300
BATCH = 50


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_the_checker_agrees_with_brute_force_under_every_policy(first):
    """Racy bytes are the oracle's, and no ordered pair is reported."""
    answers = [difference(seed) for seed in range(first, first + BATCH)]
    wrong = [text for text, _ in answers if text]
    assert not wrong, "\n".join(wrong)
    assert BATCH // 5 < sum(racy for _, racy in answers) < 9 * BATCH // 10
