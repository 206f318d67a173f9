"""Cost contexts of machines that are slower or faster in one respect."""

from __future__ import annotations

from dataclasses import replace

from planner.cost.context import CostContext, TierArrays
from planner.inputs.quantities import Figure


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
