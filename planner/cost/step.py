"""The step: every cost of a layout and its placement joined, once, for numbers and for arrays.

    shape_costs(ctx, layout)                 what depends on the layout alone
    channel_costs(ctx, traffic, splits)      cost vectors of the groups' traffic, by placement
    step_time(ctx, layout, shape, costs)     the additive breakdown

`step_time` is non-decreasing in every component of every cost vector; the search's bounds rest on
that alone. No other code combines groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from planner.cost.activations import layer_activations
from planner.cost.collectives import GroupCost, duration
from planner.cost.compute import RECOMPUTED_SHARES, EndTimes, end_times, on_unique
from planner.cost.context import CostContext
from planner.cost.host import host_exposed, kernel_starts
from planner.cost.layers import layers_by_kind, model_stages, num_layers
from planner.cost.memory import own_parameters, stage_parameters
from planner.cost.overlap import beside, beyond, chunked
from planner.cost.pipeline import bubble_slots, synchronisation_window
from planner.cost.traffic import (
    Channel,
    Parameters,
    Splits,
    channel_costs,
    channels,
    occurrences,
)
from planner.cost.ways import offloads_activations, offloads_any, offloads_optimizer, ring_members
from planner.cost.work import Kind, Work, kind_times, layer_work, mean_work
from planner.layout import LayoutLike, Numeric


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
    offload: Numeric
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

    stage and the layers of each kind have the stages considered first, shape (S, …).
    """

    kinds: tuple[Kind, ...]
    ends: EndTimes
    stage: Numeric
    layers: tuple[Numeric, ...]  # by kind
    parameters: Parameters
    traffic: Mapping[str, Channel]


def shape_costs(ctx: CostContext, layout: LayoutLike) -> ShapeCosts:
    """Kernel times, stages and traffic of a layout (or of each row of a table)."""
    kinds = kind_times(ctx, layout)
    ends = on_unique(lambda *keys: end_times(ctx, *keys), layout.tp, layout.cp, layout.mbs)
    stage, layers = model_stages(ctx.model, layout, ctx.reserved)
    by_stage = stage_parameters(ctx, layout, stage, layers)
    parameters = Parameters(np.max(by_stage.dense, axis=0), np.max(by_stage.experts, axis=0))
    return ShapeCosts(
        kinds,
        ends,
        stage,
        layers_by_kind(ctx.model, layout, stage, layers, ctx.reserved),
        parameters,
        channels(ctx, layout, parameters),
    )


def step_time(
    ctx: CostContext, layout: LayoutLike, shape: ShapeCosts, costs: Mapping[str, GroupCost]
) -> StepTime:
    """Breakdown of a step.

    A micro-batch passes a stage in `slot` seconds. A step is m slots of the slowest stage, the
    pipeline's filling with (pp − 1)/vp mean slots, gradient and parameter traffic beyond what
    hides, the optimizer, and what the host and the slowest of many ranks add. Terms are means
    over stages; `stage_imbalance` brings them to the slowest stage's rank.
    """
    software, ends = ctx.software.coefficients, shape.ends
    m, pp = layout.num_microbatches, layout.pp
    seconds = {name: duration(cost, ctx.ramp) for name, cost in costs.items()}
    again = RECOMPUTED_SHARES[:, layout.recompute_index]
    per_stage = num_layers(ctx.model) / pp
    works = [layer_work(kind, again) for kind in shape.kinds]
    mean = mean_work(shape.kinds, works)

    exposed = layer_exposed(ctx, layout, mean, costs, seconds)
    tp = exposed["tp_forward"] + exposed["tp_backward"] + exposed["tp_beside"]
    cp = exposed["cp_forward"] + exposed["cp_backward"] + exposed.get("cp_inner", 0.0)
    if ctx.model.mamba is not None:
        cp = cp + exposed["cp_scan_forward"] + exposed["cp_scan_backward"]
    hidden = {name: seconds[name] - value for name, value in exposed.items()}
    exchanges = exchange_exposed(ctx, layout, shape.kinds, works, seconds)
    ep = sum(kind.share * value for kind, value in zip(shape.kinds, exchanges, strict=True))
    hidden["ep"] = sum(exchange_seconds(kind, seconds) for kind in shape.kinds) - ep

    layer_slot = mean.forward + mean.backward + mean.recompute + tp + cp + ep
    offload: Numeric = 0.0
    if offloads_any(layout):
        away = offload_exposed(ctx, layout, works)
        offload = sum(kind.share * value for kind, value in zip(shape.kinds, away, strict=True))
        layer_slot = layer_slot + offload
        exchanges = [exchange + sent for exchange, sent in zip(exchanges, away, strict=True)]
    head = ends.head_forward + ends.head_backward
    logits = seconds.get("tp_logits", 0.0)
    slot = (shape.stage == 0) * ends.embedding + (shape.stage == pp - 1) * (
        head + ends.loss + logits
    )
    for layers, work, exchange in zip(shape.layers, works, exchanges, strict=True):
        slot = slot + layers * (work.forward + work.backward + work.recompute + tp + cp + exchange)
    mean_slot = per_stage * layer_slot + (ends.embedding + head + ends.loss + logits) / pp
    slowest_slot = np.max(slot, axis=0)

    boundary = (
        (np.asarray(pp) > 1)
        * seconds["pp"]
        * (1.0 - software.pp_overlap_fraction * layout.overlap_pp)
    )
    work_terms = {
        "compute_gemm": m * (per_stage * (mean.gemm_forward + mean.gemm_backward) + head / pp),
        "compute_attention": m * per_stage * (mean.attention_forward + mean.attention_backward),
        "compute_memory_bound": m
        * (per_stage * (mean.memory_forward + mean.memory_backward) + ends.embedding / pp),
        "recompute": m * per_stage * mean.recompute,
        "loss": m * ends.loss / pp,
        "tp": m * (per_stage * tp + logits / pp),
        "cp": m * per_stage * cp,
        "ep": m * per_stage * ep + 0.0 * mean_slot,
        "pp": m * boundary,
        "dp": state_exposed(ctx, layout, mean, hidden, again, seconds),
        "optimizer": optimizer_seconds(ctx, layout, shape.parameters),
        "offload": offload * (m * per_stage) if offloads_any(layout) else 0.0 * mean_slot,
        "stage_imbalance": m * (slowest_slot - mean_slot),
        "bubble": bubble_slots(layout) * (mean_slot + boundary),
    }
    starting = m * per_stage * kernel_starts(ctx, layout, again) * software.host_seconds_per_kernel
    host = host_exposed(ctx, starting, m * slowest_slot) + software.step_overhead_seconds
    running = sum(work_terms.values()) + host
    ranks = 1.0 * layout.tp * layout.cp * pp * layout.dp_shard * layout.dp_replicate
    straggler = software.straggler_fraction_per_doubling * np.log2(ranks) * running
    return StepTime(**work_terms, host=host, straggler=straggler)


