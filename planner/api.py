"""Everything the command line does, as one call each.

scenario = planner.load_scenario("llama3-70b-h100x1024")
best = planner.plan(scenario)
other = planner.evaluate(scenario, "tp=8,pp=4,vp=5,mbs=1")
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner import files
from planner.assess import Assessment, assess, economics
from planner.cost import memory
from planner.cost.context import CostContext
from planner.cost.pipeline import layers_by_stage
from planner.errors import IllegalLayoutError, InputError
from planner.evidence.runs import Validation, validate_runs
from planner.export import TARGETS, export_plan
from planner.files import Kind
from planner.layout import ATOMS, Layout, LayoutTable
from planner.planfile import Plan, RunnerUp, SearchReport, Status, Swap
from planner.problem.model import Model
from planner.problem.scenario import (
    Scenario,
    inputs_sha256,
    load_scenario,
    scenario_from_document,
    scenario_to_document,
)
from planner.problem.topology import Topology
from planner.ranks import framework_order, order_splits
from planner.search import relax
from planner.search.certify import certify
from planner.search.dense import DenseProblem, splits_of
from planner.search.enumerate import SEARCH_RULE, layouts
from planner.search.given import given_layout, parse_layout
from planner.search.optimize import search
from planner.search.placement import SideConstraints, rank_order
from planner.search.protocol import Row, SearchResult
from planner.search.rules import rule_sentences, rules_of
from planner.search.swaps import least_step, swap_costs

MEMORY_RULE = "memory"
PLACEMENT_RULE = "placement"
SENTENCES = {
    PLACEMENT_RULE: "its groups do not nest in evenly filled domains, in any allowed rank order",
    SEARCH_RULE: "the scenario's search: restricts it away",
    MEMORY_RULE: "it does not fit in memory",
}
SCHEMAS: Mapping[str, type[files.Strict]] = {
    "scenario": Scenario,
    "topology": Topology,
    "model": Model,
}


def plan(scenario: Scenario, top_k: int = 5, time_limit_seconds: float | None = None) -> Plan:
    """The layout and placement of least predicted step time, with its proof and runners-up.

    Raises:
        PlannerError: the scenario cannot be costed.
    """
    started, cpu = time.perf_counter(), time.process_time()
    ctx = CostContext.of(scenario)
    table, excluded = layouts(ctx, scenario.search)
    fitting = _fitting(ctx, scenario, table)
    excluded[MEMORY_RULE] += len(table) - len(fitting)
    problem = DenseProblem(ctx, fitting)
    result = _searched(problem, scenario, top_k, time_limit_seconds) if len(fitting) else None
    if result is not None and result.status == "infeasible":
        excluded[PLACEMENT_RULE] += len(fitting)
    spent = SearchReport(
        shapes=len(fitting),
        placements=result.counts.placements if result else 0,
        opened=result.counts.opened if result else 0,
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu,
        excluded={rule: count for rule, count in excluded.items() if count},
        rule_texts={**rule_sentences(rules_of(ctx.software)), **SENTENCES},
    )
    base = _base(scenario, result.status if result else "infeasible", spent)
    if result is None or result.best is None:
        bound = result.bound_seconds if result else None
        return replace(_nothing(ctx, scenario, base, table), bound_seconds=bound)
    best = _filled(ctx, scenario, base, problem.table.row(result.best.shape), result.best)
    return replace(
        best,
        objective_seconds=result.objective_seconds,
        bound_seconds=result.bound_seconds,
        gap_fraction=result.gap_fraction,
        runners_up=tuple(_runner_up(ctx, problem, row, best) for row in result.runners_up),
    )


def evaluate(scenario: Scenario, layout: str | Mapping[str, Any]) -> Plan:
    """One given layout in its best placement: time, memory, MFU, walls.

    Layouts whose groups do not nest in the domains are costed in the software's own rank order,
    from the rank table.

    Raises:
        IllegalLayoutError: a rule is broken.
        InputError: a key or value is wrong.
    """
    ctx = CostContext.of(scenario)
    given = parse_layout(layout) if isinstance(layout, str) else layout
    return _evaluated(ctx, scenario, given_layout(ctx, given))


def evaluate_many(
    scenario: Scenario, rows: Iterable[Mapping[str, Any]]
) -> list[Plan | IllegalLayoutError]:
    """Each given layout evaluated, or the rule it breaks."""
    ctx = CostContext.of(scenario)
    results: list[Plan | IllegalLayoutError] = []
    for row in rows:
        try:
            results.append(_evaluated(ctx, scenario, given_layout(ctx, row)))
        except IllegalLayoutError as error:
            results.append(error)
    return results


def read_plan(path: str | Path) -> Plan:
    """The plan of a plan file, or of the folder that holds its plan.json.

    Raises:
        InputError: no such file, or not a plan.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "plan.json"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the plan ({error.strerror})", path=str(path)) from error
    except ValueError as error:
        raise InputError(
            f"not a plan file ({error})",
            path=str(path),
            allowed="what `planner plan --json` prints",
        ) from error
    return Plan.from_document(document, str(path))


