"""What other machines would buy: a plan's changed circumstances, each planned anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from planner.planning.document import LayoutValue, document
from planner.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One change of machine or job and the best plan under it, proven like the first.

    set: the change as --set takes it. step_seconds: the least step with it, None where nothing
    fits; gain_fraction: the share of the step that is saved. same_layout_seconds: what the old
    layout would take, None where it does not fit or is not legal. layout_changes {key: [before,
    after]}, terms {time term: seconds more}: what the gain is made of.
    """

    id: str
    text: str
    set: Mapping[str, str | float | int]
    step_seconds: float | None
    gain_fraction: float | None
    same_layout_seconds: float | None
    layout: LayoutValue | None
    layout_changes: Mapping[str, tuple[Any, Any]]
    terms: Mapping[str, float]
    num_accelerators: int
    peak_bytes: float | None
    infeasible: str | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """Two rivals at one bandwidth; `best_seconds` is of a rival that suffices to decide, and the
    proven least where `proven`."""

    factor: float
    bytes_per_second: float
    fsdp_seconds: float
    best_seconds: float
    proven: bool
    matches: bool
    layout: LayoutValue | None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The inter-node bandwidth from which on FSDP is as fast as the best layout.

    verdict: at (between `lower` and `upper`, bytes per second and accelerator, both tried), always
    (at the least bandwidth tried already), never (not at the greatest), impossible (`reason`).
    `lower` and `upper` differ by at most `width_fraction`; equal is within `match_fraction`.
    """

    verdict: Literal["at", "always", "never", "impossible"]
    match_fraction: float
    width_fraction: float
    now: float | None
    lower: float | None
    upper: float | None
    fsdp_layout: LayoutValue | None
    trials: tuple[Trial, ...]
    assumed: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """The best plan on so many accelerators, the batch as it is.

    efficiency_fraction: throughput per accelerator over that of the smallest count that fits;
    marginal_fraction: throughput that each accelerator beyond the count before adds, over what each
    of those before achieves.
    """

    num_accelerators: int
    step_seconds: float | None
    tokens_per_second: float | None
    mfu: float | None
    layout: LayoutValue | None
    efficiency_fraction: float | None
    marginal_fraction: float | None


@dataclass(frozen=True, slots=True)
class Scaling:
    """The winners over counts. Beyond `wasted_beyond` an added accelerator brings less than
    `threshold_fraction` of what those before it achieve; None: not among the counts tried."""

    points: tuple[ScalePoint, ...]
    threshold_fraction: float
    wasted_beyond: int | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A plan, and what would become of it."""

    plan: Plan
    upgrades: tuple[Upgrade, ...] = ()
    break_even: BreakEven | None = None
    scaling: Scaling | None = None
    plans_made: int = 0
    cpu_seconds: float = 0.0

    def to_document(self) -> dict[str, Any]:
        """The answers as one JSON document."""
        return document(self)
