"""What is left to run after nodes are lost, with the same global batch: each way planned anew."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf, prod
from typing import Any

from planner.advise.changes import KEPT_LAYOUT_KEYS
from planner.clusters.hostlist import expand
from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError, nearest_of
from planner.frameworks.rank_map import hosts
from planner.inputs.text import whole
from planner.planning.document import json_values
from planner.planning.export import launch_job
from planner.planning.plan import Plan
from planner.planning.solve import evaluate, plan
from planner.problem.cluster import Cluster
from planner.problem.inventory import Inventory, InventoryNode
from planner.problem.scenario import Scenario, scenario_from_document
from planner.search.families import family_bounds
from planner.search.space.enumerate import families

SAME, FEWER, BEST = "same layout on spares", "fewer dp", "best of the search"


@dataclass(frozen=True, slots=True)
class Remaining:
    """One way on: a plan, and its step over the former one's, less 1."""

    name: str
    loss_fraction: float
    num_accelerators: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What is left after a loss: nodes lost, accelerators usable in one job, ways on.

    options: the fastest first. searched: numbers of accelerators on which layouts were searched;
    ruled_out: how many more numbers have layouts whose bounds lie above the best step.
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
    plan's order. A plan without an inventory has the nodes of its job alone, h0 .. in the order of
    its places. Compared are the same layout where spares suffice, the same with fewer data-parallel
    ranks, and the best layout on any number of accelerators that is left.

    Raises:
        InputError: the plan holds no layout or placement, or a node is not known.
        ExportError: a plan without an inventory whose ranks do not fall evenly on nodes.
    """
    if former.layout is None or former.step_seconds is None:
        raise InputError("a plan without a layout has no nodes to lose", key="PLAN")
    scenario = scenario_from_document(former.inputs, "plan")
    inventory = scenario.inventory or _of_the_job(former, scenario)
    scenario = scenario.replace(inventory=inventory)
    lost = _lost(inventory, former, lose)
    left = _without(inventory, lost)
    if not _some_left(inventory, scenario, lost):
        return Shrunk(tuple(lost), 0, former.step_seconds)
    usable = Cluster.of(left, scenario.topology).largest
    found = [*_same_layout(scenario, left, former, usable)]
    best, searched, ruled_out = _best(scenario, left, usable, time_limit_seconds)
    if best is not None and best.step_seconds is not None:
        found.append(_remaining(BEST, best, best.step_seconds / former.step_seconds))
    return Shrunk(
        lost=tuple(lost),
        usable_accelerators=usable,
        former_step_seconds=former.step_seconds,
        searched_num_accelerators=tuple(searched),
        ruled_out_by_bound=ruled_out,
        options=tuple(sorted(found, key=lambda option: option.loss_fraction)),
    )


def _remaining(name: str, plan: Plan, slower: float) -> Remaining:
    return Remaining(name, slower - 1.0, plan.inputs["num_accelerators"], plan)


# --- what is left ---------------------------------------------------------------------------------


def _of_the_job(former: Plan, scenario: Scenario) -> Inventory:
    """The nodes of a plan without an inventory: only those it uses are known."""
    if former.fill is None:
        raise InputError(
            "the plan has neither nodes nor a placement: which ranks share a node is not known",
            key="PLAN", allowed="a plan of a scenario with an inventory, or of a layout that nests",
        )  # fmt: skip
    where, fill = hosts(launch_job(former)), former.fill
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
    taken: set[str] = set()
    for text in lose:
        number = None if text in names else whole(text)
        if number is not None:
            taken.update(_last(former, names, number, text))
            continue
        for name in [text] if text in names else expand(text, "--lose", None, text):
            found = [known for known in names if fnmatchcase(known, name)]
            if not found:
                raise InputError(
                    f"no node is called '{name}'", key="--lose", value=name,
                    allowed="names of the plan's nodes, patterns, or a number",
                    nearest=nearest_of(name, names),
                )  # fmt: skip
            taken.update(found)
    if not taken:
        raise InputError("no node is lost", key="--lose", allowed="a node, a pattern, a number")
    return [name for name in names if name in taken]


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


def _some_left(inventory: Inventory, scenario: Scenario, lost: Sequence[str]) -> bool:
    return not set(Cluster.of(inventory, scenario.topology).nodes) <= set(lost)


def _without(inventory: Inventory, lost: Sequence[str]) -> Inventory:
    gone = set(lost)
    return inventory.replace(
        nodes=tuple(
            node.replace(state="down") if node.name in gone else node for node in inventory.nodes
        )
    )


# --- ways on --------------------------------------------------------------------------------------


def _same_layout(
    scenario: Scenario, left: Inventory, former: Plan, usable: int
) -> Iterator[Remaining]:
    """The former layout where there are spares; else, with fewer data-parallel ranks."""
    assert former.layout is not None and former.step_seconds is not None
    chosen = {key: former.layout.to_document()[key] for key in KEPT_LAYOUT_KEYS}
    varied = "dp_replicate" if chosen.get("dp_replicate", 1) > 1 else "dp_shard"
    each = scenario.num_accelerators // chosen[varied]
    for degree in range(chosen[varied], 0, -1):
        if each * degree > usable:
            continue
        kept = chosen | {varied: degree}
        found = _evaluated(scenario, left, each * degree, kept)
        if found is not None and found.step_seconds is not None:
            name = SAME if degree == chosen[varied] else FEWER
            yield _remaining(name, found, found.step_seconds / former.step_seconds)
            return


def _evaluated(
    scenario: Scenario, left: Inventory, count: int, layout: Mapping[str, Any]
) -> Plan | None:
    """The layout on what is left, or None where it is illegal, too large, or has no nodes."""
    try:
        found = evaluate(scenario.replace(inventory=left, num_accelerators=count), layout)
    except (IllegalLayoutError, InputError):
        return None
    return found if found.status == "feasible" else None


def _best(
    scenario: Scenario, left: Inventory, usable: int, time_limit_seconds: float | None
) -> tuple[Plan | None, list[int], int]:
    """The best plan on any number of accelerators, numbers searched, how many bounds ruled out.

    Numbers are searched by rising bound of the step of any layout on them, until no bound is below
    the best step, or time is up.
    """
    until = None if time_limit_seconds is None else time.monotonic() + time_limit_seconds
    bounds = sorted(_bounds(scenario, left, usable))
    best: Plan | None = None
    least = inf
    searched: list[int] = []
    for bound, _, count in bounds:
        seconds = None if until is None else until - time.monotonic()
        if bound >= least or (seconds is not None and seconds <= 0.0):
            break
        searched.append(count)
        given = scenario.replace(inventory=left, num_accelerators=count)
        found = plan(given, 1, seconds, reasons=False)
        if found.objective_seconds is not None and found.objective_seconds < least:
            best, least = found, found.objective_seconds
    return best, searched, sum(bound >= least for bound, _, _ in bounds[len(searched) :])


def _bounds(scenario: Scenario, left: Inventory, usable: int) -> Iterator[tuple[float, int, int]]:
    """(bound of the step, -number, number) of accelerators for which some layout keeps the batch.

    Of nodes that are alike, whole ones are counted.
    """
    sizes = {node.accelerators or 1 for node in left.nodes}
    step = min(sizes) if len(sizes) == 1 else 1
    for count in range(usable - usable % step, 0, -step):
        ctx = CostContext.of(scenario.replace(inventory=left, num_accelerators=count))
        table, _ = families(ctx, scenario.search)
        bound = float(family_bounds(ctx, scenario.search, table).min(initial=inf))
        if bound < inf:
            yield bound, -count, count