def scenario_of(plan_: Plan) -> Scenario:
    """The scenario a plan was made from."""
    return scenario_from_document(plan_.inputs, "plan inputs")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two plans term by term: seconds and bytes as (first, second, second − first)."""

    labels: tuple[str, str]
    summary: Mapping[str, tuple[Any, Any]]
    time: Mapping[str, tuple[float, float, float]]
    memory: Mapping[str, tuple[float, float, float]]

    def to_document(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "labels": list(self.labels),
            "summary": {k: list(v) for k, v in self.summary.items()},
            "time": {k: list(v) for k, v in self.time.items()},
            "memory": {k: list(v) for k, v in self.memory.items()},
        }


def compare(first: Plan, second: Plan) -> Comparison:
    """Two plans side by side.

    Raises:
        InputError: a plan holds no layout.
    """
    if first.time is None or second.time is None or first.memory is None or second.memory is None:
        raise InputError("a plan without a layout cannot be compared", key="PLAN")

    def rows(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, Any]:
        return {
            k: (a.get(k, 0.0), b.get(k, 0.0), b.get(k, 0.0) - a.get(k, 0.0)) for k in {**a, **b}
        }

    names = ("status", "step_seconds", "mfu", "hfu", "tokens_per_second", "cost", "layout")
    return Comparison(
        labels=("first", "second"),
        summary={name: (getattr(first, name), getattr(second, name)) for name in names},
        time=rows(first.time, second.time),
        memory=rows(
            {**first.memory.terms, "peak_bytes": first.memory.peak_bytes},
            {**second.memory.terms, "peak_bytes": second.memory.peak_bytes},
        ),
    )


def names(kind: Kind) -> list[str]:
    """Names of what is shipped: topologies, models, scenarios, software, accelerators, fabrics."""
    return files.names(kind)


def schema(kind: str) -> dict[str, Any]:
    """JSON Schema of a file kind, for editors.

    Raises:
        InputError: no such kind.
    """
    if kind not in SCHEMAS:
        raise InputError("no schema of that name", value=kind, allowed=", ".join(SCHEMAS))
    return SCHEMAS[kind].model_json_schema(by_alias=True)


# --- parts ------------------------------------------------------------------------------------


def _searched(
    problem: DenseProblem, scenario: Scenario, top_k: int, time_limit_seconds: float | None
) -> SearchResult:
    """The search's answer, checked without its solver."""
    tie_fraction = scenario.search.tie_fraction
    constraints = SideConstraints(orders=scenario.search.orders)
    result = search(
        problem,
        top_k=top_k,
        tie_fraction=tie_fraction,
        time_limit_seconds=time_limit_seconds,
        constraints=constraints,
    )
    certificate = certify(problem, result, tie_fraction=tie_fraction, constraints=constraints)
    if not certificate.valid:
        raise AssertionError("; ".join(certificate.failures))
    return result


def _fitting(ctx: CostContext, scenario: Scenario, table: LayoutTable) -> LayoutTable:
    if not len(table):
        return table
    _, peak = memory.worst_stage(ctx, table)
    accepted = memory.VERDICTS.index(scenario.search.memory)
    return table.take(memory.verdict_index(ctx, peak) <= accepted)


def _base(scenario: Scenario, status: Status, spent: SearchReport | None) -> Plan:
    document = scenario_to_document(scenario)
    return Plan(inputs=document, inputs_sha256=inputs_sha256(document), status=status, search=spent)


