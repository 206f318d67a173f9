"""Logs that are far slower than they should be: hosts that something is wrong with.

Misconfigured hosts cost two to four times in public logs, far beyond what a model is off by.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.cost.context import TierArrays
from planner.evidence.fabrics import Placed
from planner.evidence.validate_collectives import SUSPICIOUS_RATIO, predicted, ramps, slowdown


def slow_among_repeats(placed: Sequence[Placed]) -> dict[str, str]:
    """Logs that took far longer than others of one operation and split."""
    suspects = {}
    for log in placed:
        others = [
            other
            for other in placed
            if other is not log
            and (other.sweep.operation, other.split) == (log.sweep.operation, log.split)
        ]
        ratios = [ratio for ratio in (_ratio(log, other) for other in others) if ratio is not None]
        typical = float(np.median(ratios)) if ratios else 0.0
        if typical >= SUSPICIOUS_RATIO:
            suspects[log.sweep.name] = _suspicion(typical, "the other logs of its configuration")
    return suspects if len(suspects) < len(placed) else {}


def _ratio(log: Placed, other: Placed) -> float | None:
    """Median ratio of seconds over the largest sizes that both logs have."""
    both, mine, theirs = np.intersect1d(
        log.sweep.num_bytes, other.sweep.num_bytes, return_indices=True
    )
    if not len(both):
        return None
    ratios = log.sweep.seconds[mine] / other.sweep.seconds[theirs]
    return float(np.median(ratios[-max(3, len(both) // 3) :]))


def slow_against_prediction(placed: Sequence[Placed]) -> dict[str, str]:
    """Logs that took far longer than the topology's own fabrics predict."""
    suspects = {}
    for log in placed:
        arrays = TierArrays.of_tiers(log.tiers)
        times = predicted(log, arrays, ramps(log.tiers), log.sweep.num_bytes)
        ratio = slowdown(log.sweep, times / log.sweep.seconds - 1.0)
        if ratio is not None and ratio >= SUSPICIOUS_RATIO:
            suspects[log.sweep.name] = _suspicion(ratio, "what the topology's fabric reaches")
    return suspects


def _suspicion(ratio: float, than: str) -> str:
    return (
        f"large messages take {ratio:.1f} times as long as {than}; badly configured hosts cost two "
        "to four times (adapters down or not used, no GPUDirect RDMA, PCIe ACS, wrong interface)"
    )
