"""The plan that advice starts from, and what a change to it would cost: evaluated, not guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from planner.cost import step
from planner.cost.context import CostContext, TierArrays
from planner.cost.memory import VERDICTS
from planner.errors import IllegalLayoutError, InputError, PlannerError
from planner.inputs.quantities import Figure
from planner.layouts.grids import GROUPS
from planner.layouts.layout import Layout
from planner.planning.assess import memory_report
from planner.planning.plan import Plan
from planner.planning.solve import evaluate, plan
from planner.problem.scenario import Scenario, scenario_from_document, scenario_to_document
from planner.search.space.given import given_layout

Splits = Mapping[str, Sequence[float]]

CHOSEN = (
    "tp", "cp", "pp", "dp_shard", "dp_replicate", "vp", "mbs", "zero_stage", "recompute",
    "recompute_layers", "cp_kind", "cp_a2a", "dispatcher", "ep", "etp", "overlap",
    "offload",
)  # fmt: skip
"""Layout keys a changed layout keeps; the others follow from them."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A plan with a layout, and what costing it again needs."""

    scenario: Scenario
    plan: Plan
    ctx: CostContext
    layout: Layout
    splits: Splits
    step_seconds: float

    @classmethod
    def of(cls, scenario: Scenario, plan: Plan) -> Baseline:
        """The baseline of a plan of this scenario.

        Raises:
            InputError: the plan holds no layout.
        """
        if plan.layout is None or plan.step_seconds is None:
            raise InputError("a plan without a layout cannot be explained", key="PLAN")
        ctx = CostContext.of(scenario)
        splits = {
            name: [plan.groups[name].split[tier] for tier in ctx.topology.tier_names]
            if name in plan.groups
            else [1.0] * len(ctx.topology.tiers)
            for name in GROUPS
        }
        layout = given_layout(ctx, plan.layout.to_document(), "plan: layout")
        return cls(scenario, plan, ctx, layout, splits, plan.step_seconds)

    def step(self, ctx: CostContext | None = None, layout: Layout | None = None) -> float:
        """Seconds of a step in the plan's own places, under another context or layout."""
        spent = step.evaluate(ctx or self.ctx, layout or self.layout, self.splits)
        return float(spent.total)


@dataclass(frozen=True, slots=True)
class Change:
    """Keys of the scenario (as --set takes them) and of the layout that become others.

    Ranks stay where they are unless a degree changes or `replaced` asks for the best place.
    `text` says what was chosen where several changes serve one end.
    """

    set: Mapping[str, str | int | float] = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)
    replaced: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of a step with the change, or why it cannot be made."""

    step_seconds: float | None
    infeasible: str | None = None


def try_change(base: Baseline, change: Change, limited: bool = True) -> Outcome:
    """What the model predicts with a change made.

    limited: within the memory there is and the scenario's `search:` restrictions.
    """
    if limited and (reason := _restricted(base, change)):
        return Outcome(None, reason)
    try:
        scenario = changed_scenario(base.scenario, base.plan.inputs, change.set)
        ctx = CostContext.of(scenario)
        layout = given_layout(ctx, changed_layout(base, change.layout))
    except IllegalLayoutError as error:
        return Outcome(None, f"{error.message} (rule {error.rule})")
    except InputError as error:
        return Outcome(None, error.message)
    if limited and (reason := _too_big(base, ctx, layout)):
        return Outcome(None, reason)
    if _degrees(layout) == _degrees(base.layout) and not change.replaced:
        return Outcome(base.step(ctx, layout))
    return Outcome(evaluate(scenario, layout).step_seconds)


def _degrees(layout: Layout) -> tuple[int, ...]:
    return (*layout.degrees(), layout.ep, layout.etp)


def _restricted(base: Baseline, change: Change) -> str | None:
    for key, value in change.layout.items():
        allowed = getattr(base.scenario.search, key, None)
        if allowed is not None and value not in allowed:
            return f"the scenario's search: allows {key} {', '.join(map(str, allowed))}"
    return None


def _too_big(base: Baseline, ctx: CostContext, layout: Layout) -> str | None:
    memory = memory_report(ctx, layout)
    accepted = {base.scenario.search.memory, base.plan.memory.verdict if base.plan.memory else ""}
    if VERDICTS.index(memory.verdict) <= max(VERDICTS.index(v) for v in accepted if v):
        return None
    fragile = "fragile: " if memory.verdict == "fragile" else ""
    return (
        f"{fragile}it needs {memory.peak_bytes / 1e9:.1f} of {memory.capacity_bytes / 1e9:.1f} GB"
    )


def changed_scenario(
    scenario: Scenario, document: Mapping[str, Any], keys: Mapping[str, str | int | float]
) -> Scenario:
    """The scenario with dotted keys of its document set.

    Raises:
        InputError: the changed scenario is not valid.
    """
    if not keys:
        return scenario
    changed: Any = deepcopy(dict(document))
    for key, value in keys.items():
        *path, last = key.split(".")
        part = changed
        for name in path:
            part = part[int(name)] if isinstance(part, list | tuple) else part[name]
        part[last] = value
    return scenario_from_document(changed, "the changed scenario")


def changed_layout(base: Baseline, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The layout's keys with some changed; what follows from them is left to follow."""
    values = {key: getattr(base.layout, key) for key in CHOSEN} | dict(keys)
    if "recompute" in keys:  # the count is of the former one
        values["recompute_layers"] = keys.get("recompute_layers")
    if base.layout.schedule not in ("1f1b", "interleaved") and values["pp"] > 1:
        values.setdefault("schedule", base.layout.schedule)
    if base.ctx.software.sequence_parallel == "optional" and "sp" not in keys:
        values["sp"] = base.layout.sp and values["tp"] > 1
    split = base.layout.stage_layers
    if split is not None and values["pp"] == base.layout.pp and "stage_layers" not in keys:
        values["stage_layers"] = split
    return values


