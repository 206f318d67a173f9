"""The roofline of a cluster: HBM and every tier of links, with the groups of a plan under them.

Each level is a roof P = min(π, I·β) with its own β; below the knee of a tier's messages start-up
time is a third wall. Bandwidths are per accelerator and direction, in bytes per second; intensities
in FLOPs per byte. The formulas are `planner.cost.roofline`; kernels under HBM's roof are
`planner.advise.kernel_roofline`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PlainSerializer, computed_field

from planner.advise.kernel_roofline import (
    REFERENCE,
    Move,
    Operator,
    Sizes,
    Wall,
    moves,
    operators,
    sizes_of,
)
from planner.cost import roofline as roof
from planner.cost.collective_costs import unit_cost
from planner.cost.collectives import Collective, CollectiveKind, duration
from planner.cost.context import TierArrays
from planner.errors import UnknownNameError, nearest_of
from planner.inputs.files import names, read, resolve
from planner.inputs.values import Overrides, load
from planner.planning.document import document
from planner.planning.groups import busiest_tier
from planner.planning.plan import GroupReport, Plan
from planner.planning.solve import chosen_scenario, plan
from planner.problem.hardware import Accelerator
from planner.problem.precision import Precision
from planner.problem.scenario import Scenario, ScenarioLike, load_scenario
from planner.problem.topology import Topology

PRICED_AS = {
    "send_receive": CollectiveKind.POINT_TO_POINT,
    "all_gather": CollectiveKind.ALL_GATHER,
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_to_all": CollectiveKind.ALL_TO_ALL,
}
"""The cost model's name of each collective."""

MESSAGE_BYTES = tuple(float(2.0 ** (k / 2)) for k in range(2 * 10, 2 * 35 + 1))
"""1 KiB to 32 GiB, two samples an octave."""

FILES = (".yaml", ".yml", ".json")

GENERATIONS: Mapping[str, tuple[str, ...]] = {
    "NVIDIA": (
        "v100-sxm2-32gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb",
        "gb200", "b300", "gb300",
    ),
    "AMD": ("mi250x", "mi300x", "mi325x", "mi355x"),
}  # fmt: skip
"""Shipped accelerator types of two families, in the order they came."""

COLLECTIVES = {
    "send_receive": "send-receive",
    "all_gather": "all-gather",
    "all_reduce": "all-reduce",
    "all_to_all": "all-to-all",
}
"""Collectives by key, and their names. Reduce-scatter costs what all-gather does."""

Sampled = Annotated[tuple[float, ...], Field(exclude=True)]
"""Samples of a curve, for pictures; documents have the figures that make it."""


@dataclass(frozen=True, slots=True)
class Messages:
    """One collective of a group that lives in a single tier, against message size.

    Bytes as nccl-tests count them: of all-gather the gathered tensor, of all-reduce what is
    reduced, of all-to-all what a rank holds, of send-receive what is sent. Below `knee_bytes`
    start-up takes longer than the bytes. num_bytes, seconds: samples of the curve.
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

    bytes_per_second: as on paper; reached_bytes_per_second: what large messages or streaming
    kernels get. ridges: by precision, and `vector` for the vector unit. messages: by collective;
    none for HBM, nor for a tier of width 1.
    """

    name: str
    bytes_per_second: float
    reached_bytes_per_second: float
    ridges: Mapping[str, float]
    messages: Mapping[str, Messages]


@dataclass(frozen=True, slots=True)
class GroupPoint:
    """A communicating group of a plan under the roof of the tier that takes it longest.

    Bytes over that tier and intensities are those of a step on one accelerator; margin is the
    intensity over the tier's ridge, below 1 left of it. Walls are in seconds at the rates that are
    reached; the longest limits.
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
class AcceleratorRidges:
    """Ridges of one accelerator type's HBM, by precision; `family`: the types that it follows."""

    name: str
    family: str
    ridges: Mapping[str, float]


def _in_short(plan: Plan | None) -> dict[str, Any] | None:
    """What a document has of the plan; all of it is in the plan file."""
    if plan is None:
        return None
    return {
        "status": plan.status,
        "inputs_sha256": plan.inputs_sha256,
        "layout": plan.layout and plan.layout.to_document(),
        "step_seconds": plan.step_seconds,
    }


