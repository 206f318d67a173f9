"""What the host takes to start kernels, and what of it shows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.cost.context import CostContext
from planner.cost.experts import expert_kernels
from planner.cost.layers import share_of
from planner.cost.overlap import beyond
from planner.layouts.layout import LayoutLike, Numeric
from planner.problem.blocks import DENSE, Block, Blocks

KERNELS: Mapping[Block, tuple[float, float]] = {
    "attention": (8.0, 14.0),
    "mlp": (6.0, 10.0),
    "experts": (6.0, 10.0),
    "mamba": (13.0, 27.0),
}
"""Kernels a framework starts for a block of a layer, forward and backward, counted off
Megatron-Core's: of attention and an MLP four matmuls, attention, two norms, two residuals, rotary
embedding, activation and copies; back, twice the matmuls. What routed experts start is apart."""


def host_exposed(ctx: CostContext, starting: Numeric, working: Numeric) -> Numeric:
    """Seconds that starting kernels adds to those they work.

    A host that runs ahead hides behind its kernels. With experts it cannot: it must know how many
    tokens came before it starts their kernels, so the two alternate, and runs of both kinds lie
    near √(host² + work²).
    """
    if ctx.model.moe is None:
        return beyond(starting, working)
    return np.hypot(starting, working) - working


def host_slope(ctx: CostContext, starting: Numeric, working: Numeric) -> Numeric:
    """What a second of work more adds to work and host together, at most 1."""
    if ctx.model.moe is None:
        return 1.0 * (starting <= working)
    return working / np.hypot(starting, working)


def kernel_starts(ctx: CostContext, layout: LayoutLike, again: Numeric) -> Numeric:
    """Kernels that the host starts one by one per layer and micro-batch; graphs start at once."""
    graphs = ctx.training.cuda_graphs
    if graphs == "full":
        return 0.0
    starts: Numeric = 0.0
    if graphs == "none":
        forward, backward = layer_kernels(ctx)
        starts = forward * (1 + again[2]) + backward
    if ctx.model.moe is not None:
        forward, backward = expert_kernels(ctx, ctx.model.moe, layout)
        share = share_of(ctx.kinds, "experts")
        starts = starts + share * (forward * (1 + again[4]) + backward)
        starts = starts * (1 + (INTERLEAVED_STARTS - 1) * layout.overlap_ep)
    return starts


def layer_kernels(ctx: CostContext) -> tuple[float, float]:
    """Kernels of the mean layer, forward and backward, but for routed experts'."""
    if ctx.model.layer_pattern is None:
        return _starts(DENSE, 0), _starts(DENSE, 1)
    forward = sum(kind.share * _starts(kind.blocks, 0) for kind in ctx.kinds)
    return forward, sum(kind.share * _starts(kind.blocks, 1) for kind in ctx.kinds)


def _starts(blocks: Blocks, way: int) -> float:
    return sum(KERNELS[block][way] for block in blocks)


INTERLEAVED_STARTS = 1.6
"""Work of the host where layers of two micro-batches alternate: events and a schedule besides."""
