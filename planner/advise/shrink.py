"""How to go on after nodes are lost, with the same global batch: each way planned anew.

Nothing restores a former plan in part: the former layout is evaluated on the nodes that are left,
and all layouts on every count of accelerators are bounded and, where needed, searched.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf, prod
from typing import Any

from planner.advise.changes import KEPT_LAYOUT_KEYS
from planner.clusters.slurm_hostlist import expand
from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError, Place, nearest_of
from planner.frameworks.launchers.hosts import hosts_of
from planner.inputs.text import natural_number
from planner.layouts.layout import Layout
from planner.planning.document import json_values
from planner.planning.export import launch_job
from planner.planning.plan import Plan
from planner.planning.solve import evaluate, plan
from planner.problem.cluster import Cluster
from planner.problem.inventory import Inventory, InventoryNode
from planner.problem.scenario import Scenario, scenario_from_document
from planner.search.family_bounds import lowest_step_bound

SAME, FEWER, BEST = "same layout on spares", "fewer dp", "best of the search"


@dataclass(frozen=True, slots=True)
class Remaining:
    """One way to go on: a plan on what is left, and its loss as a fraction of the former step."""

    name: str
    loss_fraction: float
    num_accelerators: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What is left of a job after it lost nodes.

    usable_accelerators: of one job.
    searched_num_accelerators: counts on which layouts were searched; ruled_out_by_bound: how many
    more counts have layouts, with lower bounds above the best step.
    options: the fastest first.
    """

    lost: tuple[str, ...]
    usable_accelerators: int
    former_step_seconds: float
    searched_num_accelerators: tuple[int, ...] = ()
    ruled_out_by_bound: int = 0
    options: tuple[Remaining, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The answer as JSON values."""
        return json_values(self)


def shrink(former: Plan, lose: Sequence[str], time_limit_seconds: float | None = None) -> Shrunk:
    """Feasible plans after losing nodes, the global batch kept.

    lose: names, host lists (n[1-3]), patterns (rack3-*), or a number of nodes, the last in the
    plan's order. A plan without an inventory has only the nodes of its job, h0, h1, … in the order
    of its ranks. Compared are the same layout where spares suffice, the same with fewer
    data-parallel ranks, and the best layout on any number of accelerators that is left.

    Raises:
        InputError: the plan holds no layout or placement, or a node is not known.
        ExportError: a plan without an inventory whose ranks do not fall evenly on nodes.
    """
    if former.layout is None or former.step_seconds is None:
        raise InputError("a plan without a layout has no nodes to lose", key="PLAN")
    scenario = scenario_from_document(former.inputs, "plan")
    inventory = scenario.inventory or _inventory_of_job(former, scenario)
    scenario = scenario.replace(inventory=inventory)
    lost = _lost(inventory, former, lose)
    if set(Cluster.of(inventory, scenario.topology).nodes) <= set(lost):
        return Shrunk(tuple(lost), 0, former.step_seconds)
    left = _without(inventory, lost)
    usable = Cluster.of(left, scenario.topology).largest
    rest = _Rest(scenario, left, usable)
    search = _search_counts(rest, time_limit_seconds)
    plans = [*_same_layout(rest, former.layout)]
    if search.best is not None:
        plans.append((BEST, search.best))
    options = [_remaining(name, plan, former.step_seconds) for name, plan in plans]
    return Shrunk(
        lost=tuple(lost),
        usable_accelerators=usable,
        former_step_seconds=former.step_seconds,
        searched_num_accelerators=tuple(search.counts),
        ruled_out_by_bound=search.ruled_out,
        options=tuple(sorted(options, key=lambda option: option.loss_fraction)),
    )


@dataclass(frozen=True, slots=True)
class _Rest:
    """A scenario after a loss: the nodes that are left, and the accelerators of one job on them."""

    scenario: Scenario
    inventory: Inventory
    usable: int

    def on(self, count: int) -> Scenario:
        """The scenario on so many accelerators of the nodes that are left."""
        return self.scenario.replace(inventory=self.inventory, num_accelerators=count)


def _remaining(name: str, plan: Plan, former_step_seconds: float) -> Remaining:
    assert plan.step_seconds is not None
    loss = plan.step_seconds / former_step_seconds - 1.0
    return Remaining(name, loss, plan.inputs["num_accelerators"], plan)


# ---------------------------------------------------------------- the nodes that are left


def _inventory_of_job(former: Plan, scenario: Scenario) -> Inventory:
    """The nodes of a plan without an inventory: only those it uses are known."""
    if former.fill is None:
        raise InputError(
            "the plan has neither nodes nor a placement: which ranks share a node is not known",
            key="PLAN", allowed="a plan of a scenario with an inventory, or of a layout that nests",
        )  # fmt: skip
    where, fill = hosts_of(launch_job(former)), former.fill
    tiers = scenario.topology.tier_names
    sizes = {
        tier: prod(fill[inner] for inner in tiers[: position + 1])
        for position, tier in enumerate(tiers)
    }
    named = [tier for tier in tiers if sizes[tier] >= where.ranks_each]
    return Inventory(
        name=f"the job's {where.number} nodes",
        source="the plan's own placement",
        tiers=tuple(named),
        nodes=tuple(
            InventoryNode(
                name=f"h{host}",
                accelerators=where.ranks_each,
                domains={t: f"{t}{host * where.ranks_each // sizes[t]}" for t in named},
            )
            for host in range(where.number)
        ),
    )


def _lost(inventory: Inventory, former: Plan, lose: Sequence[str]) -> list[str]:
    """The nodes that are named, in the inventory's order.

    Raises:
        InputError: nothing is named, or something that no node is called.
    """
    names = [node.name for node in inventory.nodes]
    lost: set[str] = set()
    for text in lose:
        number = None if text in names else natural_number(text)
        if number is not None:
            lost.update(_last(former, names, number, text))
            continue
        for name in [text] if text in names else expand(text, Place("--lose", key=text)):
            matching = [known for known in names if fnmatchcase(known, name)]
            if not matching:
                raise InputError(
                    f"no node is called '{name}'", key="--lose", value=name,
                    allowed="names of the plan's nodes, patterns, or a number",
                    nearest=nearest_of(name, names),
                )  # fmt: skip
            lost.update(matching)
    if not lost:
        raise InputError("no node is lost", key="--lose", allowed="a node, a pattern, a number")
    return [name for name in names if name in lost]


def _last(former: Plan, names: Sequence[str], number: int, text: str) -> list[str]:
    """The last nodes of the job."""
    used = names if former.nodes is None else [name for name, _ in former.nodes.ranks]
    used = list(dict.fromkeys(used))
    if not 1 <= number <= len(used):
        raise InputError(
            f"the job has {len(used)} nodes", key="--lose", value=text,
            allowed=f"a number from 1 to {len(used)}",
        )  # fmt: skip
    return used[-number:]


def _without(inventory: Inventory, lost: Sequence[str]) -> Inventory:
    gone = set(lost)
    return inventory.replace(
        nodes=tuple(
            node.replace(state="down") if node.name in gone else node for node in inventory.nodes
        )
    )


# ---------------------------------------------------------------- ways to go on


def _same_layout(rest: _Rest, layout: Layout) -> Iterator[tuple[str, Plan]]:
    """The former layout where there are spares; else, with fewer data-parallel ranks."""
    keys = {key: layout.to_document()[key] for key in KEPT_LAYOUT_KEYS}
    varied = "dp_replicate" if layout.dp_replicate > 1 else "dp_shard"
    most = keys[varied]
    per_degree = rest.scenario.num_accelerators // most
    for degree in range(most, 0, -1):
        if per_degree * degree > rest.usable:
            continue
        evaluated = _evaluated(rest.on(per_degree * degree), keys | {varied: degree})
        if evaluated is not None:
            yield SAME if degree == most else FEWER, evaluated
            return


def _evaluated(scenario: Scenario, layout: Mapping[str, Any]) -> Plan | None:
    """The layout on what is left, or None where it is illegal, too large, or has no nodes."""
    try:
        evaluated = evaluate(scenario, layout)
    except (IllegalLayoutError, InputError):
        return None
    return evaluated if evaluated.status == "feasible" else None


@dataclass(frozen=True, slots=True)
class _CountsSearch:
    """The best plan over counts of accelerators: counts searched, and how many bounds ruled out."""

    best: Plan | None
    counts: list[int]
    ruled_out: int


def _search_counts(rest: _Rest, time_limit_seconds: float | None) -> _CountsSearch:
    """The best plan on any count of accelerators that is left.

    Counts are searched by rising lower bound of the step of any layout on them, until no bound is
    below the best step, or time is up.
    """
    until = None if time_limit_seconds is None else time.monotonic() + time_limit_seconds
    bounds = sorted(_bounds(rest))
    best: Plan | None = None
    lowest = inf
    searched: list[int] = []
    for bound, _, count in bounds:
        seconds_left = None if until is None else until - time.monotonic()
        if bound >= lowest or (seconds_left is not None and seconds_left <= 0.0):
            break
        searched.append(count)
        candidate = plan(rest.on(count), 1, seconds_left, reasons=False)
        if candidate.objective_seconds is not None and candidate.objective_seconds < lowest:
            best, lowest = candidate, candidate.objective_seconds
    not_searched = bounds[len(searched) :]
    return _CountsSearch(best, searched, sum(bound >= lowest for bound, _, _ in not_searched))


def _bounds(rest: _Rest) -> Iterator[tuple[float, int, int]]:
    """(lower bound of the step, -count, count) for accelerators on which some layout is legal.

    Where all nodes have equally many accelerators, only counts of full nodes. Of equal bounds the
    larger count comes first.
    """
    sizes = {node.accelerators or 1 for node in rest.inventory.nodes}
    unit = min(sizes) if len(sizes) == 1 else 1
    for count in range(rest.usable - rest.usable % unit, 0, -unit):
        scenario = rest.on(count)
        ctx = CostContext.of(scenario)
        bound = lowest_step_bound(ctx, scenario.search)
        if bound < inf:
            yield bound, -count, count
