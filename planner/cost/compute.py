"""Seconds of one decoder layer, the LM head and the optimizer on one rank.

Everything here depends on few keys of a layout (tp, cp, mbs, sp), so tables compute it on the
unique keys and gather (`on_unique`). All functions take ints or int arrays of one shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from planner.cost.context import CostContext
from planner.cost.kernels import flash_seconds, gemm_seconds
from planner.layout import CP_KINDS, Numeric

RECOMPUTED_SHARES = np.array(
    # none, selective, operators, alternate, full
    [
        [0.0, 0.0, 0.5, 0.5, 1.0],  # matmuls of the forward pass
        [0.0, 1.0, 0.0, 0.5, 1.0],  # attention core
        [0.0, 0.0, 1.0, 0.5, 1.0],  # memory-bound kernels
        [0.0, 0.0, 0.0, 0.5, 1.0],  # tensor- and context-parallel collectives
    ]
)
"""Share of the forward pass run again, by kind of work (rows) and RECOMPUTE (columns).
`operators` keeps every second matmul output and the attention output (torchtitan, selective op)."""


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """One layer, one micro-batch, one rank; seconds, and FLOPs as executed."""

    gemm_forward: Numeric
    gemm_backward: Numeric
    attention_forward: Numeric
    attention_backward: Numeric
    memory_forward: Numeric
    memory_backward: Numeric
    head_forward: Numeric  # LM head matmul, whole
    head_backward: Numeric
    loss: Numeric  # logits traffic of the loss, forward and backward
    embedding: Numeric


def on_unique(formula: Callable[..., Any], *columns: Numeric) -> Any:
    """`formula(*columns)`, computed once per distinct row of the columns and gathered.

    `formula` must return a dataclass of arrays. Numbers go straight through.
    """
    if np.ndim(columns[0]) == 0:
        return formula(*columns)
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = _codes(column)
        code = code * len(values) + place
    keys, position = _codes(code)
    # one representative row of each key; any of them has the key's values
    first = np.empty(len(keys), dtype=np.int64)
    first[position] = np.arange(len(code))
    result = formula(*(column[first] for column in columns))
    gathered = {
        f.name: np.broadcast_to(getattr(result, f.name), first.shape)[position]
        for f in fields(result)
    }
    return type(result)(**gathered)


def _codes(column: Numeric) -> tuple[Any, Any]:
    """Distinct values and each row's position among them; by counting where the range is small."""
    low, high = int(column.min()), int(column.max())
    if high - low > 1 << 22:
        values, position = np.unique(column, return_inverse=True)
        return values, position
    present = np.zeros(high - low + 1, dtype=bool)
    present[column - low] = True
    position = np.cumsum(present) - 1
    return np.flatnonzero(present) + low, position[column - low]


def layer_times(
    ctx: CostContext,
    tp: Numeric,
    cp: Numeric,
    mbs: Numeric,
    sp: Numeric,
    cp_kind_index: Numeric,
) -> LayerTimes:
    """Times of a layer's kernels.

    Matmuls run on all of a sequence shard's tokens, cut tp ways in their weights; attention's
    causal half is balanced over cp; norms and residuals see 1/tp of the tokens with sequence
    parallelism (sp).
    """
    model, s = ctx.model, ctx.training.sequence_length
    h, f, q, kv = model.hidden_size, model.ffn_hidden_size, ctx.query_size, ctx.key_value_size(tp)
    up = 2 * f if model.gated_mlp else f
    tokens = mbs * s / cp
    shapes = [((q + 2 * kv) / tp, h), (h, q / tp), (up / tp, h), (h, f / tp)]
    forward, backward = 0.0, 0.0
    for n, k in shapes:
        forward = forward + _gemm(ctx, tokens, n, k, ctx.element_bytes)
        backward = backward + _gemm(ctx, tokens, k, n, ctx.element_bytes)
        # the weight gradient accumulates: its output is read and written in gradient precision
        backward = backward + _gemm(ctx, n, k, tokens, 2 * ctx.software.gradient_bytes)
    attention = attention_seconds(ctx, tp, cp, mbs, cp_kind_index)
    memory = _memory_bound_seconds(ctx, tokens, tp, sp)
    v, multiplier = model.vocab_size, ctx.software.coefficients.memory_bound_multiplier
    return LayerTimes(
        gemm_forward=forward,
        gemm_backward=backward,
        attention_forward=attention[0],
        attention_backward=attention[1],
        memory_forward=memory[0],
        memory_backward=memory[1],
        head_forward=_gemm(ctx, tokens, v / tp, h, ctx.element_bytes, main=False),
        head_backward=_gemm(ctx, tokens, h, v / tp, ctx.element_bytes, main=False)
        + _gemm(ctx, v / tp, h, tokens, 2 * ctx.software.gradient_bytes, main=False),
        loss=_stream(ctx, multiplier * tokens * v / tp * LOSS_BYTES_PER_LOGIT),
        embedding=_stream(ctx, multiplier * tokens * h * ctx.element_bytes * EMBEDDING_PASSES),
    )


