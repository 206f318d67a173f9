"""Seconds of a layer's routed experts on one rank, and the tokens that travel to them.

Of the t tokens a rank holds (its shard of the sequence, cut over tp by sequence parallelism) top_k
copies each leave for the experts; where the routing is even, as many come in. A rank of an etp
group computes its share of every expert's feed-forward size for the tokens of the whole group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from planner.cost.compute import MatmulTimes, gemm
from planner.cost.context import CostContext
from planner.cost.elementwise import CastElements, cast_seconds, streamed
from planner.cost.kernels import GemmSizes
from planner.cost.layers import expert_matmuls
from planner.cost.passes import ForwardBackward
from planner.layouts.keys import DISPATCHERS
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Integer, Numeric
from planner.problem.blocks import MoE


@dataclass(frozen=True, slots=True)
class ExpertTimes:
    """Seconds of the routed experts of one layer, one micro-batch, one rank."""

    gemm: ForwardBackward
    memory_bound: ForwardBackward  # router, permutation, activation, casts
    weight_gradients: Numeric  # of gemm.backward; 0 where the software never runs them apart


@dataclass(frozen=True, slots=True)
class ExpertShare:
    """What of a layout the experts' kernels depend on.

    sequence_cut: the tp ranks that share a sequence shard's tokens, 1 without sequence parallelism.
    """

    mbs: Integer
    cp: Integer
    sequence_cut: Integer
    ep: Integer
    etp: Integer
    dispatcher_index: Integer

    def tokens(self, ctx: CostContext) -> Numeric:
        """Tokens of a micro-batch that a rank routes."""
        return self.mbs * ctx.training.sequence_length / self.cp / self.sequence_cut


def sequence_cut(layout: LayoutLike) -> Integer:
    """Ranks that share a sequence shard's tokens between matmuls: tp with sequence parallelism."""
    return np.where(np.asarray(layout.sp) > 0, layout.tp, 1)


def own_tokens(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Tokens of a micro-batch that a rank routes: its shard, cut by sequence parallelism."""
    return layout.mbs * ctx.training.sequence_length / layout.cp / sequence_cut(layout)


def imbalance(ctx: CostContext, moe: MoE, ep: Integer) -> Numeric:
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

PERMUTATION_PASSES: Mapping[str, float] = {"alltoall": 10.0, "flex": 8.0, "allgather": 10.0}
"""Times a token's copies pass HBM in one direction of a layer, by dispatcher: permuted (read,
write), sent (read), received (write), sorted by expert (read, write), and back again the same way
without the last reading and writing. `flex` writes copies where they belong: nothing is sorted."""

_PERMUTATION_PASSES = np.array([PERMUTATION_PASSES[name] for name in DISPATCHERS])

BIAS_BYTES = ForwardBackward(28.0, 40.0)
CLAMP_BYTES = ForwardBackward(16.0, 34.0)
"""Bytes of HBM traffic per routed row: of the experts' biases, an element of the hidden size, and
of a clamped activation, an element of the experts' feed-forward size. Megatron-Core adds biases
expert by expert in FP32 (split, product with the routing weight, sum, cat) and clamps with kernels
of their own (megatron-core 0.15, transformer/moe/experts.py and fusions/fused_bias_swiglu.py)."""

BIAS_KERNELS = ForwardBackward(2.0, 8.0)
"""Kernels that the same starts for each expert."""

MEMORY_BOUND_KERNELS = 12.0
"""Kernels of a layer's router, permutations and activation, in each pass."""


def expert_times(ctx: CostContext, moe: MoE, share: ExpertShare) -> ExpertTimes:
    """Seconds of the experts' kernels for the tokens that ranks hold; the fullest rank counts."""
    copies = share.tokens(ctx) * moe.top_k
    rows = copies * share.etp * imbalance(ctx, moe, share.ep)
    matmuls = _matmuls(ctx, moe, share, rows)
    return ExpertTimes(
        gemm=matmuls.both,
        memory_bound=_memory_bound(ctx, moe, share, rows) + _casts(ctx, moe, share, rows),
        weight_gradients=0.0 if ctx.software.only_1f1b else matmuls.weight_gradients,
    )


def experts_per_rank(moe: MoE, ep: Integer) -> Numeric:
    """Experts of one layer on one rank, 1 at least."""
    return np.maximum(moe.num_experts / ep, 1.0)


