"""Plan files read back: what was edited by hand is refused, not followed.

A plan file says everything twice over: its inputs and their hash, a layout and the rank order that
numbers it, terms and their sums. Figures are not costed again, which another version may do
differently: only entries that determine each other are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from math import isclose, prod
from pathlib import Path
from typing import get_args

from planner.cost.context import CostContext
from planner.cost.memory import VERDICTS, StageMemory
from planner.cost.prediction_intervals import KINDS
from planner.errors import IllegalLayoutError, InputError
from planner.inputs import files
from planner.inputs.json_text import json_value
from planner.inputs.text import file_text
from planner.layouts.grids import DENSE_GRID, EXPERT_GRID
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import order_degrees
from planner.planning.plan import PLAN_FILE, MemoryReport, Plan
from planner.problem.cluster import Cluster
from planner.problem.scenario import Scenario, inputs_sha256, scenario_from_document
from planner.problem.search_fields import Objective
from planner.search.space.given import given_layout

NOT_EDITED = "a plan file that was not edited"
RELATIVE = 1e-6
"""Slack of sums, whose terms other versions may add in another order."""


def read_plan(path: str | Path) -> Plan:
    """The plan of a plan file, or of the folder that holds its plan.json.

    Raises:
        InputError: no such file, not a plan, of another schema version, or edited so that its
            entries disagree.
    """
    file, shown = Path(path), str(path)
    if files.is_folder(file):
        file = file / "plan.json"
    text = file_text(file, PLAN_FILE, shown=shown)
    plan = Plan.from_document(json_value(text, shown, PLAN_FILE), shown)
    _require_inputs(plan, shown)
    scenario = scenario_from_document(plan.inputs, shown)
    _require_status(plan, shown)
    if plan.layout is not None:
        _require_nodes(plan, scenario, shown)
        _require_layout(plan.layout, scenario, shown)
        _require_rank_order(plan, plan.layout, scenario, shown)
        _require_agreement(plan, scenario, shown)
    return plan


def scenario_of(plan: Plan) -> Scenario:
    """The scenario that a plan was made from."""
    return scenario_from_document(plan.inputs, "plan inputs")


# ---------------------------------------------------------------- inputs, layout, ranks, nodes


def _require_inputs(plan: Plan, path: str) -> None:
    if inputs_sha256(plan.inputs) != plan.inputs_sha256:
        raise InputError(
            "the inputs are not those the plan was made from",
            path=path, key="inputs_sha256", value=plan.inputs_sha256,
            allowed=f"{NOT_EDITED}; plan the changed scenario anew",
        )  # fmt: skip


def _require_status(plan: Plan, path: str) -> None:
    """Refuse a status that does not go with a layout, or with none."""
    with_layout = plan.status in ("optimal", "feasible")
    if with_layout != (plan.layout is not None):
        raise InputError(
            f"a plan with this status has {'a' if with_layout else 'no'} layout",
            path=path, key="status", value=plan.status, allowed=NOT_EDITED,
        )  # fmt: skip


def _require_layout(layout: Layout, scenario: Scenario, path: str) -> None:
    try:
        given_layout(CostContext.of(scenario), layout.to_document(), f"{path}: layout")
    except IllegalLayoutError as error:
        raise InputError(f"the layout is not legal: {error}", path=path, key="layout") from None


def _require_rank_order(plan: Plan, layout: Layout, scenario: Scenario, path: str) -> None:
    """Refuse a rank order whose atoms do not multiply to the layout's degrees."""
    degrees = order_degrees(plan.rank_order or ())
    # experts cut the axes, but where the two grids do not nest ranks follow the dense one
    grids = (DENSE_GRID, EXPERT_GRID) if scenario.model.moe else (DENSE_GRID,)
    numberings = [dict(zip(grid.atoms, layout.degrees(grid), strict=True)) for grid in grids]
    if _above_one(degrees) not in map(_above_one, numberings):
        raise InputError(
            "the rank order does not number the layout's ranks", path=path, key="rank_order",
            allowed=f"factors of {', '.join(numberings[-1])} that multiply to their degrees",
        )  # fmt: skip