# ---------------------------------------------------------------- planned anew

Say = Callable[[str], None]


@dataclass
class Planner:
    """Plans scenarios, one layout each; tells `say` before each, and counts them."""

    say: Say | None = None
    made: int = 0

    def best(self, scenario: Scenario, text: str, reasons: bool = False) -> Plan:
        """The best plan of a scenario; where nothing fits, with reasons if they are asked for."""
        if self.say is not None:
            self.say(text)
        self.made += 1
        return plan(scenario, 1, reasons=reasons)


def changed(scenario: Scenario, keys: Mapping[str, Any]) -> Scenario:
    """The scenario with dotted keys set.

    Raises:
        InputError: the changed scenario is not valid.
    """
    return changed_scenario(scenario, scenario_to_document(scenario), keys)


def step_of(scenario: Scenario, layout: Layout) -> float | None:
    """The least step of a layout in a scenario, at the upper end of its bar where the search is
    robust; None where it is not legal or does not fit, so too."""
    free = scenario.replace(search=scenario.search.replace(tie_fraction=0.0))
    try:
        found = evaluate(free, layout)
    except PlannerError:
        return None
    memory, robust = found.memory, scenario.search.robust
    if memory is None or memory.verdict not in _accepted(scenario):
        return None
    if robust and (memory.peak_high_bytes or 0.0) > memory.capacity_bytes:
        return None
    return found.step_seconds_high if robust else found.step_seconds


def _accepted(scenario: Scenario) -> tuple[str, ...]:
    return ("fits", "fragile") if scenario.search.memory == "fragile" else ("fits",)


# ---------------------------------------------------------------- slower and faster machines


def what_if(value: float) -> Figure:
    """A figure that nobody measured."""
    return Figure(value, "what-if", "assumed")


def with_hbm_faster(ctx: CostContext, factor: float) -> CostContext:
    """The context with an HBM of `factor` times the bandwidth."""
    rate = what_if(float(ctx.accelerator.hbm_bytes_per_second) * factor)
    return replace(
        ctx,
        hbm_bytes_per_second=ctx.hbm_bytes_per_second * factor,
        accelerator=ctx.accelerator.replace(hbm_bytes_per_second=rate),
    )


def with_slow_tier(ctx: CostContext, position: int, factor: float) -> CostContext:
    """The context with one tier's links `factor` times slower."""
    tiers = list(ctx.topology.tiers)
    tier = tiers[position]
    rate = float(tier.link_bytes_per_second) / factor
    tiers[position] = tier.replace(bandwidth=what_if(rate))
    topology = ctx.topology.replace(tiers=tuple(tiers))
    return replace(ctx, topology=topology, tiers=TierArrays.of(topology))


def with_slow_ranks(ctx: CostContext, factor: float) -> CostContext:
    """The context with matmuls, attention and memory `factor` times slower."""
    slowed = with_hbm_faster(ctx, 1.0 / factor)
    return replace(
        slowed,
        sustained_flops=ctx.sustained_flops / factor,
        sustained_16_flops=ctx.sustained_16_flops / factor,
    )


def with_coefficient(ctx: CostContext, name: str, value: float) -> CostContext:
    """The context with one coefficient of the software changed."""
    coefficients = ctx.software.coefficients.replace(**{name: what_if(value)})
    return replace(ctx, software=ctx.software.replace(coefficients=coefficients))
