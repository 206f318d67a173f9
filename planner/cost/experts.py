"""Seconds of a layer's routed experts on one rank, and the tokens that travel to them.

Of the t tokens a rank holds (its shard of the sequence, cut over tp by sequence parallelism) top_k
copies each leave for the experts; where the routing is even, as many come in. A rank of an etp
group computes its share of every expert's feed-forward size for the tokens of the whole group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.compute import gemm
from planner.cost.context import CostContext
from planner.cost.elementwise import cast_seconds, stream
from planner.cost.layers import expert_matmuls
from planner.layouts.layout import DISPATCHERS, LayoutLike, Numeric
from planner.problem.blocks import MoE


@dataclass(frozen=True, slots=True)
class ExpertTimes:
    """Routed experts of one layer, one micro-batch, one rank; seconds."""

    gemm_forward: Numeric
    gemm_backward: Numeric
    memory_forward: Numeric  # router, permutation, activation, casts
    memory_backward: Numeric
    gemm_weights: Numeric  # part of gemm_backward: gradients of weights; 0 where none run apart


def own_tokens(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Tokens of a micro-batch that a rank routes: its shard, cut by sequence parallelism."""
    cut = np.where(np.asarray(layout.sp) > 0, layout.tp, 1)
    return layout.mbs * ctx.training.sequence_length / layout.cp / cut


def imbalance(ctx: CostContext, moe: MoE, ep: Numeric) -> Numeric:
    """Rows of the fullest rank's experts over the mean rank's.

    With a coefficient of variation c of the tokens of an expert, the load of the n = E/ep on a rank
    varies by c/√n, and the greatest of ep such loads lies near 1 + c/√n·√(2·ln ep); a rank cannot
    have more than all, ep times the mean.
    """
    variation = ctx.training.expert_load_variation
    per_rank = np.maximum(moe.num_experts / ep, 1.0)
    greatest = 1.0 + variation / np.sqrt(per_rank) * np.sqrt(2.0 * np.log(ep))
    return np.minimum(greatest, ep)


ROUTER_BYTES = 24.0
"""Per token and expert: FP32 scores written and read, top-k, softmax, and the map they make."""

PERMUTE_PASSES, FUSED_PASSES = 10.0, 8.0
"""Times a token's copies pass HBM in one direction of a layer: permuted (read, write), sent (read),
received (write), sorted by expert (read, write), and back again the same way without the last
reading and writing. `flex` writes copies where they belong, so nothing is sorted."""


def expert_times(
    ctx: CostContext,
    moe: MoE,
    tokens: Numeric,
    ep: Numeric,
    etp: Numeric,
    dispatcher_index: Numeric,
) -> ExpertTimes:
    """Times of the experts for `tokens` a rank holds; the fullest rank's rows count."""
    model, software = ctx.model, ctx.software
    h, f, w = model.hidden_size, moe.expert_ffn_hidden_size, model.expert_hidden_size
    copies = tokens * moe.top_k
    rows = copies * etp * imbalance(ctx, moe, ep)
    groups = np.maximum(moe.num_experts / ep, 1.0)
    per_expert = rows / groups
    forward, backward, weights = 0.0, 0.0, 0.0
    for matmul in expert_matmuls(model, f, etp):
        n, k = matmul.outputs, matmul.inputs
        forward = forward + _grouped(ctx, groups, per_expert, n, k, ctx.element_bytes)
        backward = backward + _grouped(ctx, groups, per_expert, k, n, ctx.element_bytes)
        weight = _grouped(ctx, groups, n, k, per_expert, 2 * software.gradient_bytes)
        backward, weights = backward + weight, weights + weight
    flex = np.asarray(dispatcher_index) == DISPATCHERS.index("flex")
    passes = np.where(flex, FUSED_PASSES, PERMUTE_PASSES)
    up = 2 * f if model.gated_mlp else f
    act_forward, act_backward = (3 * f, 5 * f) if model.gated_mlp else (2 * f, 3 * f)
    permuted = passes * copies * w + 3 * tokens * h
    multiplier = software.coefficients.memory_bound_multiplier
    router = tokens * moe.num_experts * ROUTER_BYTES
    e = ctx.element_bytes
    elements = groups * w * (up + f) / etp
    cast = cast_seconds(ctx, rows * (w + f / etp), rows * (w + up / etp), elements, 2)
    return ExpertTimes(
        gemm_forward=forward,
        gemm_backward=backward,
        memory_forward=stream(
            ctx, multiplier * (e * (permuted + rows * act_forward / etp) + router), 12
        )
        + cast[0],
        memory_backward=stream(
            ctx, multiplier * (e * (permuted + rows * act_backward / etp) + router), 12
        )
        + cast[1],
        gemm_weights=0.0 if software.only_1f1b else weights,
    )


def _grouped(
    ctx: CostContext, groups: Numeric, m: Numeric, n: Numeric, k: Numeric, output_bytes: float
) -> Numeric:
    """Seconds of one matmul per expert of the rank: one after another, or all in one kernel."""
    rows, depth = np.maximum(m, 1.0), np.maximum(k, 1.0)
    if not ctx.software.groups_matmuls:
        return groups * gemm(ctx, rows, n, depth, output_bytes)
    return gemm(ctx, rows, n, depth, output_bytes, num_groups=groups)


KERNELS_PER_EXPERT_FORWARD, KERNELS_PER_EXPERT_BACKWARD = 6.0, 11.0
KERNELS_AROUND_FORWARD, KERNELS_AROUND_BACKWARD = 40.0, 40.0
"""Starts of a framework for a layer's experts: for each expert two matmuls and their casts, then
four (Transformer Engine's grouped linear starts them one by one), and router, permutations,
exchanges and their bookkeeping around them."""


def expert_kernels(ctx: CostContext, moe: MoE, layout: LayoutLike) -> tuple[Numeric, Numeric]:
    """Kernels that a layer's experts start, forward and backward."""
    experts = np.maximum(moe.num_experts / layout.ep, 1.0)
    if ctx.software.groups_matmuls:
        experts = np.ones_like(experts)
    return (
        KERNELS_AROUND_FORWARD + KERNELS_PER_EXPERT_FORWARD * experts,
        KERNELS_AROUND_BACKWARD + KERNELS_PER_EXPERT_BACKWARD * experts,
    )
