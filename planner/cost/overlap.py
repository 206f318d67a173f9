"""What hides behind what: the exposed seconds of traffic, of a layer and of a step.

Traffic that runs at the same time as computation costs only what the computation does not hide.
`planner.cost.channels.SPECS` names the work behind which each channel can hide; here is how much of
it hides. Every function is non-decreasing in the traffic's seconds: the search's bounds need that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.cost.activations import layer_activations
from planner.cost.channels import SPECS, Channel, HiddenBy, Occurs, occurrences
from planner.cost.collectives import GroupCost
from planner.cost.compute import ring_members
from planner.cost.context import CostContext
from planner.cost.layer_work import KindTimes, LayerWork
from planner.cost.layers import num_layers
from planner.cost.offload import offloads_activations
from planner.cost.passes import ForwardBackward
from planner.cost.pipeline import (
    overlapped_share,
    runs_both_passes,
    synchronisation_window,
    waits_for_weights,
)
from planner.cost.recompute import RecomputedShares
from planner.cost.traffic import Traffic
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Integer, Numeric

ChannelSeconds = Mapping[Channel, Numeric]
"""Seconds of one run of each channel."""


def beyond(busy: Numeric, budget: Numeric) -> Numeric:
    """Seconds of traffic that `budget` seconds of work do not hide: max(0, busy − budget)."""
    return np.maximum(0.0, busy - budget)


def shown(busy: Numeric, budget: Numeric, contention: float) -> Numeric:
    """Seconds that traffic adds which overlaps with `budget` seconds of work.

    What hides takes multiprocessors and memory bandwidth from that work: a share `contention` of
    its own seconds.

        busy − (1 − contention) · min(busy, budget)
    """
    return busy - (1.0 - contention) * np.minimum(busy, budget)


# ---------------------------------------------------------------- tensor and context parallelism


def chunked(
    busy: Numeric, beyond_domain: Numeric, chunks: Numeric, budget: Numeric, enabled: Integer
) -> Numeric:
    """Exposed seconds of traffic cut into `chunks` that pipeline with the matmul they feed.

    At least one chunk stays exposed, no more hides than `budget`, and what leaves the innermost
    domain (`beyond_domain` seconds) does not hide: the chunks are copies between its members.
    enabled: 1 where a layout overlaps tensor parallelism; all is exposed where it is 0.

        max(busy / chunks, beyond_domain, busy − budget)
    """
    exposed = np.maximum(np.maximum(busy / chunks, beyond_domain), busy - budget)
    return np.where(enabled, exposed, busy)


def layer_exposed(
    ctx: CostContext,
    layout: LayoutLike,
    work: LayerWork,
    recomputed: RecomputedShares,
    costs: Mapping[Channel, GroupCost],
    seconds: ChannelSeconds,
) -> dict[Channel, Numeric]:
    """Exposed seconds of a layer's tensor- and context-parallel channels, one micro-batch.

    work: the mean layer's kernels; costs, seconds: of one run of every channel. Chunked tensor
    parallelism pipelines with the matmuls it feeds; what belongs to the gradients of weights and
    inputs runs while they are computed. A context-parallel ring hides behind attention's blocks,
    all but the first; state-space layers wait for their all-to-alls.
    """
    share = ctx.software.coefficients.tp_overlap_fraction
    blocks = 1.0 - 1.0 / ring_members(layout)
    in_chunks = {
        HiddenBy.FORWARD_MATMULS: work.gemm.forward * (1 + recomputed.collectives),
        HiddenBy.BACKWARD_MATMULS: work.gemm.backward,
    }
    as_one = {
        HiddenBy.GRADIENT_MATMULS: share * work.gemm.backward,
        HiddenBy.FORWARD_ATTENTION: blocks * (work.attention.forward * (1 + recomputed.attention)),
        HiddenBy.BACKWARD_ATTENTION: blocks * work.attention.backward,
    }
    exposed: dict[Channel, Numeric] = {}
    for channel, spec in SPECS.items():
        if spec.occurs is not Occurs.PER_LAYER or channel not in seconds:
            continue
        busy, hidden_by = seconds[channel], spec.hidden_by
        if hidden_by in in_chunks:
            # the slowest of the tiers outside the innermost domain
            outside: Numeric = 0.0
            for tier_busy in costs[channel].busy_seconds[1:]:
                outside = np.maximum(outside, tier_busy)
            budget = share * in_chunks[hidden_by]
            exposed[channel] = chunked(busy, outside, layout.tp, budget, layout.overlap_tp)
        elif hidden_by in as_one:
            exposed[channel] = beyond(busy, as_one[hidden_by])
        else:
            exposed[channel] = busy
    return exposed


TP_CHANNELS = (Channel.TP_FORWARD, Channel.TP_BACKWARD, Channel.TP_GRADIENTS)
"""Channels of a layer's tensor parallelism."""


def skew_seconds(ctx: CostContext, layout: LayoutLike, traffic: Traffic) -> Numeric:
    """Seconds that the ranks of a tensor-parallel group wait for each other in a layer.

    They do not reach a collective at the same time: each call takes the cluster's number for each
    doubling of the group, which no computation hides. Chunks that are copied between neighbours
    while matmuls run need no such meeting.
    """
    return sum(channel_skew_seconds(ctx, layout, traffic, channel) for channel in TP_CHANNELS)