LOSS_BYTES_PER_LOGIT = 24.0
"""Cast to FP32 (2+4), maximum (4), exponential and sum (4+4), gradient (4+2): one kernel each."""

EMBEDDING_PASSES = 7.0
"""Gather (read, write), position or dropout (read, write), gradient (read, read-modify-write)."""


def _gemm(
    ctx: CostContext, m: Numeric, n: Numeric, k: Numeric, output_bytes: float, main: bool = True
) -> Numeric:
    """Seconds of a matmul: a main one, in the declared precision, or one that stays in 16 bits."""
    return gemm_seconds(
        m, n, k,
        peak_flops=ctx.sustained_flops if main else ctx.sustained_16_flops,
        coefficients=ctx.gemm if main else ctx.gemm_16,
        num_multiprocessors=ctx.accelerator.num_multiprocessors,
        hbm_bytes_per_second=ctx.accelerator.hbm_bytes_per_second,
        hbm_efficiency=ctx.accelerator.hbm_efficiency,
        input_bytes=ctx.matmul_bytes if main else ctx.element_bytes,
        output_bytes=output_bytes,
    )  # fmt: skip


def _stream(ctx: CostContext, num_bytes: Numeric, num_kernels: float = 1.0) -> Numeric:
    """Seconds of memory-bound kernels: traffic at the achieved HBM rate and a start each."""
    start = num_kernels * ctx.gemm_16.overhead_seconds
    return num_bytes / ctx.hbm_bytes_per_second + start


def attention_flops(ctx: CostContext, tp: Numeric, cp: Numeric, mbs: Numeric) -> Numeric:
    """Forward FLOPs of one layer's attention core on one rank, the causal half counted once.

    QKᵀ and PV: 4·s²·(heads·head_dim) per sequence, halved by the mask.
    """
    s = ctx.training.sequence_length
    return 2.0 * mbs * s * s / cp * ctx.query_size / tp


SCORE_BYTES = {"fused-softmax": (8.0, 16.0), "naive": (28.0, 36.0)}
"""Bytes of HBM traffic per score where a backend writes the scores, forward and backward.

Fused softmax: QKᵀ out 2, softmax in 2 out 2, PV in 2; back, dP out 2, softmax in 2+2 out 2, the
QKᵀ and PV gradients in 2+2 each. Naive, one PyTorch operator after another with the softmax in
FP32: QKᵀ out 2, scale and mask in 2 out 2, cast in 2 out 4, softmax in 4 out 4, cast in 4 out 2,
PV in 2; back, dP out 2, cast in 2 out 4, softmax in 4+4 out 4, cast in 4 out 2, scale and mask in
2 out 2, the gradients in 2+2+2.
"""

DROPOUT_BYTES_PER_SCORE = 5.0
"""The same of dropout on the scores, either way: in 2 out 2 and the mask 1."""


