"""The roofs of a cluster and what stands under them, as values: tables, JSON and pictures read it.

FLOP/s, bytes, bytes per second (per accelerator and direction), seconds, FLOP per byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, computed_field

from planner.planning.document import document
from planner.planning.plan import Plan

Wall = Literal["compute", "bandwidth", "latency"]

COLLECTIVES = {
    "send_receive": "send-receive",
    "all_gather": "all-gather",
    "all_reduce": "all-reduce",
    "all_to_all": "all-to-all",
}
"""Kinds of traffic by key, and their names. Reduce-scatter costs what all-gather does."""


Sampled = Annotated[tuple[float, ...], Field(exclude=True)]
"""Samples of a curve, for pictures; documents have the figures that make it."""


@dataclass(frozen=True, slots=True)
class Messages:
    """One kind of traffic of a group that lives in one tier alone, against message size.

    Message bytes as nccl-tests count them: all-gather the gathered whole, all-reduce what is
    reduced, all-to-all what a rank holds, send-receive what is sent. Below `knee_bytes` start-up
    takes longer than the bytes. `num_bytes` and `seconds` are samples of the curve.
    """

    collective: str
    members: int
    latency_seconds: float
    knee_bytes: float
    num_bytes: Sampled
    seconds: Sampled


@dataclass(frozen=True, slots=True)
class Level:
    """A bandwidth roof: the accelerator's memory (`hbm`) or a tier of links.

    `bytes_per_second` as on paper, `reached` what large messages or streaming kernels get;
    `ridges` by precision, and `vector` for the vector unit; `messages` by collective (none for
    HBM, nor for a tier of width 1).
    """

    name: str
    bytes_per_second: float
    reached_bytes_per_second: float
    ridges: Mapping[str, float]
    messages: Mapping[str, Messages]


@dataclass(frozen=True, slots=True)
class Operator:
    """A class of kernels on HBM's roof: its unit's ridge, and what it can attain.

    `sizes` says which example was taken; nothing where any size gives the same.
    """

    name: str
    sizes: str
    unit: Literal["tensor", "vector"]
    intensity: float
    ridge: float
    attainable_flops: float
    wall: Wall


@dataclass(frozen=True, slots=True)
class Move:
    """The same work moved under the roofs: intensity and FLOP/s before and after."""

    name: str
    intensity_before: float
    intensity_after: float
    attainable_before: float
    attainable_after: float

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gain(self) -> float:
        """How many times more FLOP/s it can attain."""
        return self.attainable_after / self.attainable_before


@dataclass(frozen=True, slots=True)
class GroupPoint:
    """A communicating group of a plan on the roof of the tier that takes it longest.

    bytes over that tier and intensities, of a step on one accelerator; `margin` is intensity over
    the tier's ridge (below 1: left of it). Walls in seconds at achieved rates; the largest binds.
    """

    name: str
    members: int
    tier: str
    bytes: float
    flops: float
    intensity: float
    exposed_intensity: float | None
    ridge: float
    compute_seconds: float
    bandwidth_seconds: float
    latency_seconds: float
    wall: Wall

    @computed_field  # type: ignore[prop-decorator]
    @property
    def margin(self) -> float:
        """Intensity over the ridge of its tier."""
        return self.intensity / self.ridge

    @computed_field  # type: ignore[prop-decorator]
    @property
    def attainable_flops(self) -> float:
        """FLOP/s that the highest of the three walls leaves."""
        longest = max(self.compute_seconds, self.bandwidth_seconds, self.latency_seconds)
        return self.flops / longest


@dataclass(frozen=True, slots=True)
class PartRidges:
    """Ridges of one accelerator's memory, by precision; `family` orders parts in time."""

    name: str
    family: str
    ridges: Mapping[str, float]


def _in_short(plan: Plan | None) -> dict[str, Any] | None:
    return (
        None
        if plan is None
        else {
            "status": plan.status,
            "inputs_sha256": plan.inputs_sha256,
            "layout": plan.layout and plan.layout.to_document(),
            "step_seconds": plan.step_seconds,
        }
    )


@dataclass(frozen=True, slots=True)
class Roofline:
    """Compute roofs, levels inner to outer with HBM first, and the points under them.

    `precision` is the one ridges and points are drawn for. `plan` and `groups` are there when a
    scenario was asked for; a plan without a layout has no groups.
    """

    topology: str
    accelerator: str
    precision: str
    peak_flops: Mapping[str, float]
    vector_flops: float
    levels: tuple[Level, ...]
    operators: tuple[Operator, ...]
    moves: tuple[Move, ...]
    groups: tuple[GroupPoint, ...] = ()
    plan: Annotated[Plan | None, PlainSerializer(_in_short)] = None

    @property
    def peak(self) -> float:
        """The compute roof of the precision drawn."""
        return self.peak_flops[self.precision]

    def level(self, name: str) -> Level:
        """The level of a name."""
        return next(level for level in self.levels if level.name == name)

    def to_document(self) -> dict[str, Any]:
        """The roofline as JSON values; of the plan its layout, step and the inputs' hash."""
        return document(self)