def _above_one(degrees: Mapping[str, int]) -> dict[str, int]:
    return {atom: degree for atom, degree in degrees.items() if degree > 1}


def _require_nodes(plan: Plan, scenario: Scenario, path: str) -> None:
    """Refuse nodes without an inventory or none with one, an unusable node, or other counts."""
    problem = _wrong_nodes(plan, scenario)
    if problem is not None:
        raise InputError(
            f"the nodes do not fit the inputs: {problem}", path=path, key="nodes",
            allowed=NOT_EDITED,
        )  # fmt: skip


def _wrong_nodes(plan: Plan, scenario: Scenario) -> str | None:
    if (plan.nodes is None) != (scenario.inventory is None):
        return "nodes belong to an inventory, and an inventory's plan has nodes"
    if plan.nodes is None or scenario.inventory is None:
        return None
    cluster = Cluster.of(scenario.inventory, scenario.topology)
    sizes = dict(zip(cluster.nodes, cluster.sizes, strict=True))
    taken: Counter[str] = Counter()
    for name, count in plan.nodes.ranks:
        taken[name] += count
    for name, count in taken.items():
        if not 1 <= count <= sizes.get(name, 0):
            return f"node {name} does not have {count} usable accelerators"
    if taken.total() != scenario.num_accelerators:
        return f"{taken.total()} ranks on nodes, {scenario.num_accelerators} accelerators"
    return None


# ---------------------------------------------------------------- what follows from each other

Contradiction = tuple[str, str]
"""A key, and what is wrong with it."""


def _require_agreement(plan: Plan, scenario: Scenario, path: str) -> None:
    for key, problem in _contradictions(plan, scenario):
        raise InputError(
            f"the plan's parts do not agree: {problem}", path=path, key=key, allowed=NOT_EDITED
        )


def _contradictions(plan: Plan, scenario: Scenario) -> Iterator[Contradiction]:
    yield from _of_attention(plan, scenario)
    yield from _of_figures(plan, scenario)
    yield from _of_interval(plan)
    if plan.memory is not None:
        yield from _of_memory(plan.memory)
    yield from _of_placement(plan, scenario)
    yield from _of_nodes(plan, scenario)
    yield from _of_choice(plan, scenario)


def _same(one: float, other: float | None) -> bool:
    return other is not None and isclose(one, other, rel_tol=RELATIVE)


def _of_attention(plan: Plan, scenario: Scenario) -> Iterator[Contradiction]:
    """What `auto` stands for another version may say differently, but of a named backend none."""
    named, known = scenario.training.attention, scenario.topology.accelerator.attention
    possible = known if named == "auto" else (named,)
    if plan.attention is not None and plan.attention not in possible:
        yield "attention", f"it is none of {', '.join(possible)}"


def _of_figures(plan: Plan, scenario: Scenario) -> Iterator[Contradiction]:
    for key in ("objective_seconds", "step_seconds"):
        value = getattr(plan, key)
        if value is not None and value <= 0:
            yield key, "it is not above 0"
    if plan.objective_seconds is not None and plan.bound_seconds is not None:
        gap = 1.0 - plan.bound_seconds / plan.objective_seconds
        if plan.gap_fraction is None or abs(gap - plan.gap_fraction) > RELATIVE:
            yield "gap_fraction", "it is not that of objective_seconds and bound_seconds"
    if plan.time is not None and not _same(sum(plan.time.values()), plan.step_seconds):
        yield "time", "the terms of time do not sum to step_seconds"
    if plan.mfu is not None and plan.mfu < 0:
        yield "mfu", "it is below 0"
    each, number = plan.tokens_per_second_per_accelerator, scenario.num_accelerators
    if each is not None and not _same(each * number, plan.tokens_per_second):
        yield "tokens_per_second", "it is not that of one accelerator times their number"


def _of_interval(plan: Plan) -> Iterator[Contradiction]:
    low, high, coverage = plan.step_seconds_low, plan.step_seconds_high, plan.interval_coverage
    if low is not None and high is not None and not 0 < low <= high:
        yield "step_seconds_low", "it is not between 0 and step_seconds_high"
    if coverage is not None and not 0 < coverage < 1:
        yield "interval_coverage", "it is not between 0 and 1"
    if plan.interval_kind is not None and plan.interval_kind not in KINDS:
        yield "interval_kind", f"it is none of {', '.join(KINDS)}"


