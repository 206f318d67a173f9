"""The plan that advice starts from, and its step on machines that are slower or faster.

Every figure is evaluated with the cost model in the plan's own places, none is estimated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cost import step
from planner.cost.context import CostContext, TierArrays
from planner.errors import InputError
from planner.inputs.quantities import Figure
from planner.layouts.grids import GROUPS
from planner.layouts.layout import Layout
from planner.planning.groups import Splits
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario
from planner.search.space.given import given_layout


@dataclass(frozen=True, slots=True)
class Baseline:
    """A plan with a layout, and what costing its step again needs.

    layout: without a stage split where that is the default one. splits: of every group, in the
    plan's own places.
    """

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
        terms = step.evaluate(ctx or self.ctx, layout or self.layout, self.splits)
        return float(terms.total)


# ---------------------------------------------------------------- slower and faster machines


def hypothetical(value: float) -> Figure:
    """A figure that nobody measured."""
    return Figure(value, "what-if", "assumed")


def with_hbm_faster(ctx: CostContext, factor: float) -> CostContext:
    """The context with an HBM of `factor` times the bandwidth."""
    rate = hypothetical(float(ctx.accelerator.hbm_bytes_per_second) * factor)
    return replace(
        ctx,
        hbm_bytes_per_second=ctx.hbm_bytes_per_second * factor,
        accelerator=ctx.accelerator.replace(hbm_bytes_per_second=rate),
    )


def with_slow_tier(ctx: CostContext, position: int, factor: float) -> CostContext:
    """The context with the links of one tier `factor` times slower."""
    tiers = list(ctx.topology.tiers)
    tier = tiers[position]
    rate = float(tier.link_bytes_per_second) / factor
    tiers[position] = tier.replace(bandwidth=hypothetical(rate))
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
    coefficients = ctx.software.coefficients.replace(**{name: hypothetical(value)})
    return replace(ctx, software=ctx.software.replace(coefficients=coefficients))
