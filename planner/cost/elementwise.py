"""Seconds of memory-bound kernels: norms, residuals, rotation, activations, low-precision casts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from planner.cost.context import CostContext
from planner.cost.layers import key_value_sizes, shared_ffn
from planner.cost.passes import ForwardBackward
from planner.layouts.numeric import Numeric
from planner.problem.blocks import Blocks
from planner.problem.precision import RECIPES


def stream(ctx: CostContext, num_bytes: Numeric, num_kernels: Numeric = 1.0) -> Numeric:
    """Seconds of memory-bound kernels: traffic at the achieved HBM rate and a start each."""
    start = num_kernels * ctx.gemm_16.overhead_seconds
    return num_bytes / ctx.hbm_bytes_per_second + start


def streamed(
    ctx: CostContext, num_bytes: ForwardBackward, num_kernels: ForwardBackward
) -> ForwardBackward:
    """The same of the kernels of both passes."""
    return ForwardBackward(
        stream(ctx, num_bytes.forward, num_kernels.forward),
        stream(ctx, num_bytes.backward, num_kernels.backward),
    )


FUSED_PASSES: Mapping[str, ForwardBackward] = {
    "residual": ForwardBackward(3.0, 3.0),
    "norm": ForwardBackward(2.0, 3.0),
    "head_norm": ForwardBackward(2.0, 2.0),
    "rotary": ForwardBackward(2.0, 2.0),
    "gated": ForwardBackward(3.0, 5.0),
    "ungated": ForwardBackward(2.0, 3.0),
}
"""Times an element of 16 bits passes HBM in one kernel: of both residuals and norms, of queries and
keys, of the activation's output."""

EAGER_PASSES: Mapping[str, ForwardBackward] = {
    "norm": ForwardBackward(18.0, 46.0),
    "rotary": ForwardBackward(10.0, 14.0),
    "gated": ForwardBackward(5.0, 9.0),
}
"""The same operator by operator, as PyTorch runs it without fused kernels; bytes of each below.

norm, y = w · (x₃₂ · rsqrt(mean(x₃₂²) + ε))₁₆: to FP32 2+4, square 4+4, mean 4, product 4+4, to
16 bits 4+2, scale 2+2. Back: scale 2+2 and, for its gradient, 4+2 and 2; from 16 bits 2+4; product
4+4 and, for the root's, 8+4 and 4; mean 4; square (power, factor, product) 8, 8, 12; sum of both
paths 8+4; from FP32 4+2.
rotary, x · cos + rotate(x) · sin: negate a half 1+1, join 2+2, products 2+2 each, sum 4+2. Back:
products 2+2 each, negate 1+1, halves with zeros around them 1+2 each, two sums 4+2 each.
gated, silu(a) · b: 2+2, 4+2; back 4+2 for each factor, silu 4+2."""

EAGER_KERNELS: Mapping[str, ForwardBackward] = {
    "norm": ForwardBackward(14.0, 30.0),
    "rotary": ForwardBackward(8.0, 12.0),
    "gated": ForwardBackward(1.0, 2.0),
}
"""Kernels that takes beyond fused ones: of both norms, of queries and keys, of the activation."""


