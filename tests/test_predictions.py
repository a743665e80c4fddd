"""Predictions: a missing one is said, a close one praised, a far one located."""

from __future__ import annotations

import pytest

from course_lib.predictions import check_prediction


def test_a_missing_prediction_still_shows_the_measurement():
    result = check_prediction(None, 1234.5, "cycles")
    assert not result.close
    assert "1,234 cycles" in str(result)
    assert "have not predicted" in str(result)


@pytest.mark.parametrize(
    ("predicted", "close"), [(90, True), (120, True), (121, False), (79, False)]
)
def test_close_means_within_the_tolerance(predicted, close):
    assert check_prediction(predicted, 100, "cycles").close is close


def test_a_far_prediction_says_on_which_side():
    assert "50% too low" in str(check_prediction(1, 2, "times"))
    assert "100% too high" in str(check_prediction(4, 2, "times"))


def test_text_is_no_prediction():
    with pytest.raises(TypeError, match="number"):
        check_prediction("fast", 2.0)
