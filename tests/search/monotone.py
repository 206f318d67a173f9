"""Property check that a step never falls when a cost component rises."""

from __future__ import annotations

import numpy as np


def first_decrease(step, costs, pushes=(1e-6, 0.1, 1.0, 10.0), rounding=1e-12):
    """Push every component of `costs` up, one at a time; say where the step falls, or None.

    `step` maps a cost vector (C) to seconds; `pushes` are relative to the largest component.
    """
    costs = np.asarray(costs, dtype=np.float64)
    before = float(step(costs))
    for component in range(len(costs)):
        for push in pushes:
            pushed = costs.copy()
            pushed[component] += push * max(costs.max(), 1e-9)
            after = float(step(pushed))
            if after < before - rounding * abs(before):
                return (
                    f"component {component} up by {pushed[component] - costs[component]} s: "
                    f"step falls from {before} s to {after} s"
                )
    return None