def attention_seconds(
    ctx: CostContext, tp: Numeric, cp: Numeric, mbs: Numeric, cp_kind_index: Numeric
) -> tuple[Numeric, Numeric]:
    """Seconds of one layer's attention core, forward and backward.

    Flash: FLOPs at the backend's achieved share of the 16-bit peak; the backward pass does 2.5
    times the forward's (it recomputes QKᵀ). Backends that materialise the scores do the whole
    square of both matmuls and carry the N×N tensors through HBM (Korthikanti et al. 2022, §4.1).
    """
    coefficients, start = ctx.attention, ctx.gemm_16.overhead_seconds
    s = ctx.training.sequence_length
    # a ring works through the sequence in blocks of s/cp
    ring = np.asarray(cp_kind_index) == CP_KINDS.index("ring")
    block = s / np.where(ring, cp, 1)
    flops = attention_flops(ctx, tp, cp, mbs)

    def kernel(times_forward: float, share: float, starts: float) -> Numeric:
        return flash_seconds(
            times_forward * flops,
            block,
            peak_flops=ctx.sustained_16_flops,
            share=share,
            sequence_half=coefficients.sequence_half,
            overhead_seconds=starts * start,
        )

    moved = SCORE_BYTES.get(ctx.attention_backend)
    if moved is None:
        return kernel(1.0, coefficients.forward, 1), kernel(2.5, coefficients.backward, 1)
    scores = mbs * s * s / cp * ctx.model.num_attention_heads / tp
    dropped = DROPOUT_BYTES_PER_SCORE * ctx.model.dropout
    return (
        kernel(2.0, coefficients.forward, 4)
        + scores * (moved[0] + dropped) / ctx.hbm_bytes_per_second,
        kernel(4.0, coefficients.backward, 6)
        + scores * (moved[1] + dropped) / ctx.hbm_bytes_per_second,
    )


def _memory_bound_seconds(
    ctx: CostContext, tokens: Numeric, tp: Numeric, sp: Numeric
) -> tuple[Numeric, Numeric]:
    """Norms, residuals, rotary embedding, activation and quantisation of one layer.

    The software's multiplier stands for what its kernels move beyond the fused minimum.
    """
    model = ctx.model
    h, f, q, kv = model.hidden_size, model.ffn_hidden_size, ctx.query_size, ctx.key_value_size(tp)
    whole = tokens / np.where(sp, tp, 1)  # tokens that norms and residuals see
    rotary = 0 if model.num_position_embeddings else 2 * (q + kv)
    act_forward, act_backward = (3 * f, 5 * f) if model.gated_mlp else (2 * f, 3 * f)
    mask = 0.5 if model.dropout else 0.0  # one byte per element, in elements of two
    forward = whole * (2 * 2 * h + 2 * (3 + mask) * h) + tokens / tp * (rotary + act_forward)
    backward = whole * (2 * 3 * h + 2 * (3 + mask) * h) + tokens / tp * (rotary + act_backward)
    multiplier = ctx.software.coefficients.memory_bound_multiplier
    rotates = model.num_position_embeddings == 0
    cast = quantise_seconds(ctx, tokens, tp)
    return (
        _stream(ctx, multiplier * ctx.element_bytes * forward, 6 + rotates) + cast[0],
        _stream(ctx, multiplier * ctx.element_bytes * backward, 8 + rotates) + cast[1],
    )


def quantise_seconds(ctx: CostContext, tokens: Numeric, tp: Numeric) -> tuple[Numeric, Numeric]:
    """Casting a layer's matmul inputs and gradients to FP8 or FP4; nothing in 16 bits.

    Every input is read in 16 bits and written twice, as it is and transposed.
    """
    if not ctx.low_precision:
        return 0.0, 0.0
    h, f, q, kv = (
        ctx.model.hidden_size, ctx.model.ffn_hidden_size, ctx.query_size, ctx.key_value_size(tp)
    )  # fmt: skip
    up = 2 * f if ctx.model.gated_mlp else f
    moved = ctx.element_bytes + 2 * ctx.matmul_bytes
    return (
        _stream(ctx, moved * tokens * (2 * h + (q + f) / tp), 4),
        _stream(ctx, moved * tokens * (2 * h + (q + 2 * kv + up) / tp), 4),
    )


KERNELS_PER_LAYER_FORWARD = 14.0
KERNELS_PER_LAYER_BACKWARD = 24.0
"""Kernels a framework starts per layer, counted off Megatron-Core's: four matmuls, attention, two
norms, two residuals, rotary embedding, activation and copies; back, twice the matmuls."""
