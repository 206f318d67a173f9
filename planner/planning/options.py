"""What a scenario leaves to choose besides the layout: counts of accelerators, precisions, a batch.

Every pair of a count and a precision is a scenario of its own, an option.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from planner.problem.cluster import Cluster
from planner.problem.scenario import Scenario
from planner.problem.search_fields import FREE


def is_open(scenario: Scenario) -> bool:
    """Whether more than the layout (and a batch within its band) is to be chosen."""
    search = scenario.search
    return (
        search.num_accelerators is not None
        or search.precision is not None
        or search.objective != "time"
    )


def batch_is_open(scenario: Scenario) -> bool:
    """Whether the batch is a band, from which each layout cuts its own."""
    least, most = scenario.training.batch_range
    return least != most


def open_keys(scenario: Scenario) -> dict[str, Any]:
    """The scenario's keys that leave a choice besides the layout, with their values as given."""
    document = scenario.model_dump(mode="json", by_alias=True)
    search, training = document["search"], document["training"]
    names = ("num_accelerators", "precision", "objective", "deadline", "step_deadline")
    given = {f"search.{name}": search[name] for name in names if search[name] is not None}
    if search["num_accelerators"] is not None:
        given["num_accelerators"] = document["num_accelerators"]
    if batch_is_open(scenario):
        keys = ("global_batch_size", "global_batch_tokens")
        given |= {f"training.{key}": training[key] for key in keys if training[key] is not None}
    return given


def options(scenario: Scenario) -> Iterator[Scenario]:
    """A scenario for each count and precision, fewest accelerators first."""
    search = scenario.search
    kept = "least_memory" if search.objective == "least_memory" else "time"
    # an option is searched for time: its objective is its step times a constant, or its count
    closed = search.replace(
        precision=None, num_accelerators=None, objective=kept, deadline=None, step_deadline=None
    )
    for number in counts(scenario):
        for precision in dict.fromkeys(search.precision or (scenario.training.precision,)):
            yield scenario.replace(
                num_accelerators=number,
                training=scenario.training.replace(precision=precision),
                search=closed,
            )


def counts(scenario: Scenario) -> list[int]:
    """The counts of accelerators that may be used, rising.

    Free: full fills of the topology up to num_accelerators (1, 2, … of a domain, then 1, 2, … full
    domains, and so on outwards), the same of domains as num_accelerators itself fills them, and
    num_accelerators. With an inventory a domain is full with what its usable nodes hold.
    """
    given, most = scenario.search.num_accelerators, scenario.num_accelerators
    if given is None:
        return [most]
    if given != FREE:
        return sorted(given)
    if scenario.inventory is not None:
        return sorted(_inventory_counts(Cluster.of(scenario.inventory, scenario.topology), most))
    topology = scenario.topology
    free = {most}
    # domains as full as they can be, and as full as a job on all accelerators fills them
    for used in (topology.widths, *topology.fills(most)[:1]):
        for tier, width in enumerate(topology.widths):
            unit = prod(used[:tier])
            free |= {unit * k for k in range(1, width + 1) if unit * k <= most}
    return sorted(number for number in free if topology.fills(number))


def _inventory_counts(cluster: Cluster, most: int) -> set[int]:
    """The free counts of an inventory: of blocks as full as some domain of each tier below, as many
    as a domain of the next tier holds."""
    given = next(cluster.fills(most), ())
    free = {most} if given else set()
    inner: set[tuple[int, ...]] = {()}  # fills of the tiers below
    for tier in range(len(cluster.tiers)):
        ones = (1,) * (len(cluster.tiers) - tier)
        fuller = {given[: tier + 1]} if given else set()
        for used in inner:
            unit = prod(used)
            capacities = np.unique(cluster.blocks((*used, *ones))[tier]).tolist()  # rising
            free |= {unit * k for k in range(1, capacities[-1] + 1) if unit * k <= most}
            fuller |= {(*used, k) for k in capacities if k and unit * k <= most}
        inner = fuller
    return free


def step_deadline_seconds(scenario: Scenario) -> float | None:
    """Seconds that a step of the largest batch may take; None without a deadline."""
    search, training = scenario.search, scenario.training
    if search.step_deadline is not None or search.deadline is None:
        return search.step_deadline
    assert training.total_tokens is not None, "a scenario with a deadline has tokens"
    tokens = float(training.batch_range[1]) * training.sequence_length
    return search.deadline * tokens / training.total_tokens
