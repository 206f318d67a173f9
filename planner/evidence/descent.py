"""Least loss over positive numbers, one at a time: no gradient, and the same answer every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

STEPS = (0.5, 0.25, 0.12, 0.06, 0.03, 0.015, 0.007, 0.003, 0.001)
"""Each number is moved by e^±step while that helps, then by the next smaller step."""

LEAST_GAIN = 1e-6  # share of the loss that a move must save


def descend(
    loss: Callable[[Sequence[float]], float],
    start: Sequence[float],
    bounded: Callable[[int, float], float],
    steps: Sequence[float] = STEPS,
) -> list[float]:
    """The numbers from which no single step lowers the loss.

    bounded: a number's position and a value → the nearest value it may take.
    """
    point = [bounded(i, value) for i, value in enumerate(start)]
    best = loss(point)
    for step in steps:
        improved = True
        while improved:
            improved = False
            for i in range(len(point)):
                for factor in (np.exp(step), np.exp(-step)):
                    moved = [*point]
                    moved[i] = bounded(i, point[i] * float(factor))
                    if (found := loss(moved)) < best * (1 - LEAST_GAIN):
                        point, best, improved = moved, found, True
    return point
