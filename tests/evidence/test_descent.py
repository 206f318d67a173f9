"""The search finds minima that are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from planner.evidence.descent import descend


def bowl(point: Sequence[float]) -> float:
    """Least at (3, 0.02), with its axes turned against the numbers'."""
    a, b = math.log(point[0] / 3), math.log(point[1] / 0.02)
    return 1 + (a + b) ** 2 + 4 * (a - b) ** 2


def test_the_least_of_a_turned_bowl() -> None:
    found = descend(bowl, [100.0, 1.0], lambda i, value: value)
    assert found == pytest.approx([3, 0.02], rel=5e-3)


def test_bounds_are_kept_and_reached() -> None:
    found = descend(bowl, [100.0, 1.0], lambda i, value: max(value, (5.0, 0.001)[i]))
    assert found[0] == 5.0
    # with a fixed at log(5/3), b of the least is 0.6·a
    assert found[1] == pytest.approx(0.02 * (5 / 3) ** 0.6, rel=5e-3)


def test_a_start_at_the_minimum_stays() -> None:
    assert descend(bowl, [3.0, 0.02], lambda i, value: value) == [3.0, 0.02]
