"""What the host takes to start kernels, and what of it shows."""

from __future__ import annotations

import numpy as np

from planner.cost.compute import KERNELS_PER_LAYER_BACKWARD, KERNELS_PER_LAYER_FORWARD
from planner.cost.context import CostContext
from planner.cost.experts import expert_kernels
from planner.cost.overlap import beyond
from planner.layout import LayoutLike, Numeric


def host_exposed(ctx: CostContext, starting: Numeric, working: Numeric) -> Numeric:
    """Seconds that starting kernels adds to those they work.

    A host that runs ahead hides behind its kernels. With experts it cannot: it must know how many
    tokens came before it starts their kernels, so the two alternate, and runs of both kinds lie
    near √(host² + work²).
    """
    if ctx.model.moe is None:
        return beyond(starting, working)
    return np.hypot(starting, working) - working


def kernel_starts(ctx: CostContext, layout: LayoutLike, again: Numeric) -> Numeric:
    """Kernels that the host starts one by one per layer and micro-batch; graphs start at once."""
    graphs = ctx.training.cuda_graphs
    if graphs == "full":
        return 0.0
    starts: Numeric = 0.0
    if graphs == "none":
        starts = KERNELS_PER_LAYER_FORWARD * (1 + again[2]) + KERNELS_PER_LAYER_BACKWARD
    if ctx.model.moe is not None:
        forward, backward = expert_kernels(ctx, ctx.model.moe, layout)
        share = sum(kind.share for kind in ctx.kinds if kind.experts)
        starts = starts + share * (forward * (1 + again[4]) + backward)
        starts = starts * (1 + (INTERLEAVED_STARTS - 1) * layout.overlap_ep)
    return starts


INTERLEAVED_STARTS = 1.6
"""Work of the host where layers of two micro-batches alternate: events and a schedule besides."""