def memory_bound_seconds(
    ctx: CostContext, blocks: Blocks, tokens: Numeric, tp: Numeric, sp: Numeric
) -> ForwardBackward:
    """Seconds of norms, residuals, rotary embedding and activation of one layer on one rank.

    tokens: of a micro-batch's sequence shard; sp: whether norms and residuals see 1/tp of them.
    The software's multiplier stands for what its kernels move beyond the fused minimum; what runs
    operator by operator moves what each operator does.
    """
    model, software, num_blocks = ctx.model, ctx.software, len(blocks)
    norms = model.num_norms(blocks)
    keys = key_value_sizes(model, tp).keys
    attends, feeds = "attention" in blocks, "mlp" in blocks or "experts" in blocks
    rotates = attends and model.num_position_embeddings == 0
    norm_tokens = tokens / np.where(sp, tp, 1)
    elements = {
        "residual": norm_tokens * num_blocks * model.hidden_size,
        "norm": norm_tokens * norms * model.hidden_size,
        "head_norm": tokens / tp * (attends and model.qk_norm) * (ctx.query_size + keys),
        "rotary": tokens / tp * rotates * (ctx.query_size + keys),
        "gated" if model.gated_mlp else "ungated": tokens / tp * shared_ffn(model, blocks),
    }
    # how many times what EAGER_PASSES counts runs operator by operator
    eager = {
        "norm": software.eager_norm * norms / 2,  # EAGER_KERNELS counts both norms
        "rotary": float(software.eager_elementwise and rotates),
        "gated": float(software.eager_elementwise and feeds),
    }
    dropout_mask = 0.5 if model.dropout else 0.0  # one byte per element, in elements of two
    fused = ForwardBackward(elements["residual"], elements["residual"]).times(dropout_mask)
    moved = ForwardBackward(0.0, 0.0)
    kernels = ForwardBackward(2 * num_blocks, 3 * num_blocks)
    kernels = kernels + ForwardBackward(norms + rotates, norms + rotates)
    for name, count in elements.items():
        if eager.get(name):
            moved = moved + EAGER_PASSES[name].times(count)
            kernels = kernels + EAGER_KERNELS[name].times(eager[name])
        else:
            fused = fused + FUSED_PASSES[name].times(count)
    moved = moved + fused.times(software.coefficients.memory_bound_multiplier)
    return streamed(ctx, moved.times(ctx.element_bytes), kernels)


def quantise_seconds(
    ctx: CostContext, blocks: Blocks, tokens: Numeric, tp: Numeric
) -> ForwardBackward:
    """Seconds of casting a layer's matmul inputs and gradients to FP8 or FP4; 0 in 16 bits."""
    if not ctx.low_precision:
        return ForwardBackward(0.0, 0.0)
    model, h, ffn = ctx.model, ctx.model.hidden_size, shared_ffn(ctx.model, blocks)
    up = (2 * ffn if model.gated_mlp else ffn) * (ffn > 0)
    # elements per token: of the blocks' inputs, of what comes out of a mixer's core, and of the
    # gradients of what goes into it
    block_inputs, core_outputs = h * (ffn > 0), 0
    core_gradients: Numeric = 0.0
    if "attention" in blocks:
        block_inputs, core_outputs = h + block_inputs, ctx.output_size
        core_gradients = ctx.query_size + ctx.keys_values_size(tp)
    elif "mamba" in blocks and model.mamba is not None:
        block_inputs, core_outputs = h + block_inputs, model.mamba.inner_size
        core_gradients = model.mamba.projected_size
    elements = CastElements(
        inputs=tokens * (block_inputs + (core_outputs + ffn) / tp),
        gradients=tokens * (block_inputs + (core_gradients + up) / tp),
        weights=h * (core_gradients + core_outputs + up + ffn) / tp,
    )
    return cast_seconds(ctx, elements, 2 * len(blocks))


@dataclass(frozen=True, slots=True)
class CastElements:
    """Elements of matmuls' inputs, of their outputs' gradients and of their weights on one rank."""

    inputs: Numeric
    gradients: Numeric
    weights: Numeric


def cast_seconds(ctx: CostContext, elements: CastElements, num_kernels: float) -> ForwardBackward:
    """Seconds of casting elements as the precision's recipe does; 0 in 16 bits."""
    if not ctx.low_precision:
        return ForwardBackward(0.0, 0.0)
    casts = RECIPES[ctx.training.precision].casts

    def bytes_of(passes: tuple[float, float]) -> float:
        reads, writes = passes
        return reads * ctx.element_bytes + writes * ctx.matmul_bytes

    forward = bytes_of(casts.input_forward) * elements.inputs
    backward = bytes_of(casts.gradient) * elements.gradients
    if casts.input_backward != (0.0, 0.0):
        backward = backward + bytes_of(casts.input_backward) * elements.inputs
        forward = forward + bytes_of(casts.weight_forward) * elements.weights
        backward = backward + bytes_of(casts.weight_backward) * elements.weights
    kernels = ForwardBackward(num_kernels, num_kernels)
    return streamed(ctx, ForwardBackward(forward, backward), kernels)
