"""Changes of machine and job that people buy or ask for, as keys of the scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from planner.advise.changes import Keys
from planner.inputs.units import exact_quantity, format_quantity
from planner.problem.cluster import Cluster
from planner.problem.precision import RECIPES, TrainingPrecision
from planner.problem.scenario import Scenario

MORE_HBM_BYTES = 8e9
RACK, NODE = 72, 8
"""Accelerators of an NVL72 domain, and of the usual node."""

LATENCIES = (
    "base_seconds",
    "hop_seconds",
    "posting_seconds",
    "rendezvous_seconds",
    "sharp_seconds",
)
HIGHER: Mapping[str, TrainingPrecision] = {"fp8": "fp8", "fp4": "nvfp4"}
"""Recipes tried where the accelerator's peaks allow: the plainest of each number of bits."""

_ORDER = ("fp16", "bf16", "fp8", "fp4")


@dataclass(frozen=True, slots=True)
class Idea:
    """A change not yet planned; `impossible` says why it cannot be."""

    id: str
    text: str
    set: Keys
    impossible: str | None = None


def ideas(scenario: Scenario) -> Iterator[Idea]:
    """The changes that apply to a scenario."""
    yield _more_memory(scenario)
    yield _faster_network(scenario)
    yield from _domain(scenario)
    yield _half_latency(scenario)
    yield from _precision(scenario)
    yield twice(scenario)


def _more_memory(scenario: Scenario) -> Idea:
    capacity = float(scenario.topology.accelerator.hbm_bytes) + MORE_HBM_BYTES
    return Idea(
        "hbm",
        f"{MORE_HBM_BYTES / 1e9:.0f} GB more HBM: {capacity / 1e9:.1f} GB",
        {"topology.accelerator.hbm_capacity.value": exact_quantity(capacity, "B")},
    )


def network_keys(scenario: Scenario, factor: float) -> dict[str, str]:
    """Keys that make every network tier's links `factor` times as fast."""
    keys = {}
    for position, tier in enumerate(scenario.topology.tiers):
        if tier.fabric.kind == "network":
            key = f"topology.{scenario.topology.link_rate_key(position)}"
            keys[key] = exact_quantity(factor * float(tier.link_bytes_per_second), "B/s")
    return keys


def network_bytes_per_second(scenario: Scenario) -> float | None:
    """The rate of the innermost network tier, per accelerator and direction."""
    tiers = scenario.topology.tiers
    return next((t.bytes_per_second for t in tiers if t.fabric.kind == "network"), None)


def _faster_network(scenario: Scenario) -> Idea:
    now = network_bytes_per_second(scenario)
    if now is None:
        return Idea("network", "twice the network", {}, "the topology has no network tier")
    rate = format_quantity(2 * now, "B/s", 4)
    return Idea("network", f"twice the network: {rate} each", network_keys(scenario, 2.0))


def _domain(scenario: Scenario) -> Iterator[Idea]:
    inner, inventory = scenario.topology.tiers[0], scenario.inventory
    width = RACK if inner.width < RACK else NODE
    text = f"{inner.name} domains of {width} instead of {inner.width}"
    if inner.fabric.mesh_members is not None:
        yield Idea("domain", text, {}, f"a full mesh ({inner.fabric.name}) has no more ports")
        return
    if inventory is not None:
        yield Idea("domain", text, {}, f"inventory {inventory.name} says what its domains hold")
        return
    keys: dict[str, Any] = {"topology.tiers.0.width": width}
    yield Idea("domain", text, keys | _more_domains(scenario, width, scenario.num_accelerators))


def _more_domains(scenario: Scenario, inner: int, accelerators: int) -> dict[str, Any]:
    """A wider outermost tier where the topology has too few accelerators."""
    widths = (inner, *scenario.topology.widths[1:])
    total = prod(widths[:-1])
    needed = -(-accelerators // total)
    last = len(widths) - 1
    return {f"topology.tiers.{last}.width": needed} if last and needed > widths[-1] else {}


def most_accelerators(scenario: Scenario) -> int:
    """The most that one job can have: of the topology, or of the nodes there are."""
    if scenario.inventory is None:
        return scenario.topology.num_accelerators
    return Cluster.of(scenario.inventory, scenario.topology).largest


def _half_latency(scenario: Scenario) -> Idea:
    keys = {}
    for position, tier in enumerate(scenario.topology.tiers):
        for name in LATENCIES:
            now = getattr(tier.fabric, name)
            alias = type(tier.fabric).model_fields[name].alias or name
            if now is not None:
                key = f"topology.tiers.{position}.fabric.{alias}.value"
                keys[key] = exact_quantity(float(now) / 2, "s")
    return Idea("latency", "half the latency of every link", keys)


def _precision(scenario: Scenario) -> Iterator[Idea]:
    accelerator = scenario.topology.accelerator
    now = _ORDER.index(scenario.training.peak_key)
    for peak, recipe in HIGHER.items():
        if _ORDER.index(peak) <= now:
            continue
        text = f"main matmuls in {recipe}"
        if (
            RECIPES[recipe].peak not in accelerator.peak_flops
            or RECIPES[recipe].peak not in accelerator.gemm
        ):
            yield Idea(recipe, text, {}, f"{accelerator.name} has no {peak} matmuls")
            continue
        yield Idea(recipe, text, {"training.precision": recipe})


def twice(scenario: Scenario, factor: int = 2) -> Idea:
    """More accelerators for the same batch; more domains where the topology has too few."""
    number = factor * scenario.num_accelerators
    keys: dict[str, Any] = {"num_accelerators": number}
    domains = _more_domains(scenario, scenario.topology.tiers[0].width, number)
    impossible = None
    if scenario.inventory is not None:
        most, domains = most_accelerators(scenario), {}
        if number > most:
            impossible = f"inventory {scenario.inventory.name} has {most:,} for one job"
    elif number > scenario.topology.num_accelerators and not domains:
        impossible = f"topology {scenario.topology.name} has one tier of so many"
    return Idea(
        "accelerators", f"{number:,} accelerators, the same batch", keys | domains, impossible
    )
