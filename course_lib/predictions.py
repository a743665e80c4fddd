"""A learner's prediction set beside what was then measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """What was predicted and what was measured, in the same unit.

    `predicted` is None while the learner has not typed a number: a notebook still runs from top
    to bottom then, and says what is missing.
    """

    predicted: float | None
    measured: float
    unit: str = ""
    tolerance: float = 0.2

    @property
    def error(self) -> float | None:
        """Signed relative error; None without a prediction, or with nothing to divide by."""
        if self.predicted is None or self.measured == 0:
            return None
        return self.predicted / self.measured - 1.0

    @property
    def close(self) -> bool:
        """Whether the prediction lies within the tolerance of the measurement."""
        return self.error is not None and abs(self.error) <= self.tolerance

    def __str__(self) -> str:
        measured = f"Measured: {_number(self.measured, self.unit)}."
        if self.predicted is None:
            return (
                f"{measured} You have not predicted anything yet: type a number in the cell above, "
                "run it, and run this cell again."
            )
        told = f"You predicted {_number(self.predicted, self.unit)}. {measured}"
        if self.error is None:
            return told
        if self.close:
            return f"{told} Within {self.tolerance:.0%}: your picture of the kernel holds."
        side = "high" if self.error > 0 else "low"
        return (
            f"{told} {abs(self.error):.0%} too {side}: find the part of the timeline "
            "that your picture leaves out."
        )

    __repr__ = __str__


def _number(value: float, unit: str) -> str:
    whole = abs(value) >= 100 or value == int(value)
    digits = f"{value:,.0f}" if whole else f"{value:.2f}"
    return f"{digits} {unit}".strip()


def check_prediction(
    predicted: float | None, measured: float, unit: str = "", *, tolerance: float = 0.2
) -> Prediction:
    """Compare a prediction with a measurement; printing the result says how close it came."""
    if predicted is not None and not isinstance(predicted, (int, float)):
        raise TypeError("a prediction is a number, or None while there is none")
    return Prediction(
        None if predicted is None else float(predicted), float(measured), unit, tolerance
    )
