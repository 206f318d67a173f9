"""Seconds of one decoder layer and the LM head on one rank.

Everything here depends on few keys of a layout (tp, cp, mbs, sp, ring), so tables compute it on
the unique keys and gather (`on_unique`). All functions take ints or int arrays of one shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from planner.cost.context import CostContext
from planner.cost.elementwise import memory_bound_seconds, quantise_seconds, stream
from planner.cost.kernels import flash_seconds, gemm_seconds
from planner.cost.layers import layer_matmuls
from planner.cost.statespace import KERNELS, scan_bytes, scan_flops, scan_widths
from planner.layouts.arrays import distinct_rows
from planner.layouts.layout import Numeric
from planner.problem.pattern import Blocks, Mamba

RECOMPUTED_SHARES = np.array(
    # none, selective, operators, alternate, full, mla_up_proj, act, act_norm, moe
    [
        [0.0, 0.0, 0.5, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0],  # matmuls of the forward pass
        [0.0, 1.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0],  # attention core
        [0.0, 0.0, 1.0, 0.5, 1.0, 0.0, 0.25, 0.5, 0.0],  # memory-bound kernels
        [0.0, 0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0],  # tensor- and context-parallel collectives
        [0.0, 0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 1.0],  # experts and exchanges with them
        [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],  # latent attention's up-projections alone
        [0.0, 0.0, 1.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0],  # state-space scans
    ]
)
"""Share of the forward pass run again, by kind of work (rows) and RECOMPUTE (columns).
`operators` keeps every second matmul output and the attention output (torchtitan, selective op)."""


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """One layer, one micro-batch, one rank; seconds. Experts' times are apart (`ExpertTimes`)."""

    gemm_forward: Numeric
    gemm_backward: Numeric
    attention_forward: Numeric  # its core; of a state-space block the scan
    attention_backward: Numeric
    memory_forward: Numeric
    memory_backward: Numeric
    up_projection_forward: Numeric  # part of gemm_forward
    gemm_weights: Numeric  # part of gemm_backward: gradients of weights; 0 where none run apart


@dataclass(frozen=True, slots=True)
class EndTimes:
    """What the first and last stage do besides layers, one micro-batch, one rank; seconds."""

    embedding: Numeric
    head_forward: Numeric  # LM head matmuls, of prediction layers too, and their projections
    head_backward: Numeric
    head_weights: Numeric  # part of head_backward, as gemm_weights
    loss: Numeric  # logits traffic of the loss, forward and backward


def on_unique(formula: Callable[..., Any], *columns: Numeric) -> Any:
    """`formula(*columns)`, computed once per distinct row of the columns and gathered.

    `formula` must return a dataclass of arrays. Numbers go straight through.
    """
    if np.ndim(columns[0]) == 0:
        return formula(*columns)
    first, position = distinct_rows(columns)
    result = formula(*(column[first] for column in columns))
    found = {f.name: getattr(result, f.name) for f in fields(result)}
    return type(result)(**{k: v[position] if np.ndim(v) else v for k, v in found.items()})


def layer_times(
    ctx: CostContext,
    blocks: Blocks,
    tp: Numeric,
    cp: Numeric,
    mbs: Numeric,
    sp: Numeric,
    ring: Numeric,
) -> LayerTimes:
    """Times of a layer's kernels, but for those of routed experts.

    Matmuls run on all of a sequence shard's tokens, cut tp ways in their weights; attention's
    causal half is balanced over cp, `ring` of whose ranks send keys and values round; norms and
    residuals see 1/tp of the tokens with sequence parallelism (sp). A layer with experts has the
    shared ones for its MLP.
    """
    tokens = mbs * ctx.training.sequence_length / cp
    forward, backward, weights, up_projections = 0.0 * tokens, 0.0, 0.0, 0.0
    for matmul in layer_matmuls(ctx.model, blocks, tp):
        rows = tokens / np.where(matmul.whole & (np.asarray(sp) > 0), tp, 1)
        times = matmul_seconds(ctx, rows, matmul.outputs, matmul.inputs)
        forward, backward, weights = forward + times[0], backward + times[1], weights + times[2]
        up_projections = up_projections + matmul.up_projection * times[0]
    core: tuple[Numeric, Numeric] = (0.0, 0.0)
    if "attention" in blocks:
        core = attention_seconds(ctx, tp, cp, mbs, ring)
    elif "mamba" in blocks and ctx.model.mamba is not None:
        core = scan_seconds(ctx, ctx.model.mamba, tp, cp, tokens)
    memory = memory_bound_seconds(ctx, blocks, tokens, tp, sp)
    cast = quantise_seconds(ctx, blocks, tokens, tp)
    return LayerTimes(
        gemm_forward=forward,
        gemm_backward=backward,
        attention_forward=core[0],
        attention_backward=core[1],
        memory_forward=memory[0] + cast[0],
        memory_backward=memory[1] + cast[1],
        up_projection_forward=up_projections + 0.0 * forward,
        gemm_weights=0.0 if ctx.software.only_1f1b else weights,
    )


def matmul_seconds(
    ctx: CostContext, m: Numeric, n: Numeric, k: Numeric, main: bool = True
) -> tuple[Numeric, Numeric, Numeric]:
    """Seconds of a weight matmul of m tokens: forward, backward (both gradients), the weight's."""
    forward = gemm(ctx, m, n, k, ctx.element_bytes, main)
    data = gemm(ctx, m, k, n, ctx.element_bytes, main)
    # the weight gradient accumulates: its output is read and written in gradient precision
    weight = gemm(ctx, n, k, m, 2 * ctx.software.gradient_bytes, main)
    return forward, data + weight, weight


