"""Seconds of the kernels of one decoder layer, of the embedding, and of the LM head with its loss.

All of one micro-batch on one rank. Everything here depends on few keys of a layout (`RankShare`),
so tables compute it on the unique keys and gather (`on_unique`). All functions take integers or
integer arrays of one shape. Norms and other memory-bound kernels are in
`planner.cost.elementwise`, routed experts in `planner.cost.experts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from planner.cost.context import CostContext
from planner.cost.elementwise import memory_bound_seconds, quantise_seconds, stream
from planner.cost.kernels import (
    ElementBytes,
    GemmDevice,
    GemmSizes,
    flash_seconds,
    gemm_seconds,
)
from planner.cost.layers import layer_matmuls
from planner.cost.passes import ForwardBackward
from planner.cost.statespace import (
    CONVOLUTION_ELEMENTS_PER_SECOND,
    SCAN_FLOPS_PER_SECOND,
    SCAN_KERNELS,
    chunk_bytes,
    convolution_elements,
    scan_flops,
    scan_widths,
)
from planner.layouts.arrays import IntArray, distinct_rows
from planner.layouts.keys import CP_KINDS
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Integer, Numeric
from planner.problem.blocks import Blocks, Mamba


@dataclass(frozen=True, slots=True)
class RankShare:
    """What of a layout the kernels of a layer depend on: the share of a layer that a rank has.

    sp: whether sequence parallelism is on; ring_members: see `ring_members`.
    """

    tp: Integer
    cp: Integer
    mbs: Integer
    sp: Integer
    ring_members: Integer

    def tokens(self, ctx: CostContext) -> Numeric:
        """Tokens of a micro-batch's sequence shard, mbs · s / cp."""
        return self.mbs * ctx.training.sequence_length / self.cp


