"""The search finds minima that are known, inside the ranges of the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from planner.evidence.descent import Range, descend

ANY = Range(1e-12, math.inf)


def bowl(point: Sequence[float]) -> float:
    """Lowest at (3, 0.02), with its axes turned against the numbers'."""
    a, b = math.log(point[0] / 3), math.log(point[1] / 0.02)
    return 1 + (a + b) ** 2 + 4 * (a - b) ** 2


def test_the_minimum_of_a_turned_bowl() -> None:
    lowest = descend(bowl, [100.0, 1.0], [ANY, ANY])
    assert lowest == pytest.approx([3, 0.02], rel=5e-3)


def test_ranges_are_kept_and_reached() -> None:
    lowest = descend(bowl, [100.0, 1.0], [Range(5.0, math.inf), Range(0.001, math.inf)])
    assert lowest[0] == 5.0
    # with a fixed at log(5/3), b of the minimum is 0.6·a
    assert lowest[1] == pytest.approx(0.02 * (5 / 3) ** 0.6, rel=5e-3)


def test_a_start_at_the_minimum_stays() -> None:
    assert descend(bowl, [3.0, 0.02], [ANY, ANY]) == [3.0, 0.02]


def test_numbers_with_a_scale_move_by_fractions_of_it() -> None:
    """Also through zero and to a bound, which no factor reaches from there."""
    steps = (1.0, 0.5, 0.25)
    ranges = [Range(-1.0, 1.0, scale=0.2), Range(0.0, 1.0, scale=0.4)]

    def loss(point: Sequence[float]) -> float:
        return (point[0] - 0.15) ** 2 + point[1]

    assert descend(loss, [-0.8, 0.3], ranges, steps) == pytest.approx([0.15, 0.0])


def test_a_move_up_that_helps_is_taken_before_one_down() -> None:
    """Twice the same loss: the answer is the one above, every time."""
    valleys = descend(lambda point: 1 - abs(point[0]), [0.0], [Range(-1.0, 1.0, scale=1.0)], [1.0])
    assert valleys == [1.0]