def state_exposed(
    ctx: CostContext,
    layout: LayoutLike,
    mean: Work,
    hidden: Mapping[str, Numeric],
    again: Numeric,
    seconds: Mapping[str, Numeric],
) -> Numeric:
    """Seconds of a step's parameter and gradient traffic that do not hide behind the passes.

    A second of work hides one second of traffic: what tp, cp and ep hide behind is taken.
    """
    m = layout.num_microbatches
    zero, last = np.asarray(layout.zero_stage), synchronisation_window(layout)
    times = occurrences(ctx, layout)
    share = ctx.software.coefficients.dp_overlap_fraction
    hides = share * layout.overlap_dp * (num_layers(ctx.model) / layout.pp)
    tp_forward = hidden["tp_forward"] / (1 + again[3])
    cp_forward = hidden["cp_forward"] / (1 + again[1])
    tp_backward = again[3] * tp_forward + hidden["tp_backward"] + hidden["tp_beside"]
    cp_backward = again[1] * cp_forward + hidden["cp_backward"]
    taken_forward = tp_forward + cp_forward + hidden["ep"] / 2
    taken_backward = tp_backward + cp_backward + hidden["ep"] / 2
    free_forward = np.maximum(0.0, mean.forward - taken_forward)
    free_backward = np.maximum(0.0, mean.backward + mean.recompute - taken_backward)
    prefixes = ("", "expert_") if ctx.model.moe is not None else ("",)

    def moved(*names: str) -> Numeric:
        channels_ = [prefix + name for prefix in prefixes for name in names]
        return sum(times[name] * seconds[name] for name in channels_)

    return beyond(
        moved("gather_forward"), np.where(zero == 3, m, last) * hides * free_forward
    ) + beyond(
        moved("gather_backward", "reduce", "replicate"),
        np.where(zero >= 2, m, last) * hides * free_backward,
    )


def exchange_seconds(kind: Kind, seconds: Mapping[str, Numeric]) -> Numeric:
    """A kind's share of the exchanges with experts, hidden or not, of a mean layer."""
    if kind.experts is None:
        return 0.0
    names = ("ep_forward", "ep_backward", "etp_forward", "etp_backward")
    return kind.share * sum(seconds[name] for name in names)


def exchange_exposed(
    ctx: CostContext,
    layout: LayoutLike,
    kinds: Sequence[Kind],
    works: Sequence[Work],
    seconds: Mapping[str, Numeric],
) -> list[Numeric]:
    """Exposed seconds of each kind of layer's exchanges with its experts, one micro-batch.

    Overlapped (`overlap` ep), one micro-batch's exchanges run beside another's passes.
    """
    # the first micro-batch's exchanges have no other to run beside
    others = 1.0 - 1.0 / layout.num_microbatches
    share = ctx.software.coefficients.dp_overlap_fraction * layout.overlap_ep * others
    found: list[Numeric] = []
    for kind, work in zip(kinds, works, strict=True):
        if kind.experts is None:
            found.append(0.0)
            continue
        busy = seconds["ep_forward"] + seconds["ep_backward"]
        spread = seconds["etp_forward"] + seconds["etp_backward"]
        found.append(beside(busy, share * (work.forward + work.backward)) + spread)
    return found