@dataclass(frozen=True, slots=True)
class Roofline:
    """Compute roofs, levels inner to outer with HBM first, and the points under them.

    `precision` is the one ridges and points are drawn for. `plan` and `groups` are there when a
    scenario is the subject; a plan without a layout has no groups.
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


def roofline(subject: Topology | ScenarioLike, time_limit_seconds: float | None = None) -> Roofline:
    """The roofs of a topology; of a scenario, which is planned, with its groups under them.

    A scenario that no layout fits gives a roofline whose `plan` says why.

    Raises:
        PlannerError: the scenario cannot be costed.
    """
    if isinstance(subject, str | Path):
        subject = load_subject(subject)
    if isinstance(subject, Topology):
        return _roofline(subject, _first_precision(subject.accelerator), REFERENCE)
    scenario = load_scenario(subject)
    best = plan(scenario, 1, time_limit_seconds)
    return roofline_of(chosen_scenario(scenario, best), best)


def roofline_of(scenario: Scenario, plan_: Plan) -> Roofline:
    """The roofs of a scenario with the groups of a plan of it."""
    peak = float(scenario.topology.accelerator.peak_flops[scenario.training.peak_key])
    points = tuple(
        _point(name, group, peak)
        for name, group in plan_.groups.items()
        if group.members > 1 and group.bytes > 0
    )
    roofs = _roofline(
        scenario.topology,
        scenario.training.peak_key,
        sizes_of(scenario, plan_),
        dict(plan_.fill or {}),
    )
    return replace(roofs, groups=points, plan=plan_)


def load_subject(
    name_or_path: str | Path, overrides: Overrides | None = None
) -> Scenario | Topology:
    """A scenario or a topology by name or path; a file with `tiers` is a topology.

    Raises:
        UnknownNameError: neither ships under that name.
    """
    text = str(name_or_path)
    scenarios, topologies = names("scenario"), names("topology")
    if isinstance(name_or_path, Path) or "/" in text or text.lower().endswith(FILES):
        is_topology = read(resolve("topology", name_or_path)).child("tiers") is not None
    elif text in scenarios or text in topologies:
        is_topology = text in topologies
    else:
        raise UnknownNameError(
            f"unknown topology or scenario '{text}'",
            value=text,
            allowed="the path of a YAML file, or a name of `planner list topologies` or "
            "`planner list scenarios`",
            nearest=nearest_of(text, [*topologies, *scenarios]),
        )
    if is_topology:
        return load(name_or_path, "topology", Topology, overrides)
    return load_scenario(name_or_path, overrides)


def generations(also: Roofline | None = None) -> tuple[AcceleratorRidges, ...]:
    """HBM ridges of shipped accelerator types by family and generation, then those of another."""
    shipped = [
        AcceleratorRidges(one.name, family, _ridges(one, float(one.hbm_bytes_per_second)))
        for family, members in GENERATIONS.items()
        for one in (load(name, "accelerator", Accelerator) for name in members)
    ]
    if also is not None and also.accelerator not in {one.name for one in shipped}:
        shipped.append(AcceleratorRidges(also.accelerator, "", also.levels[0].ridges))
    return tuple(shipped)


# ---------------------------------------------------------------- levels and points


def _first_precision(accelerator: Accelerator) -> Precision:
    peaks = accelerator.peak_flops
    return "bf16" if "bf16" in peaks else next(iter(peaks))


def _roofline(
    topology: Topology,
    precision: Precision,
    sizes: Sizes,
    fill: Mapping[str, int] | None = None,
) -> Roofline:
    accelerator = topology.accelerator
    return Roofline(
        topology=topology.name,
        accelerator=accelerator.name,
        precision=precision,
        peak_flops={name: float(peak) for name, peak in accelerator.peak_flops.items()},
        vector_flops=float(accelerator.vector_flops),
        levels=tuple(_levels(topology, fill or {})),
        operators=tuple(operators(accelerator, precision, sizes)),
        moves=tuple(moves(accelerator, precision, sizes)),
    )


def _ridges(accelerator: Accelerator, bytes_per_second: float) -> dict[str, float]:
    peaks = [*accelerator.peak_flops.items(), ("vector", accelerator.vector_flops)]
    return {name: float(roof.ridge(peak, bytes_per_second)) for name, peak in peaks}


def _levels(topology: Topology, fill: Mapping[str, int]) -> Iterator[Level]:
    """HBM, and the tiers with the messages of a group as large as the fill, or as the tier."""
    accelerator = topology.accelerator
    hbm = float(accelerator.hbm_bytes_per_second)
    reached = hbm * float(accelerator.hbm_efficiency)
    yield Level("hbm", hbm, reached, _ridges(accelerator, hbm), messages={})
    tiers = TierArrays.of(topology)
    ramp = tuple(float(tier.fabric.ramp) for tier in topology.tiers)
    for t, tier in enumerate(topology.tiers):
        used = fill.get(tier.name, 1)
        members = used if used > 1 else tier.width
        yield Level(
            name=tier.name,
            bytes_per_second=tier.bytes_per_second,
            reached_bytes_per_second=float(tiers.all_gather[t]),
            ridges=_ridges(accelerator, tier.bytes_per_second),
            messages={
                collective: _messages(collective, members, t, tiers, ramp)
                for collective in PRICED_AS
                if members > 1
            },
        )


def _messages(
    collective: str, members: int, tier: int, tiers: TierArrays, ramp: tuple[float, ...]
) -> Messages:
    split = [float(members) if t == tier else 1.0 for t in range(len(ramp))]
    unit = unit_cost(Collective(PRICED_AS[collective]), split, tiers)
    sizes = np.array(MESSAGE_BYTES)
    cost = unit.cost(1.0, sizes)
    knee = roof.latency_knee(unit.latency_seconds, np.max(np.stack(unit.busy_seconds)))
    return Messages(
        collective=collective,
        members=members,
        latency_seconds=float(unit.latency_seconds),
        knee_bytes=float(knee),
        num_bytes=MESSAGE_BYTES,
        seconds=tuple(float(s) for s in np.asarray(duration(cost, ramp))),
    )


def _point(name: str, group: GroupReport, peak_flops: float) -> GroupPoint:
    """A group on the tier whose links it keeps busy longest."""
    tier = busiest_tier(group)
    assert tier is not None, "a group of several members crosses a tier"
    cost, exposed = group.tiers[tier], group.exposed_intensity
    walls: dict[Wall, float] = {
        "compute": group.flops / peak_flops,
        "bandwidth": cost["busy_seconds"],
        "latency": group.latency_seconds,
    }
    return GroupPoint(
        name=name,
        members=group.members,
        tier=tier,
        bytes=cost["bytes"],
        flops=group.flops,
        intensity=group.flops / cost["bytes"],
        exposed_intensity=None if exposed is None else exposed * group.bytes / cost["bytes"],
        ridge=cost["ridge"],
        compute_seconds=walls["compute"],
        bandwidth_seconds=walls["bandwidth"],
        latency_seconds=walls["latency"],
        wall=max(walls, key=lambda wall: walls[wall]),
    )
