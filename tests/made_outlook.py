"""What other machines would buy, made up: round figures for a given plan."""

from __future__ import annotations

from planner.advise.scaling import ScalePoint, Scaling
from planner.advise.what_if import Upgrade, WhatIf
from planner.planning.plan import Plan

GAINS = {
    "twice the network": (0.25, 0.10), "half the latency": (0.05, 0.05),
    "8 GB more HBM": (0.0001, 0.0), "a slower part": (-0.125, None),
    "fp8 <b>&amp;": (None, None),
}  # fmt: skip
"""Change → the share of a step it saves with the best layout, and with the old one."""


def made_outlook(plan: Plan) -> WhatIf:
    """Five upgrades, one of which cannot be, and three counts, at the last nothing fits."""
    base = plan.objective_seconds
    assert base is not None and plan.layout is not None

    def upgrade(text: str, gain: float | None, alone: float | None) -> Upgrade:
        return Upgrade(
            id=text, text=text, set={}, gain_fraction=gain, layout=plan.layout, terms={},
            step_seconds=None if gain is None else base * (1 - gain),
            same_layout_seconds=None if alone is None else base * (1 - alone),
            layout_changes={"tp": (8, 4)} if gain != alone else {}, num_accelerators=8,
            peak_bytes=None, infeasible="the part has no fp8" if gain is None else None,
        )  # fmt: skip

    def point(number: int, rate: float | None) -> ScalePoint:
        return ScalePoint(
            num_accelerators=number, step_seconds=None if rate is None else 1.0,
            tokens_per_second=rate, mfu=rate and 0.4, layout=None if rate is None else plan.layout,
            efficiency_fraction=rate and rate / number / 100.0, marginal_fraction=None,
        )  # fmt: skip

    points = (point(8, 800.0), point(16, 1200.0), point(32, None))
    return WhatIf(
        plan=plan,
        upgrades=tuple(upgrade(text, *gains) for text, gains in GAINS.items()),
        scaling=Scaling(points, 0.5, 16),
        plans_made=9,
        cpu_seconds=2.0,
    )