def ring_members(layout: LayoutLike) -> Integer:
    """Ranks in the ring that keys and values are sent round, shape of the layout.

    1 where they are gathered, or where heads travel instead.
    """
    kind = np.asarray(layout.cp_kind_index)
    outer = np.where(kind == CP_KINDS.index("hierarchical"), layout.cp // layout.cp_a2a, 1)
    return np.where(kind == CP_KINDS.index("ring"), layout.cp, outer)


if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Result = TypeVar("Result", bound="DataclassInstance")


def on_unique(formula: Callable[..., Result], *columns: Integer) -> Result:
    """`formula(*columns)`, computed once per distinct row of the columns and gathered.

    `formula` returns a dataclass of numbers and arrays, which may nest. Columns are integer arrays
    of one shape (N,); plain numbers go straight through.
    """
    if np.ndim(columns[0]) == 0:
        return formula(*columns)
    arrays = cast("tuple[IntArray, ...]", columns)
    first, position = distinct_rows(arrays)
    return _gathered(formula(*(column[first] for column in arrays)), position)


def _gathered(values: Result, position: IntArray) -> Result:
    """A dataclass of arrays over distinct rows as one of arrays over all rows."""
    rows = {}
    for field in fields(values):
        value = getattr(values, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            value = _gathered(value, position)
        elif np.ndim(value):
            value = value[position]
        rows[field.name] = value
    return type(values)(**rows)


# ---------------------------------------------------------------- a layer


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Seconds of a layer's kernels but for routed experts' (`ExpertTimes`)."""

    gemm: ForwardBackward
    core: ForwardBackward  # attention between its projections; of a state-space block the scan
    memory_bound: ForwardBackward
    up_projection: Numeric  # of gemm.forward, latent attention's up-projections
    weight_gradients: Numeric  # of gemm.backward; 0 where the software never runs them apart


def layer_times(ctx: CostContext, blocks: Blocks, share: RankShare) -> KernelTimes:
    """Seconds of a layer's kernels on one micro-batch, one rank.

    Matmuls run on all of a sequence shard's tokens, cut tp ways in their weights; attention's
    causal half is balanced over cp, `ring_members` of whose ranks send keys and values round; norms
    and residuals see 1/tp of the tokens with sequence parallelism. A layer with experts has the
    shared ones for its MLP.
    """
    tp, sp, tokens = share.tp, share.sp, share.tokens(ctx)
    matmuls = MatmulTimes(ForwardBackward(0.0 * tokens, 0.0), 0.0)
    up_projection: Numeric = 0.0 * tokens
    for matmul in layer_matmuls(ctx.model, blocks, tp):
        rows = tokens / np.where(matmul.unsharded & (np.asarray(sp) > 0), tp, 1)
        times = matmul_seconds(ctx, GemmSizes(rows, matmul.outputs, matmul.inputs))
        matmuls = matmuls + times
        up_projection = up_projection + matmul.up_projection * times.both.forward
    core = ForwardBackward(0.0, 0.0)
    if "attention" in blocks:
        core = attention_seconds(ctx, share)
    elif "mamba" in blocks and ctx.model.mamba is not None:
        core = scan_seconds(ctx, ctx.model.mamba, share)
    memory_bound = memory_bound_seconds(ctx, blocks, tokens, tp, sp)
    return KernelTimes(
        gemm=matmuls.both,
        core=core,
        memory_bound=memory_bound + quantise_seconds(ctx, blocks, tokens, tp),
        up_projection=up_projection,
        weight_gradients=0.0 if ctx.software.only_1f1b else matmuls.weight_gradients,
    )


@dataclass(frozen=True, slots=True)
class MatmulTimes:
    """Seconds of weight matmuls: both passes, and of the backward pass the weights' gradients."""

    both: ForwardBackward
    weight_gradients: Numeric

    def __add__(self, other: MatmulTimes) -> MatmulTimes:
        return MatmulTimes(self.both + other.both, self.weight_gradients + other.weight_gradients)

    def times(self, number: Numeric) -> MatmulTimes:
        """Of so many."""
        return MatmulTimes(self.both.times(number), number * self.weight_gradients)


def matmul_seconds(ctx: CostContext, sizes: GemmSizes, main: bool = True) -> MatmulTimes:
    """Seconds of products of (m tokens × k inputs) and (k inputs × n outputs), and their gradients.

    main: in the declared precision; else in 16 bits.
    """
    m, n, k, groups = sizes.m, sizes.n, sizes.k, sizes.num_groups
    forward = gemm(ctx, sizes, ctx.element_bytes, main)
    data = gemm(ctx, GemmSizes(m, k, n, groups), ctx.element_bytes, main)
    # the weight gradient accumulates: its output is read and written in gradient precision
    weight = gemm(ctx, GemmSizes(n, k, m, groups), 2 * ctx.software.gradient_bytes, main)
    return MatmulTimes(ForwardBackward(forward, data + weight), weight)


def gemm(ctx: CostContext, sizes: GemmSizes, output_bytes: float, main: bool = True) -> Numeric:
    """Seconds of one launch: of main matmuls, in the declared precision, or ones in 16 bits."""
    device = GemmDevice(
        coefficients=ctx.gemm if main else ctx.gemm_16,
        peak_flops=ctx.sustained_flops if main else ctx.sustained_16_flops,
        num_multiprocessors=ctx.accelerator.num_multiprocessors,
        hbm_bytes_per_second=ctx.accelerator.hbm_bytes_per_second,
        hbm_efficiency=ctx.accelerator.hbm_efficiency,
    )
    input_bytes = ctx.matmul_bytes if main else ctx.element_bytes
    return gemm_seconds(sizes, device, ElementBytes(input_bytes, output_bytes))


# ---------------------------------------------------------------- the cores of mixers


def attention_flops(ctx: CostContext, share: RankShare) -> Numeric:
    """Forward FLOPs of one layer's attention core on one rank, the causal half counted once.

    QKᵀ and PV: 2·s²·heads·(qk_head_dim + v_head_dim) per sequence, halved by the mask; of packed
    documents and under windows the attended share of it.
    """
    s = ctx.training.sequence_length
    width = (ctx.query_size + ctx.output_size) / share.tp
    return share.mbs * s * s / share.cp * width * ctx.attended_share


SCORE_BYTES: Mapping[str, ForwardBackward] = {
    "fused-softmax": ForwardBackward(8.0, 16.0),
    "naive": ForwardBackward(28.0, 36.0),
}
"""Bytes of HBM traffic per score where a backend writes the scores.

Fused softmax: QKᵀ out 2, softmax in 2 out 2, PV in 2; back, dP out 2, softmax in 2+2 out 2, the
QKᵀ and PV gradients in 2+2 each. Naive, one PyTorch operator after another with the softmax in
FP32: QKᵀ out 2, scale and mask in 2 out 2, cast in 2 out 4, softmax in 4 out 4, cast in 4 out 2,
PV in 2; back, dP out 2, cast in 2 out 4, softmax in 4+4 out 4, cast in 4 out 2, scale and mask in
2 out 2, the gradients in 2+2+2.
"""

DROPOUT_BYTES_PER_SCORE = 5.0
"""The same of dropout on the scores, in either pass: in 2 out 2 and the mask 1."""

FLASH_BACKWARD_FLOPS = 2.5
"""Of the forward pass's: five matmuls where that has two, for it repeats QKᵀ."""


USUAL_HEAD_DIM = 128.0
"""Elements of the heads with which attention's shares of the peak were measured."""


def head_share(ctx: CostContext) -> float:
    """Rate of attention with the model's heads over that with heads of 128 elements, at most 1.

    d / (d + head_half) · (128 + head_half) / 128,   d the mean of keys' and values' elements
    """
    half = ctx.attention.head_half
    if half is None:
        return 1.0
    d = min(USUAL_HEAD_DIM, (ctx.model.qk_head_dim + ctx.model.v_head_dim) / 2)
    return d / (d + float(half)) * (USUAL_HEAD_DIM + float(half)) / USUAL_HEAD_DIM


def attention_seconds(ctx: CostContext, share: RankShare) -> ForwardBackward:
    """Seconds of one layer's attention core.

    Flash: FLOPs at the backend's achieved share of the 16-bit peak. Backends that materialise the
    scores do the whole square of both matmuls and carry the N×N tensors through HBM (Korthikanti
    et al. 2022, §4.1).
    """
    coefficients = ctx.attention
    causal_flops = attention_flops(ctx, share)

    def kernels(flops: Numeric, share_of_peak: float, number: float, tokens: Numeric) -> Numeric:
        return flash_seconds(
            flops,
            tokens,
            peak_flops=ctx.sustained_16_flops,
            share=share_of_peak * head_share(ctx),
            sequence_half=coefficients.sequence_half,
            overhead_seconds=number * ctx.gemm_16.overhead_seconds,
        )

    score_bytes = SCORE_BYTES.get(ctx.attention_backend)
    if score_bytes is None:
        seconds = ForwardBackward(0.0, 0.0)
        starts = 1.0 / len(ctx.attention_spans)  # a layer has spans of one sort
        for span in ctx.attention_spans:
            # a ring works through a span in blocks, one of each of its ranks
            tokens = span.tokens / share.ring_members
            flops = span.share / ctx.attended_share * causal_flops
            seconds = seconds + ForwardBackward(
                kernels(1.0 * flops, coefficients.forward, starts, tokens),
                kernels(FLASH_BACKWARD_FLOPS * flops, coefficients.backward, starts, tokens),
            )
        return seconds
    # windows and documents are masked, not left out
    flops = causal_flops / ctx.attended_share
    tokens = ctx.training.document_length / share.ring_members
    s = ctx.training.sequence_length
    scores = share.mbs * s * s / share.cp * ctx.model.num_attention_heads / share.tp
    dropout_bytes = DROPOUT_BYTES_PER_SCORE * ctx.model.dropout
    return ForwardBackward(
        kernels(2.0 * flops, coefficients.forward, 4, tokens)
        + scores * (score_bytes.forward + dropout_bytes) / ctx.hbm_bytes_per_second,
        kernels(4.0 * flops, coefficients.backward, 6, tokens)
        + scores * (score_bytes.backward + dropout_bytes) / ctx.hbm_bytes_per_second,
    )


def scan_seconds(ctx: CostContext, mamba: Mamba, share: RankShare) -> ForwardBackward:
    """Seconds of one state-space block's convolution, scan and gated norm.

    ::

        convolution = (issue³ + hbm³)^⅓      issue: elements at CONVOLUTION_ELEMENTS_PER_SECOND
        scan, norm  = max(flops, hbm)        flops at SCAN_FLOPS_PER_SECOND at most

    FLOPs go at the share of the 16-bit peak that attention's block matmuls reach where that is
    less. Traffic of the scan and norm has the software's multiplier for memory-bound kernels.
    """
    widths, tokens = scan_widths(mamba, share.tp, share.cp), share.tokens(ctx)
    flops, elements = scan_flops(mamba, widths), convolution_elements(widths)
    num_bytes = chunk_bytes(widths, ctx.element_bytes)
    multiplier = ctx.software.coefficients.memory_bound_multiplier

    def seconds(
        flops: Numeric, share_of_peak: float, num_bytes: Numeric, elements: Numeric
    ) -> Numeric:
        per_token = np.maximum(
            flops / min(SCAN_FLOPS_PER_SECOND, ctx.sustained_16_flops * share_of_peak),
            multiplier * num_bytes / ctx.hbm_bytes_per_second,
        )
        return tokens * (per_token + elements * convolution_seconds(ctx))

    forward = seconds(flops.forward, ctx.attention.forward, num_bytes.forward, elements.forward)
    backward = seconds(
        flops.backward, ctx.attention.backward, num_bytes.backward, elements.backward
    )
    return ForwardBackward(forward, backward) + SCAN_KERNELS.times(ctx.gemm_16.overhead_seconds)


def convolution_seconds(ctx: CostContext) -> float:
    """Seconds per element that a causal convolution reads or writes."""
    issue = 1 / CONVOLUTION_ELEMENTS_PER_SECOND
    hbm = ctx.element_bytes / ctx.hbm_bytes_per_second
    return float(np.cbrt(issue**3 + hbm**3))


# ---------------------------------------------------------------- embedding, head and loss


@dataclass(frozen=True, slots=True)
class EndTimes:
    """Seconds of what the first and the last stage do besides layers, prediction layers' too."""

    embedding: Numeric  # forward and backward
    head: ForwardBackward  # LM head matmuls, and the projections of prediction layers' inputs
    head_weight_gradients: Numeric  # of head.backward; 0 where the software never runs them apart
    loss: Numeric  # logits traffic of the loss, forward and backward


LOSS_TRAFFIC_BYTES_PER_LOGIT = 24.0
"""Cast to FP32 (2+4), maximum (4), exponential and sum (4+4), gradient (4+2): one kernel each."""

EMBEDDING_PASSES = 7.0
"""Gather (read, write), position or dropout (read, write), gradient (read, read-modify-write)."""


def end_times(ctx: CostContext, layout: LayoutLike) -> EndTimes:
    """Seconds of the embedding, and of the LM head and loss of the model and its prediction layers.

    A prediction layer joins a hidden state and an embedding by a matmul of twice the hidden size.
    A loss in chunks multiplies by the head once a chunk, and each time adds to the weight gradient.
    """

    def of(*keys: Integer) -> EndTimes:
        return _end_times(ctx, *keys)

    return on_unique(of, layout.tp, layout.cp, layout.mbs, layout.loss_chunks)


def _end_times(
    ctx: CostContext, tp: Integer, cp: Integer, mbs: Integer, loss_chunks: Integer
) -> EndTimes:
    model, multiplier = ctx.model, ctx.software.coefficients.memory_bound_multiplier
    h, v = model.hidden_size, model.vocab_size
    tokens = mbs * ctx.training.sequence_length / cp
    heads = 1.0 + model.mtp_layers
    chunk = matmul_seconds(ctx, GemmSizes(tokens / loss_chunks, v / tp, h), main=False)
    head = chunk.times(heads * loss_chunks)
    if model.mtp_layers:
        join = matmul_seconds(ctx, GemmSizes(tokens, h / tp, 2 * h))
        head = head + join.times(model.mtp_layers)
    own_logits = v / (1 if ctx.software.gathers_logits else tp)
    apart = ctx.software.deferred_head_gradients or not ctx.software.only_1f1b
    return EndTimes(
        embedding=stream(ctx, multiplier * tokens * h * ctx.element_bytes * EMBEDDING_PASSES),
        head=head.both,
        head_weight_gradients=head.weight_gradients if apart else 0.0,
        loss=heads * stream(ctx, multiplier * tokens * own_logits * LOSS_TRAFFIC_BYTES_PER_LOGIT),
    )
