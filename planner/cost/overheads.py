"""What a step takes besides kernels and traffic: the host that launches kernels, and stragglers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.cost.context import CostContext
from planner.cost.experts import expert_kernels
from planner.cost.layers import share_of
from planner.cost.overlap import beyond
from planner.cost.passes import ForwardBackward
from planner.cost.recompute import RecomputedShares
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Numeric
from planner.problem.blocks import DENSE, Block, Blocks

BLOCK_KERNELS: Mapping[Block, ForwardBackward] = {
    "attention": ForwardBackward(8.0, 14.0),
    "mlp": ForwardBackward(6.0, 10.0),
    "experts": ForwardBackward(6.0, 10.0),
    "mamba": ForwardBackward(13.0, 27.0),
}
"""Kernels a framework launches for a block of a layer, counted off Megatron-Core's: of attention
and an MLP four matmuls, attention, two norms, two residuals, rotary embedding, activation and
copies; back, twice the matmuls. What routed experts launch is apart."""

OVERLAPPED_LAUNCHES = 1.6
"""Work of the host where layers of two micro-batches alternate: events and a schedule besides."""


def kernel_launches(ctx: CostContext, layout: LayoutLike, recomputed: RecomputedShares) -> Numeric:
    """Kernels that the host launches one by one, a layer and micro-batch; graphs count as none."""
    graphs = ctx.training.cuda_graphs
    if graphs == "full":
        return 0.0
    launches: Numeric = 0.0
    if graphs == "none":
        kernels = layer_kernels(ctx)
        launches = kernels.forward * (1 + recomputed.memory_bound) + kernels.backward
    if ctx.model.moe is not None:
        kernels = expert_kernels(ctx, ctx.model.moe, layout)
        share = share_of(ctx.layer_kinds, "experts")
        of_experts = kernels.forward * (1 + recomputed.experts) + kernels.backward
        launches = launches + share * of_experts
        if graphs == "none":
            launches = launches * (1 + (OVERLAPPED_LAUNCHES - 1) * layout.overlap_ep)
    return launches


def layer_kernels(ctx: CostContext) -> ForwardBackward:
    """Kernels of the mean layer, but for routed experts'."""
    if ctx.model.layer_pattern is None:
        return _kernels_of(DENSE)
    kernels = ForwardBackward(0.0, 0.0)
    for kind in ctx.layer_kinds:
        kernels = kernels + _kernels_of(kind.blocks).times(kind.share)
    return kernels


def _kernels_of(blocks: Blocks) -> ForwardBackward:
    kernels = ForwardBackward(0.0, 0.0)
    for block in blocks:
        kernels = kernels + BLOCK_KERNELS[block]
    return kernels


def host_exposed(ctx: CostContext, launching: Numeric, working: Numeric) -> Numeric:
    """Seconds that launching kernels adds to those they work.

    A host that runs ahead hides behind its kernels. With experts it cannot: it must know how many
    tokens came before it launches their kernels, so the two alternate, and runs of both kinds lie
    near √(host² + work²).
    """
    if ctx.model.moe is None:
        return beyond(launching, working)
    both: Numeric = np.hypot(launching, working)
    return both - working


def host_slope(ctx: CostContext, launching: Numeric, working: Numeric) -> Numeric:
    """What a second of work more adds to work and host together, at most 1."""
    if ctx.model.moe is None:
        return 1.0 * (launching <= working)
    both: Numeric = np.hypot(launching, working)
    return working / both


def straggler_seconds(ctx: CostContext, layout: LayoutLike, running: Numeric) -> Numeric:
    """Seconds that the slowest rank of a stage adds to `running`: a share for each doubling.

    Ranks of a stage wait for each other at every exchange of weights and gradients; between stages
    the micro-batches in flight leave slack. Doublings count from one innermost domain on.
    """
    ranks = 1.0 * layout.tp * layout.cp * layout.dp_shard * layout.dp_replicate
    doublings = np.log2(np.maximum(1.0, ranks / ctx.topology.widths[0]))
    share = ctx.topology.overheads.straggler_fraction_per_doubling
    return share * doublings * running


def unexplained_seconds(ctx: CostContext, running: Numeric) -> Numeric:
    """Seconds that the software's runs take beyond `running` and that no formula here explains."""
    coefficients = ctx.software.coefficients
    constant = coefficients.unexplained_seconds * (ctx.training.cuda_graphs != "full")
    return coefficients.unexplained_fraction * running + constant
