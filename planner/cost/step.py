"""The step: every cost of a layout and its placement joined, once, for numbers and for arrays.

    shape_costs(ctx, layout)                 what depends on the layout alone
    channel_costs(ctx, traffic, splits)      cost vectors of the groups' traffic, by placement
    step_time(ctx, layout, shape, costs)     the additive breakdown

`step_time` is non-decreasing in every component of every cost vector; the search's bounds rest on
that alone. No other code combines groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from planner.cost.collectives import GroupCost, duration
from planner.cost.compute import (
    KERNELS_PER_LAYER_BACKWARD,
    KERNELS_PER_LAYER_FORWARD,
    RECOMPUTED_SHARES,
    LayerTimes,
    layer_times,
    on_unique,
)
from planner.cost.context import CostContext
from planner.cost.memory import stage_parameters
from planner.cost.overlap import beyond, chunked
from planner.cost.pipeline import (
    bubble_slots,
    stages,
    synchronisation_window,
)
from planner.cost.traffic import Channel, Splits, channel_costs, channels, occurrences
from planner.layout import CP_KINDS, LayoutLike, Numeric


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step by cause, of the slowest stage's rank; they sum to the step.

    tp to dp are exposed seconds outside the bubble; bubble is idle slots times a slot.
    """

    compute_gemm: Numeric
    compute_attention: Numeric
    compute_memory_bound: Numeric
    recompute: Numeric
    loss: Numeric
    tp: Numeric
    cp: Numeric
    ep: Numeric
    pp: Numeric
    dp: Numeric
    optimizer: Numeric
    host: Numeric
    stage_imbalance: Numeric
    bubble: Numeric
    straggler: Numeric

    @property
    def total(self) -> Numeric:
        """Seconds of the step."""
        return sum(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True, slots=True)
class ShapeCosts:
    """What a layout costs wherever it lives.

    stage and layers have the stages considered first, shape (S, …).
    """

    layer: LayerTimes
    stage: Numeric
    layers: Numeric
    parameters: Numeric  # of the fullest stage's rank, before data-parallel sharding
    traffic: Mapping[str, Channel]


def shape_costs(ctx: CostContext, layout: LayoutLike) -> ShapeCosts:
    """Kernel times, stages and traffic of a layout (or of each row of a table)."""
    layer = on_unique(
        lambda *keys: layer_times(ctx, *keys),
        layout.tp, layout.cp, layout.mbs, layout.sp, layout.cp_kind_index,
    )  # fmt: skip
    stage, layers = stages(ctx.model.num_layers, layout)
    parameters = np.max(stage_parameters(ctx, layout, stage, layers), axis=0)
    return ShapeCosts(layer, stage, layers, parameters, channels(ctx, layout, parameters))


def step_time(
    ctx: CostContext, layout: LayoutLike, shape: ShapeCosts, costs: Mapping[str, GroupCost]
) -> StepTime:
    """Breakdown of a step.

    A micro-batch passes a stage in `slot` seconds. A step is m slots of the slowest stage, the
    pipeline's filling with (pp − 1)/vp mean slots, gradient and parameter traffic beyond what
    hides, the optimizer, and what the host and the slowest of many ranks add. Terms are means
    over stages; `stage_imbalance` brings them to the slowest stage's rank.
    """
    layer, software = shape.layer, ctx.software.coefficients
    m, pp = layout.num_microbatches, layout.pp
    seconds = {name: duration(cost, ctx.ramp) for name, cost in costs.items()}
    again = RECOMPUTED_SHARES[:, layout.recompute_index]
    per_stage = ctx.model.num_layers / pp

    recompute = (
        again[0] * layer.gemm_forward
        + again[1] * layer.attention_forward
        + again[2] * layer.memory_forward
    )
    exposed = layer_exposed(ctx, layout, layer, costs, seconds)
    tp = exposed["tp_forward"] + exposed["tp_backward"] + exposed["tp_beside"]
    cp = exposed["cp_forward"] + exposed["cp_backward"]
    hidden = {name: seconds[name] - value for name, value in exposed.items()}

    forward = layer.gemm_forward + layer.attention_forward + layer.memory_forward
    backward = layer.gemm_backward + layer.attention_backward + layer.memory_backward
    layer_slot = forward + backward + recompute + tp + cp
    head = layer.head_forward + layer.head_backward
    slot = (
        shape.layers * layer_slot
        + (shape.stage == 0) * layer.embedding
        + (shape.stage == pp - 1) * (head + layer.loss)
    )
    mean_slot = per_stage * layer_slot + (layer.embedding + head + layer.loss) / pp
    slowest_slot = np.max(slot, axis=0)

    boundary = (
        (np.asarray(pp) > 1)
        * seconds["pp"]
        * (1.0 - software.pp_overlap_fraction * layout.overlap_pp)
    )
    bubble = bubble_slots(layout) * (mean_slot + boundary)

    times = occurrences(ctx, layout)
    zero, last = np.asarray(layout.zero_stage), synchronisation_window(layout)
    hides = software.dp_overlap_fraction * layout.overlap_dp * per_stage
    # a second of work hides one second of traffic: what tp and cp hide behind is taken
    tp_forward = hidden["tp_forward"] / (1 + again[3])
    cp_forward = hidden["cp_forward"] / (1 + again[1])
    tp_backward = again[3] * tp_forward + hidden["tp_backward"] + hidden["tp_beside"]
    cp_backward = again[1] * cp_forward + hidden["cp_backward"]
    free_forward = np.maximum(0.0, forward - tp_forward - cp_forward)
    free_backward = np.maximum(0.0, backward + recompute - tp_backward - cp_backward)
    dp = beyond(
        times["gather_forward"] * seconds["gather_forward"],
        np.where(zero == 3, m, last) * hides * free_forward,
    ) + beyond(
        times["gather_backward"] * seconds["gather_backward"]
        + times["reduce"] * seconds["reduce"]
        + seconds["replicate"],
        np.where(zero >= 2, m, last) * hides * free_backward,
    )

    work = {
        "compute_gemm": m * (per_stage * (layer.gemm_forward + layer.gemm_backward) + head / pp),
        "compute_attention": m * per_stage * (layer.attention_forward + layer.attention_backward),
        "compute_memory_bound": m
        * (per_stage * (layer.memory_forward + layer.memory_backward) + layer.embedding / pp),
        "recompute": m * per_stage * recompute,
        "loss": m * layer.loss / pp,
        "tp": m * per_stage * tp,
        "cp": m * per_stage * cp,
        "ep": 0.0 * mean_slot,
        "pp": m * boundary,
        "dp": dp,
        "optimizer": optimizer_seconds(ctx, layout, shape.parameters),
        "stage_imbalance": m * (slowest_slot - mean_slot),
        "bubble": bubble,
    }
    starts = KERNELS_PER_LAYER_FORWARD * (1 + again[2]) + KERNELS_PER_LAYER_BACKWARD
    starting = m * per_stage * starts * software.host_seconds_per_kernel
    host = beyond(starting, m * slowest_slot) + software.step_overhead_seconds
    running = sum(work.values()) + host
    ranks = 1.0 * layout.tp * layout.cp * pp * layout.dp_shard * layout.dp_replicate
    straggler = software.straggler_fraction_per_doubling * np.log2(ranks) * running
    return StepTime(**work, host=host, straggler=straggler)


