"""Seconds of HBM-bound kernels: norms, residuals, rotation, activations, casts to low precision."""

from __future__ import annotations

import numpy as np

from planner.cost.context import CostContext
from planner.cost.layers import key_value_sizes, shared_ffn
from planner.layouts.layout import Numeric
from planner.problem.blocks import Blocks
from planner.problem.precision import RECIPES


def stream(ctx: CostContext, num_bytes: Numeric, num_kernels: float = 1.0) -> Numeric:
    """Seconds of memory-bound kernels: traffic at the achieved HBM rate and a start each."""
    start = num_kernels * ctx.gemm_16.overhead_seconds
    return num_bytes / ctx.hbm_bytes_per_second + start


FUSED_PASSES = {
    "residual": (3.0, 3.0),
    "norm": (2.0, 3.0),
    "head_norm": (2.0, 2.0),
    "rotary": (2.0, 2.0),
    "gated": (3.0, 5.0),
    "ungated": (2.0, 3.0),
}
"""Times an element of 16 bits passes HBM in one kernel, forward and backward: of both residuals
and norms, of queries and keys, of the activation's output."""

EAGER_PASSES = {"norm": (18.0, 46.0), "rotary": (10.0, 14.0), "gated": (5.0, 9.0)}
"""The same operator by operator, as PyTorch runs it without fused kernels; bytes of each below.

norm, y = w · (x₃₂ · rsqrt(mean(x₃₂²) + ε))₁₆: to FP32 2+4, square 4+4, mean 4, product 4+4, to
16 bits 4+2, scale 2+2. Back: scale 2+2 and, for its gradient, 4+2 and 2; from 16 bits 2+4; product
4+4 and, for the root's, 8+4 and 4; mean 4; square (power, factor, product) 8, 8, 12; sum of both
paths 8+4; from FP32 4+2.
rotary, x · cos + rotate(x) · sin: negate a half 1+1, join 2+2, products 2+2 each, sum 4+2. Back:
products 2+2 each, negate 1+1, halves with zeros around them 1+2 each, two sums 4+2 each.
gated, silu(a) · b: 2+2, 4+2; back 4+2 for each factor, silu 4+2."""

EAGER_KERNELS = {"norm": (14.0, 30.0), "rotary": (8.0, 12.0), "gated": (1.0, 2.0)}
"""Kernels that takes beyond fused ones: of both norms, of queries and keys, of the activation."""


def memory_bound_seconds(
    ctx: CostContext, blocks: Blocks, tokens: Numeric, tp: Numeric, sp: Numeric
) -> tuple[Numeric, Numeric]:
    """Norms, residuals, rotary embedding and activation of one layer, forward and backward.

    The software's multiplier stands for what its kernels move beyond the fused minimum; what runs
    operator by operator moves what each operator does.
    """
    model, software, number = ctx.model, ctx.software, len(blocks)
    norms = model.num_norms(blocks)
    keys, _ = key_value_sizes(model, tp)
    attends, feeds = "attention" in blocks, "mlp" in blocks or "experts" in blocks
    rotates = attends and model.num_position_embeddings == 0
    whole = tokens / np.where(sp, tp, 1)  # tokens that norms and residuals see
    elements = {
        "residual": whole * number * model.hidden_size,
        "norm": whole * norms * model.hidden_size,
        "head_norm": tokens / tp * (attends and model.qk_norm) * (ctx.query_size + keys),
        "rotary": tokens / tp * rotates * (ctx.query_size + keys),
        "gated" if model.gated_mlp else "ungated": tokens / tp * shared_ffn(model, blocks),
    }
    mask = 0.5 if model.dropout else 0.0  # one byte per element, in elements of two
    eager = {
        "norm": software.eager_norm * norms / 2,  # of both norms
        "rotary": software.eager_elementwise and rotates,
        "gated": software.eager_elementwise and feeds,
    }

    def seconds(way: int, num_kernels: float) -> Numeric:
        fused, moved = mask * elements["residual"], 0.0
        for part, count in elements.items():
            if eager.get(part):
                moved = moved + EAGER_PASSES[part][way] * count
                num_kernels += EAGER_KERNELS[part][way] * eager[part]
            else:
                fused = fused + FUSED_PASSES[part][way] * count
        moved = moved + software.coefficients.memory_bound_multiplier * fused
        return stream(ctx, ctx.element_bytes * moved, num_kernels)

    kernels = norms + rotates
    return seconds(0, 2 * number + kernels), seconds(1, 3 * number + kernels)


def quantise_seconds(
    ctx: CostContext, blocks: Blocks, tokens: Numeric, tp: Numeric
) -> tuple[Numeric, Numeric]:
    """Casting a layer's matmul inputs and gradients to FP8 or FP4; nothing in 16 bits."""
    if not ctx.low_precision:
        return 0.0, 0.0
    model, h, ffn = ctx.model, ctx.model.hidden_size, shared_ffn(ctx.model, blocks)
    up = (2 * ffn if model.gated_mlp else ffn) * (ffn > 0)
    into = h * (ffn > 0)
    mixed, mixes = 0, 0.0  # gradients of what goes into a mixer's core, and what comes out
    kernels = 2 * len(blocks)
    if "attention" in blocks:
        mixed, mixes, into = ctx.output_size, ctx.query_size + ctx.keys_values_size(tp), h + into
    elif "mamba" in blocks and model.mamba is not None:
        mixed, mixes, into = model.mamba.inner_size, model.mamba.projected_size, h + into
    inputs, gradients = into + (mixed + ffn) / tp, into + (mixes + up) / tp
    weights = h * (mixes + mixed + up + ffn) / tp
    return cast_seconds(ctx, tokens * inputs, tokens * gradients, weights, kernels)


def cast_seconds(
    ctx: CostContext, inputs: Numeric, gradients: Numeric, weights: Numeric, num_kernels: float
) -> tuple[Numeric, Numeric]:
    """Casting elements of matmuls' inputs, their outputs' gradients and their weights, forward and
    backward, as the recipe does; nothing in 16 bits."""
    if not ctx.low_precision:
        return 0.0, 0.0
    casts = RECIPES[ctx.training.precision].casts

    def moved(passes: tuple[float, float]) -> float:
        reads, writes = passes
        return reads * ctx.element_bytes + writes * ctx.matmul_bytes

    forward = moved(casts.input_forward) * inputs
    backward = moved(casts.gradient) * gradients
    if casts.input_backward != (0.0, 0.0):
        backward = backward + moved(casts.input_backward) * inputs
        forward = forward + moved(casts.weight_forward) * weights
        backward = backward + moved(casts.weight_backward) * weights
    return stream(ctx, forward, num_kernels), stream(ctx, backward, num_kernels)