def _matmuls(ctx: CostContext, moe: MoE, share: ExpertShare, rows: Numeric) -> MatmulTimes:
    """Seconds of the matmuls of a rank's experts, for so many rows in all."""
    groups = experts_per_rank(moe, share.ep)
    per_expert = rows / groups
    times = MatmulTimes(ForwardBackward(0.0, 0.0), 0.0)
    for matmul in expert_matmuls(ctx.model, moe.expert_ffn_hidden_size, share.etp):
        n, k = matmul.outputs, matmul.inputs
        forward = _grouped(ctx, GemmSizes(per_expert, n, k, groups), ctx.element_bytes)
        data = _grouped(ctx, GemmSizes(per_expert, k, n, groups), ctx.element_bytes)
        weight_sizes = GemmSizes(n, k, per_expert, groups)
        weight = _grouped(ctx, weight_sizes, 2 * ctx.software.gradient_bytes)
        times = times + MatmulTimes(ForwardBackward(forward, data), 0.0)
        times = times + MatmulTimes(ForwardBackward(0.0, weight), weight)
    return times


def _grouped(ctx: CostContext, sizes: GemmSizes, output_bytes: float) -> Numeric:
    """Seconds of one matmul per expert of the rank: one after another, or all in one kernel."""
    rows, depth = np.maximum(sizes.m, 1.0), np.maximum(sizes.k, 1.0)
    if not ctx.software.groups_matmuls:
        return sizes.num_groups * gemm(ctx, GemmSizes(rows, sizes.n, depth), output_bytes)
    return gemm(ctx, GemmSizes(rows, sizes.n, depth, sizes.num_groups), output_bytes)


def _memory_bound(ctx: CostContext, moe: MoE, share: ExpertShare, rows: Numeric) -> ForwardBackward:
    """Seconds of the router, the permutations of tokens and the experts' activation."""
    model, tokens, f = ctx.model, share.tokens(ctx), moe.expert_ffn_hidden_size
    passes = _PERMUTATION_PASSES[share.dispatcher_index]
    permuted = passes * (tokens * moe.top_k) * model.expert_hidden_size
    permuted = permuted + 3 * tokens * model.hidden_size
    router = tokens * moe.num_experts * ROUTER_BYTES
    biased = 1.0 * model.has_bias("mlp")
    unfused = BIAS_BYTES.times(biased * model.expert_hidden_size)
    unfused = unfused + CLAMP_BYTES.times(1.0 * model.clamped_activation * f / share.etp)
    starts = BIAS_KERNELS.times(biased * experts_per_rank(moe, share.ep))
    # elements an activation reads and writes: a gated one has two inputs
    activation = ForwardBackward(3 * f, 5 * f) if model.gated_mlp else ForwardBackward(2 * f, 3 * f)

    def num_bytes(activated: Numeric) -> Numeric:
        moved = ctx.element_bytes * (permuted + rows * activated / share.etp) + router
        return ctx.software.coefficients.memory_bound_multiplier * moved

    fused = ForwardBackward(num_bytes(activation.forward), num_bytes(activation.backward))
    usual = ForwardBackward(MEMORY_BOUND_KERNELS, MEMORY_BOUND_KERNELS)
    return streamed(ctx, fused + unfused.times(rows), usual + starts)


def _casts(ctx: CostContext, moe: MoE, share: ExpertShare, rows: Numeric) -> ForwardBackward:
    """Seconds of casting the experts' inputs, gradients and weights to low precision."""
    width, f = ctx.model.expert_hidden_size, moe.expert_ffn_hidden_size
    up = 2 * f if ctx.model.gated_mlp else f
    elements = CastElements(
        inputs=rows * (width + f / share.etp),
        gradients=rows * (width + up / share.etp),
        weights=experts_per_rank(moe, share.ep) * width * (up + f) / share.etp,
    )
    return cast_seconds(ctx, elements, 2)


KERNELS_PER_EXPERT = ForwardBackward(6.0, 11.0)
KERNELS_AROUND = ForwardBackward(40.0, 40.0)
"""Starts of a framework for a layer's experts: for each expert two matmuls and their casts, then
four (Transformer Engine's grouped linear starts them one by one), and router, permutations,
dispatch, combine and their bookkeeping around them."""


def expert_kernels(ctx: CostContext, moe: MoE, layout: LayoutLike) -> ForwardBackward:
    """Kernels that a layer's experts start."""
    experts = experts_per_rank(moe, layout.ep)
    if ctx.software.groups_matmuls:
        experts = np.ones_like(experts)
    return KERNELS_AROUND + KERNELS_PER_EXPERT.times(experts)
