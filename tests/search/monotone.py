"""Property check that a step never falls when a cost component rises."""

from __future__ import annotations

import numpy as np


def first_decrease(step, costs, pushes=(1e-6, 0.1, 1.0, 10.0), rounding=1e-12):
    """Push every component of `costs` up, one at a time; say where the step falls, or None.

    `step` maps cost vectors (..., C) to seconds (...); `pushes` are relative to the largest
    component.
    """
    costs = np.asarray(costs, dtype=np.float64)
    before = float(step(costs))
    up = np.asarray(pushes) * max(costs.max(), 1e-9)
    each = np.arange(len(costs))
    pushed = np.tile(costs, (len(costs), len(pushes), 1))
    pushed[each, :, each] += up
    after = step(pushed)
    assert after.shape == (len(costs), len(pushes))
    for component, push in np.argwhere(after < before - rounding * abs(before)).tolist():
        return (
            f"component {component} up by {up[push]} s: "
            f"step falls from {before} s to {after[component, push]} s"
        )
    return None