def channel_skew_seconds(
    ctx: CostContext, layout: LayoutLike, traffic: Traffic, channel: Channel
) -> Numeric:
    """Of `skew_seconds`, those of one run of a channel; 0 of other parallelism."""
    if channel not in TP_CHANNELS:
        return 0.0
    calls = sum(one.calls for one in traffic[channel])
    per_call = ctx.topology.overheads.collective_seconds * np.log2(1.0 * np.asarray(layout.tp))
    return np.where(layout.overlap_tp, 0.0, calls) * per_call


# ---------------------------------------------------------------- dispatch and combine

DISPATCH_SHARE = 0.15
"""Share of the multiprocessors that dispatch and combine take while kernels run (DeepEP: 20 to 24
of 132; HybridEP: 16 to 32 of 148)."""


def dispatch_busy(kind: KindTimes, seconds: ChannelSeconds) -> Numeric:
    """All seconds of a kind's dispatch and combine, weighted with its share of layers."""
    if kind.experts is None:
        return 0.0
    channels = (
        Channel.EP_FORWARD, Channel.EP_BACKWARD, Channel.ETP_FORWARD, Channel.ETP_BACKWARD,
    )  # fmt: skip
    return kind.share * sum(seconds[channel] for channel in channels)


def dispatch_exposed(
    ctx: CostContext,
    layout: LayoutLike,
    kinds: Sequence[KindTimes],
    works: Sequence[LayerWork],
    seconds: ChannelSeconds,
) -> tuple[Numeric, ...]:
    """Exposed seconds of each kind of layer's dispatch and combine, one micro-batch, both passes.

    Overlapped (`overlap` ep), they run while another micro-batch's passes do.
    """
    # the first micro-batch's have no other passes to overlap with
    others: Numeric = 1.0 - 1.0 / layout.num_microbatches
    only_1f1b = ctx.software.only_1f1b
    if not only_1f1b:
        others = np.where(runs_both_passes(layout), 1.0, others)
    share = ctx.software.coefficients.dp_overlap_fraction * layout.overlap_ep * others
    exposed: list[Numeric] = []
    for kind, work in zip(kinds, works, strict=True):
        if kind.experts is None:
            exposed.append(0.0)
            continue
        busy = seconds[Channel.EP_FORWARD] + seconds[Channel.EP_BACKWARD]
        within_etp = seconds[Channel.ETP_FORWARD] + seconds[Channel.ETP_BACKWARD]
        added = shown(busy, share * (work.forward + work.backward), DISPATCH_SHARE)
        if not only_1f1b:
            added = busy - overlapped_share(layout) * (busy - added)
        exposed.append(added + within_etp)
    return tuple(exposed)


# ---------------------------------------------------------------- activations on the host


def offload_exposed(
    ctx: CostContext, layout: LayoutLike, works: Sequence[LayerWork]
) -> tuple[Numeric, ...]:
    """Exposed seconds of a layer's kept activations on their way to the host and back, by kind.

    They leave during the forward pass of a layer and come back during the backward pass of another,
    with what that recomputes. Infinite where the host is unknown.
    """
    host = ctx.accelerator.host
    if host is None:
        return tuple(np.inf for _ in works)
    exposed: list[Numeric] = []
    for kind, work in zip(ctx.layer_kinds, works, strict=True):
        kept = layer_activations(ctx, layout, kind.blocks).kept
        sent = offloads_activations(layout) * kept / host.achieved_link
        exposed.append(beyond(sent, work.forward) + beyond(sent, work.backward + work.recompute))
    return tuple(exposed)


# ---------------------------------------------------------------- parameters and gradients


def state_exposed(
    ctx: CostContext,
    layout: LayoutLike,
    mean: LayerWork,
    free: ForwardBackward,
    seconds: ChannelSeconds,
) -> Numeric:
    """Seconds of a step's parameter and gradient traffic that do not hide behind the passes.

    mean: the mean layer's kernels; free: seconds of its passes that hide nothing else, for a second
    of work hides one second of traffic. seconds: of one run of every channel.
    """
    m = layout.num_microbatches
    zero, window = np.asarray(layout.zero_stage), synchronisation_window(layout)
    share = ctx.software.coefficients.dp_overlap_fraction
    # of a stage, per second of its mean layer
    hides = share * layout.overlap_dp * (num_layers(ctx.model) / layout.pp)
    contention = float(ctx.software.coefficients.contention_fraction)
    behind_forward = np.where(zero == 3, m, window) * hides * free.forward
    behind_backward = np.where(zero >= 2, m, window) * hides * free.backward
    if not ctx.software.only_1f1b:
        # gradients of weights come last, and no collective runs while they do
        apart = (zero < 2) & waits_for_weights(layout)
        behind_backward = np.where(apart, hides * mean.weight_gradients, behind_backward)
    times = occurrences(ctx, layout)

    def busy(hidden_by: HiddenBy) -> Numeric:
        return sum(
            times[channel] * seconds[channel]
            for channel, spec in SPECS.items()
            if spec.hidden_by is hidden_by and channel in seconds
        )

    forward = shown(busy(HiddenBy.FORWARD_PASSES), behind_forward, contention)
    return forward + shown(busy(HiddenBy.BACKWARD_PASSES), behind_backward, contention)