def layer_exposed(
    ctx: CostContext,
    layout: LayoutLike,
    work: Work,
    costs: Mapping[str, GroupCost],
    seconds: Mapping[str, Numeric],
) -> dict[str, Numeric]:
    """Exposed seconds of a layer's tensor- and context-parallel channels, one micro-batch.

    Chunked tensor parallelism pipelines with the matmuls it feeds; what belongs to the weight
    and data gradients runs beside them. A context-parallel ring travels behind attention's
    blocks, all but the first; state-space layers wait for their exchanges.
    """
    again = RECOMPUTED_SHARES[:, layout.recompute_index]
    share = ctx.software.coefficients.tp_overlap_fraction
    found: dict[str, Numeric] = {}
    for name, behind in (
        ("tp_forward", work.gemm_forward * (1 + again[3])),
        ("tp_backward", work.gemm_backward),
    ):
        outside: Numeric = 0.0
        for busy in costs[name].busy_seconds[1:]:
            outside = np.maximum(outside, busy)
        found[name] = chunked(seconds[name], outside, layout.tp, share * behind, layout.overlap_tp)
    found["tp_beside"] = beyond(seconds["tp_beside"], share * work.gemm_backward)
    blocks = 1.0 - 1.0 / ring_members(layout)
    attention = {
        "cp_forward": work.attention_forward * (1 + again[1]),
        "cp_backward": work.attention_backward,
    }
    for name, behind in attention.items():
        found[name] = beyond(seconds[name], blocks * behind)
    if ctx.model.mamba is not None:
        found |= {name: seconds[name] for name in ("cp_scan_forward", "cp_scan_backward")}
    if "cp_inner" in seconds:
        found["cp_inner"] = seconds["cp_inner"]
    return found


STATE_TRAFFIC_BYTES = 26.0
"""Per parameter: FP32 master and two moments read and written (24), 16-bit weight written (2)."""

GRADIENT_PASSES = 4.0
"""Times a gradient passes HBM in a step: its norm, its scaling in and out, the update."""


def optimizer_seconds(ctx: CostContext, layout: LayoutLike, parameters: Parameters) -> Numeric:
    """Adam over a rank's share of the states, and clearing its gradients, at the HBM rate."""
    zero = np.asarray(layout.zero_stage)
    shards = 1.0 * layout.cp * layout.dp_shard
    passes = STATE_TRAFFIC_BYTES + GRADIENT_PASSES * ctx.software.gradient_bytes

    def moved(number: Numeric, shards: Numeric) -> Numeric:
        own = number / np.where(zero >= 1, shards, 1)
        gradients = number / np.where(zero >= 2, shards, 1) * ctx.software.gradient_bytes
        return own * passes + gradients

    total = moved(parameters.dense, shards)
    if ctx.model.moe is not None:
        total = total + moved(parameters.experts, layout.tp * shards / (layout.etp * layout.ep))
    if not offloads_any(layout):
        return total / ctx.hbm_bytes_per_second
    own = own_parameters(ctx, layout, parameters)
    device = np.where(offloads_optimizer(layout), total - own * STATE_TRAFFIC_BYTES, total)
    away = offloads_optimizer(layout) * host_step_seconds(ctx, own)
    return device / ctx.hbm_bytes_per_second + away


def host_step_seconds(ctx: CostContext, own: Numeric) -> Numeric:
    """Adam on the host over a rank's share of the states, in pieces that travel beside it.

    Gradients come over the link, weights go back in 16 bits, the host reads gradients and reads and
    writes the states: the longest of the three sets the pace (ZeRO-Offload, arXiv 2101.06840,
    section 5; Megatron-Core's overlap_cpu_optimizer_d2h_h2d).
    """
    host = ctx.accelerator.host
    if host is None:
        return np.inf * np.ones_like(own)
    gradients = float(ctx.software.gradient_bytes)
    return own * max(
        gradients / host.achieved_link,
        ctx.element_bytes / host.achieved_link,
        (STATE_TRAFFIC_BYTES + 2 * gradients) / host.achieved_memory,
    )


def offload_exposed(ctx: CostContext, layout: LayoutLike, works: Sequence[Work]) -> list[Numeric]:
    """Exposed seconds of a layer's kept activations on their way to the host and back, by kind.

    They leave beside the forward pass of a layer and come back beside the backward pass of another,
    what it runs again included.
    """
    host = ctx.accelerator.host
    if host is None:
        return [np.inf for _ in works]
    found: list[Numeric] = []
    for kind, work in zip(ctx.kinds, works, strict=True):
        kept = layer_activations(ctx, layout, kind.blocks).kept
        sent = offloads_activations(layout) * kept / host.achieved_link
        found.append(beyond(sent, work.forward) + beyond(sent, work.backward + work.recompute))
    return found


def evaluate(ctx: CostContext, layout: LayoutLike, splits: Splits) -> StepTime:
    """Breakdown of a layout whose groups are split over tiers as given."""
    shape = shape_costs(ctx, layout)
    return step_time(ctx, layout, shape, channel_costs(ctx, shape.traffic, splits))