def layer_exposed(
    ctx: CostContext,
    layout: LayoutLike,
    layer: LayerTimes,
    costs: Mapping[str, GroupCost],
    seconds: Mapping[str, Numeric],
) -> dict[str, Numeric]:
    """Exposed seconds of a layer's tensor- and context-parallel channels, one micro-batch.

    Chunked tensor parallelism pipelines with the matmuls it feeds; what belongs to the weight
    and data gradients runs beside them. A context-parallel ring travels behind attention's
    blocks, all but the first.
    """
    again = RECOMPUTED_SHARES[:, layout.recompute_index]
    share = ctx.software.coefficients.tp_overlap_fraction
    found: dict[str, Numeric] = {}
    for name, work in (
        ("tp_forward", layer.gemm_forward * (1 + again[3])),
        ("tp_backward", layer.gemm_backward),
    ):
        outside: Numeric = 0.0
        for busy in costs[name].busy_seconds[1:]:
            outside = np.maximum(outside, busy)
        found[name] = chunked(seconds[name], outside, layout.tp, share * work, layout.overlap_tp)
    found["tp_beside"] = beyond(seconds["tp_beside"], share * layer.gemm_backward)
    ring = np.asarray(layout.cp_kind_index) == CP_KINDS.index("ring")
    behind = ring * (1.0 - 1.0 / layout.cp)
    attention = {
        "cp_forward": layer.attention_forward * (1 + again[1]),
        "cp_backward": layer.attention_backward,
    }
    for name, work in attention.items():
        found[name] = beyond(seconds[name], behind * work)
    return found


STATE_TRAFFIC_BYTES = 26.0
"""Per parameter: FP32 master and two moments read and written (24), 16-bit weight written (2)."""

GRADIENT_PASSES = 4.0
"""Times a gradient passes HBM in a step: its norm, its scaling in and out, the update."""


def optimizer_seconds(ctx: CostContext, layout: LayoutLike, parameters: Numeric) -> Numeric:
    """Adam over a rank's share of the states, and clearing its gradients, at the HBM rate."""
    zero = np.asarray(layout.zero_stage)
    shards = 1.0 * layout.cp * layout.dp_shard
    own = parameters / np.where(zero >= 1, shards, 1)
    gradients = parameters / np.where(zero >= 2, shards, 1) * ctx.software.gradient_bytes
    passes = STATE_TRAFFIC_BYTES + GRADIENT_PASSES * ctx.software.gradient_bytes
    return (own * passes + gradients) / ctx.hbm_bytes_per_second


def evaluate(ctx: CostContext, layout: LayoutLike, splits: Splits) -> StepTime:
    """Breakdown of a layout whose groups are split over tiers as given."""
    shape = shape_costs(ctx, layout)
    return step_time(ctx, layout, shape, channel_costs(ctx, shape.traffic, splits))