def _of_stages(memory: MemoryReport) -> Iterator[Contradiction]:
    known = {field.name for field in fields(StageMemory)}
    for name in memory.terms:
        if name not in known:
            yield f"memory.{name}", f"it is no term of memory: {', '.join(sorted(known))}"
    for number, stage in enumerate(memory.by_stage):
        key = f"memory.by_stage.{number}"
        if stage.get("stage") != number:
            yield f"{key}.stage", f"it is not {number}"
        if set(stage) != {"stage", "layers", "peak_bytes", *memory.terms}:
            yield key, "its keys are not stage, layers, peak_bytes and the terms of memory"


def _of_memory(memory: MemoryReport) -> Iterator[Contradiction]:
    yield from _of_stages(memory)
    if memory.verdict not in VERDICTS:
        yield "memory.verdict", f"it is none of {', '.join(VERDICTS)}"
    if memory.capacity_bytes <= 0:
        yield "memory.capacity_bytes", "it is not above 0"
    if not _same(sum(memory.terms.values()), memory.peak_bytes):
        yield "memory.peak_bytes", "the terms of memory do not sum to it"
    peaks = [stage.get("peak_bytes", 0.0) for stage in memory.by_stage]
    if not 0 <= memory.worst_stage < len(peaks):
        yield "memory.worst_stage", "there is no such stage"
    elif not _same(peaks[memory.worst_stage], memory.peak_bytes):
        yield "memory.worst_stage", "its peak is not that of the plan"


def _of_placement(plan: Plan, scenario: Scenario) -> Iterator[Contradiction]:
    if plan.fill is None or plan.placement is None:
        return
    tiers = scenario.topology.tier_names
    if set(plan.fill) != set(tiers) or any(set(p) != set(tiers) for p in plan.placement.values()):
        yield "placement", f"the tiers are not {', '.join(tiers)}"
        return
    if prod(plan.fill.values()) != scenario.num_accelerators:
        yield "fill", "it does not multiply to the accelerators"
    for tier in tiers:
        if prod(factors[tier] for factors in plan.placement.values()) != plan.fill[tier]:
            yield f"placement.*.{tier}", "the factors do not multiply to the tier's fill"
    degrees = order_degrees(plan.rank_order or ())
    for atom, factors in plan.placement.items():
        if prod(factors.values()) != degrees.get(atom, 1):
            yield f"placement.{atom}", "the factors do not multiply to the degree"


def _of_nodes(plan: Plan, scenario: Scenario) -> Iterator[Contradiction]:
    if plan.nodes is None or scenario.inventory is None:
        return
    cluster = Cluster.of(scenario.inventory, scenario.topology)
    used = {name for name, _ in plan.nodes.ranks}
    if plan.nodes.spares != tuple(name for name in cluster.nodes if name not in used):
        yield "nodes.spares", "they are not the usable nodes without ranks"
    if dict(plan.nodes.left_out) != cluster.left_out:
        yield "nodes.left_out", "they are not the inventory's nodes that are not usable"


def _of_choice(plan: Plan, scenario: Scenario) -> Iterator[Contradiction]:
    choice = plan.choice
    if choice is None:
        return
    if choice.objective not in get_args(Objective):
        yield "choice.objective", f"it is none of {', '.join(get_args(Objective))}"
    chosen = [option for option in choice.options if option.status == "chosen"]
    if plan.layout is None or not choice.options:
        if chosen:
            yield "choice.options", "one is chosen, and there is no layout"
        return
    ours = (scenario.num_accelerators, scenario.training.precision)
    if [(option.num_accelerators, option.precision) for option in chosen] != [ours]:
        yield "choice.options", "the chosen one is not that of the inputs"
    elif choice.objective == "fewest_for_deadline":
        if choice.value != float(scenario.num_accelerators):
            yield "choice.value", "it is not the number of accelerators"
    elif not _same(choice.value or 0.0, chosen[0].value):
        yield "choice.value", "it is not that of the chosen option"