def _evaluated(ctx: CostContext, scenario: Scenario, layout: Layout) -> Plan:
    base = _base(scenario, "evaluated", None)
    problem = DenseProblem(ctx, LayoutTable.from_layouts([layout]))
    found = search(
        problem,
        tie_fraction=scenario.search.tie_fraction,
        constraints=SideConstraints(orders=scenario.search.orders),
    )
    if found.best is not None:
        return _filled(ctx, scenario, base, layout, found.best)
    order_name, axes = next(iter(ctx.software.orders.items()))
    order = framework_order(layout, axes)
    splits = order_splits(order, ctx.topology.widths)
    plan_ = _assessed(scenario, base, layout, assess(ctx, layout, splits), ctx)
    return replace(
        plan_,
        rank_order=tuple(pair for pair in order if pair[1] > 1),
        rank_order_name=order_name,
        warnings=(
            "its groups do not nest in the domains: costed in the software's own rank order "
            f"{order_name}, every group as its worst one",
        ),
    )


def _filled(ctx: CostContext, scenario: Scenario, base: Plan, layout: Layout, row: Row) -> Plan:
    placement = np.array(row.placement, dtype=np.int64)
    splits = {name: [float(g) for g in split] for name, split in splits_of(placement).items()}
    tiers = ctx.topology.tier_names
    orders = list(ctx.software.orders)
    atom_orders = DenseProblem(ctx, LayoutTable.from_layouts([layout])).orders(0)
    name = orders[list(atom_orders).index(row.order)] if row.order is not None else None
    found = assess(ctx, layout, splits)
    plan_ = _assessed(scenario, base, layout, found, ctx)
    least = least_step(ctx, layout)
    return replace(
        plan_,
        custom_order_gain_fraction=None if name is None else found.step_seconds / least - 1.0,
        fill=dict(zip(tiers, row.fill, strict=True)),
        placement={
            atom: dict(zip(tiers, row.placement[i], strict=True)) for i, atom in enumerate(ATOMS)
        },
        rank_order=_rank_order(row),
        rank_order_name=name,
        swaps=tuple(
            Swap(pair, seconds)
            for pair, seconds in swap_costs(ctx, layout, placement, least).items()
        ),
        warnings=_warnings(plan_),
    )


def _assessed(
    scenario: Scenario, base: Plan, layout: Layout, found: Assessment, ctx: CostContext
) -> Plan:
    split = layers_by_stage(ctx.model.num_layers, layout)
    document = {**layout.to_document(), "stage_layers": split}
    return replace(
        base,
        step_seconds=found.step_seconds,
        mfu=found.mfu,
        mfu_denominator={
            "accelerator": ctx.accelerator.name,
            "precision": ctx.training.peak_key,
            "peak_flops": ctx.peak_flops,
        },
        mfu_bf16=found.mfu_bf16,
        hfu=found.hfu,
        layout=document,
        time=found.time,
        memory=found.memory,
        groups=found.groups,
        **economics(scenario, found.step_seconds),
    )


def _runner_up(ctx: CostContext, problem: DenseProblem, row: Row, best: Plan) -> RunnerUp:
    layout = problem.table.row(row.shape)
    placement = np.array(row.placement, dtype=np.int64)
    splits = {name: [float(g) for g in split] for name, split in splits_of(placement).items()}
    found = assess(ctx, layout, splits)
    assert best.time is not None and best.step_seconds is not None
    return RunnerUp(
        layout=layout.to_document(),
        rank_order=_rank_order(row),
        step_seconds=found.step_seconds,
        loss_fraction=found.step_seconds / best.step_seconds - 1.0,
        terms={k: v - best.time[k] for k, v in found.time.items()},
    )


def _rank_order(row: Row) -> tuple[tuple[str, int], ...]:
    pairs = rank_order(np.array(row.placement, dtype=np.int64), row.order)
    return tuple((ATOMS[atom], factor) for atom, factor in pairs)


def _warnings(plan_: Plan) -> tuple[str, ...]:
    found = []
    if plan_.memory is not None and plan_.memory.verdict == "fragile":
        found.append(
            "memory is fragile: the prediction is close under the capacity, and fragmentation can "
            "exceed it; first try expandable allocator segments"
        )
    return tuple(found)


def _nothing(ctx: CostContext, scenario: Scenario, base: Plan, table: LayoutTable) -> Plan:
    return replace(
        base,
        nearest_miss=relax.nearest_miss(ctx, scenario.search, table),
        relaxations=tuple(relax.relaxations(scenario)) if base.status == "infeasible" else (),
    )


__all__ = [
    "TARGETS",
    "Comparison",
    "Plan",
    "Scenario",
    "Validation",
    "compare",
    "evaluate",
    "evaluate_many",
    "export_plan",
    "load_scenario",
    "names",
    "plan",
    "read_plan",
    "scenario_of",
    "schema",
    "validate_runs",
]
