"""Advice in its one form: a plan explained, and a measured run held against its prediction.

`to_document()` gives the JSON of `planner explain`; what fills it in is `planner.advise`, what
shows it is `planner.report.text.explanation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import SerializerFunctionWrapHandler, WrapSerializer

from planner.planning.document import document
from planner.planning.plan import Plan

Label = Literal["fill", "raise", "move"]
LABELS: Mapping[Label, str] = {
    "fill": "fill the roof you are under",
    "raise": "raise the roof",
    "move": "move the point",
}

Verdict = Literal["accounting-error", "as-predicted", "below", "above"]


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """One communicating group: where it lives, how near its walls are, what other places cost.

    `tier` is the tier whose links set its pace, `spans` all that it crosses. Intensities in FLOP
    per byte: of all it moves, of what does not hide (None where all hides), and of what crosses
    `tier`, to hold against `ridge`, the dense peak over that tier's bandwidth. `ridge_ratios` are
    the intensity over the ridge of every tier, were the group there alone. Ranks count from 1, the
    smallest. `walls` are seconds of a step: compute at the dense peak, bandwidth of the busiest
    tier, latency; `wall` names the largest. `exchanges`: seconds the step gains in length when the
    group and the other exchange places, None where they share all their tiers.
    """

    name: str
    members: int
    tier: str
    spans: tuple[str, ...]
    intensity: float | None
    intensity_rank: int | None
    exposed_intensity: float | None
    exposed_rank: int
    tier_intensity: float | None
    ridge: float
    ridge_ratio: float | None
    ridge_ratios: Mapping[str, float | None]
    walls: Mapping[str, float]
    wall: str
    busy_seconds: float
    exposed_seconds: float
    busbw: float | None
    exchanges: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Inversion:
    """Two groups that live in the other order than their intensities, and what exchanging costs."""

    inner: str
    outer: str
    exchange_seconds: float | None


@dataclass(frozen=True, slots=True)
class Regime:
    """What the step waits for.

    `ledger` is the step in seconds by cause, from the model's FLOPs at the dense peak on; `shares`
    gathers it by regime; `name` has the largest share. `group` is the one with the most exposed
    traffic. `metric` is the one that tells how well such a step runs; `metrics` predicts all.
    """

    name: str
    share: float
    group: str | None
    shares: Mapping[str, float]
    ledger: Mapping[str, float]
    metric: str
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Action:
    """One change and the step the model predicts with it.

    `set` and `layout` are what to give `planner evaluate` to see it: scenario keys for --set and
    layout keys beside the present ones. A change that cannot be made says why in `infeasible`.
    """

    id: str
    label: Label
    text: str
    set: Mapping[str, str | int | float]
    layout: Mapping[str, Any]
    step_seconds: float | None
    gain_seconds: float | None
    gain_fraction: float | None
    infeasible: str | None


def _by_name(groups: object, listed: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return {group["name"]: group for group in listed(groups)}


def _by_label(actions: object, listed: SerializerFunctionWrapHandler) -> dict[str, Any]:
    written = listed(actions)
    return {label: [a for a in written if a["label"] == label] for label in LABELS}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan is as it is and what would make it faster; without a layout, only the plan.

    Orders name groups, smallest intensity first and innermost first.
    """

    plan: Plan
    groups: Annotated[tuple[GroupPlace, ...], WrapSerializer(_by_name)] = ()
    intensity_order: tuple[str, ...] = ()
    exposed_order: tuple[str, ...] = ()
    place_order: tuple[str, ...] = ()
    inversions: tuple[Inversion, ...] = ()
    regime: Regime | None = None
    actions: Annotated[tuple[Action, ...], WrapSerializer(_by_label)] = ()

    def labelled(self, label: Label) -> tuple[Action, ...]:
        """The actions under one label, greatest gain first, those that cannot be made last."""
        return tuple(action for action in self.actions if action.label == label)

    def to_document(self) -> dict[str, Any]:
        """The explanation as one JSON document."""
        return document(self)


@dataclass(frozen=True, slots=True)
class Convention:
    """One way to count MFU otherwise: what it multiplies MFU by, and what is left without it."""

    id: str
    text: str
    factor: float
    mfu: float
    explains: bool


@dataclass(frozen=True, slots=True)
class Suspect:
    """What could hide unexplained seconds.

    kind `off`: something the prediction counts on is not in force; `step_seconds` is the step
    without it and `explained_fraction` the part of the unexplained time that makes. kind `slow`:
    something would have to be `factor` times slower to explain all; `value` is then its rate or
    time in `unit`.
    """

    id: str
    kind: Literal["off", "slow"]
    text: str
    step_seconds: float
    explained_fraction: float
    factor: float | None = None
    value: float | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A measured run beside the prediction for its layout.

    `measured` is what was given. `claimed_mfu` is the MFU that was given, or that the TFLOP/s
    given make; `mfu` is the step time's, counted as the prediction is. `unexplained_seconds` is
    the step time beyond the prediction's, None where no believable time is known.
    """

    plan: Plan
    measured: Mapping[str, float]
    verdict: Verdict
    near_fraction: float
    claimed_mfu: float | None
    mfu: float | None
    step_seconds: float | None
    predicted_mfu: float
    predicted_step_seconds: float
    unexplained_seconds: float | None
    conventions: tuple[Convention, ...]
    regime: Regime
    suspects: tuple[Suspect, ...]
    warnings: tuple[str, ...]

    def to_document(self) -> dict[str, Any]:
        """The diagnosis as one JSON document."""
        return document(self)