def end_times(ctx: CostContext, tp: Numeric, cp: Numeric, mbs: Numeric) -> EndTimes:
    """Times of the embedding, and of the LM head and loss of the model and its prediction layers.

    A prediction layer joins a hidden state and an embedding by a matmul of twice the hidden size.
    """
    model, multiplier = ctx.model, ctx.software.coefficients.memory_bound_multiplier
    h, v = model.hidden_size, model.vocab_size
    tokens = mbs * ctx.training.sequence_length / cp
    heads = 1.0 + model.mtp_layers
    head = matmul_seconds(ctx, tokens, v / tp, h, main=False)
    joins = [0.0, 0.0, 0.0]
    if model.mtp_layers:
        times = matmul_seconds(ctx, tokens, h / tp, 2 * h)
        joins = [model.mtp_layers * seconds for seconds in times]
    own = v / (1 if ctx.software.gathers_logits else tp)
    loss = stream(ctx, multiplier * tokens * own * LOSS_BYTES_PER_LOGIT)
    return EndTimes(
        embedding=stream(ctx, multiplier * tokens * h * ctx.element_bytes * EMBEDDING_PASSES),
        head_forward=heads * head[0] + joins[0],
        head_backward=heads * head[1] + joins[1],
        head_weights=0.0 if ctx.software.only_1f1b else heads * head[2] + joins[2],
        loss=heads * loss,
    )


LOSS_BYTES_PER_LOGIT = 24.0
"""Cast to FP32 (2+4), maximum (4), exponential and sum (4+4), gradient (4+2): one kernel each."""

EMBEDDING_PASSES = 7.0
"""Gather (read, write), position or dropout (read, write), gradient (read, read-modify-write)."""


def gemm(
    ctx: CostContext,
    m: Numeric,
    n: Numeric,
    k: Numeric,
    output_bytes: float,
    main: bool = True,
    num_groups: Numeric = 1,
) -> Numeric:
    """Seconds of a matmul: a main one, in the declared precision, or one that stays in 16 bits."""
    return gemm_seconds(
        m, n, k,
        num_groups=num_groups,
        peak_flops=ctx.sustained_flops if main else ctx.sustained_16_flops,
        coefficients=ctx.gemm if main else ctx.gemm_16,
        num_multiprocessors=ctx.accelerator.num_multiprocessors,
        hbm_bytes_per_second=ctx.accelerator.hbm_bytes_per_second,
        hbm_efficiency=ctx.accelerator.hbm_efficiency,
        input_bytes=ctx.matmul_bytes if main else ctx.element_bytes,
        output_bytes=output_bytes,
    )  # fmt: skip


def attention_flops(ctx: CostContext, tp: Numeric, cp: Numeric, mbs: Numeric) -> Numeric:
    """Forward FLOPs of one layer's attention core on one rank, the causal half counted once.

    QKᵀ and PV: 2·s²·heads·(qk_head_dim + v_head_dim) per sequence, halved by the mask; of packed
    documents and under windows the attended share of it.
    """
    s = ctx.training.sequence_length
    width = (ctx.query_size + ctx.output_size) / tp
    return mbs * s * s / cp * width * ctx.attended_share


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
    ctx: CostContext, tp: Numeric, cp: Numeric, mbs: Numeric, ring: Numeric
) -> tuple[Numeric, Numeric]:
    """Seconds of one layer's attention core, forward and backward.

    Flash: FLOPs at the backend's achieved share of the 16-bit peak; the backward pass does 2.5
    times the forward's (it recomputes QKᵀ). Backends that materialise the scores do the whole
    square of both matmuls and carry the N×N tensors through HBM (Korthikanti et al. 2022, §4.1).
    """
    coefficients, start = ctx.attention, ctx.gemm_16.overhead_seconds
    s = ctx.training.sequence_length
    # a ring works through a document in blocks, each of its ranks' part
    block = ctx.training.document_length / ring
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
    flops = flops / ctx.attended_share  # windows and documents are masked, not left out
    scores = mbs * s * s / cp * ctx.model.num_attention_heads / tp
    dropped = DROPOUT_BYTES_PER_SCORE * ctx.model.dropout
    return (
        kernel(2.0, coefficients.forward, 4)
        + scores * (moved[0] + dropped) / ctx.hbm_bytes_per_second,
        kernel(4.0, coefficients.backward, 6)
        + scores * (moved[1] + dropped) / ctx.hbm_bytes_per_second,
    )


def scan_seconds(
    ctx: CostContext, mamba: Mamba, tp: Numeric, cp: Numeric, tokens: Numeric
) -> tuple[Numeric, Numeric]:
    """Seconds of one state-space block's convolution, scan and gated norm, forward and backward.

    The later of FLOPs, at the share of the 16-bit peak that attention's block matmuls reach, and
    HBM traffic with the software's multiplier.
    """
    w, start = scan_widths(mamba, tp, cp), ctx.gemm_16.overhead_seconds
    multiplier = ctx.software.coefficients.memory_bound_multiplier
    shares = (ctx.attention.forward, ctx.attention.backward)
    flops, moved = scan_flops(mamba, w), scan_bytes(w, ctx.element_bytes)

    def seconds(way: int) -> Numeric:
        busy = np.maximum(
            flops[way] / (ctx.sustained_16_flops * shares[way]),
            multiplier * moved[way] / ctx.hbm_bytes_per_second,
        )
        return tokens * busy + KERNELS[way] * start

    return seconds(0), seconds(1)
