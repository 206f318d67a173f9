"""What a micro-batch costs in a layer of each kind and in the mean one: kernels and traffic.

`LayerCosts` is what flows from layers to the step: seconds on one rank, of one micro-batch unless
said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.channels import Channel
from planner.cost.collectives import GroupCost, duration
from planner.cost.compute import EndTimes
from planner.cost.context import CostContext
from planner.cost.layer_work import KindTimes, LayerWork, layer_work, mean_work
from planner.cost.offload import offloads_any
from planner.cost.overlap import (
    TP_CHANNELS,
    ChannelSeconds,
    dispatch_busy,
    dispatch_exposed,
    layer_exposed,
    offload_exposed,
    skew_seconds,
)
from planner.cost.passes import ForwardBackward, Passes
from planner.cost.recompute import RecomputedShares
from planner.cost.traffic import Traffic
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Numeric


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """Seconds of layers, and of what lies between stages.

    works, mean: kernels of each kind of layer, and of the mean one.
    seconds: of one run of every channel; exposed: of those over tp and cp, what nothing hides; tp,
    cp: the latter's sums, a layer.
    dispatch: exposed seconds of each kind's dispatch and combine, both passes; dispatch_busy: all
    seconds of them, as each kind's share of a mean layer; ep, ep_busy: the mean layer's of both.
    offload: exposed seconds of each kind's activations on their way to the host and back.
    boundary: exposed seconds of a rank's sends to other stages.
    """

    kinds: tuple[KindTimes, ...]
    works: tuple[LayerWork, ...]
    mean: LayerWork
    recomputed: RecomputedShares
    seconds: ChannelSeconds
    exposed: ChannelSeconds
    tp: Numeric
    cp: Numeric
    dispatch: tuple[Numeric, ...]
    dispatch_busy: tuple[Numeric, ...]
    ep: Numeric
    ep_busy: Numeric
    offload: tuple[Numeric, ...]
    boundary: Numeric

    @property
    def logits(self) -> Numeric:
        """Seconds of gathering logits, where software does."""
        return self.seconds.get(Channel.TP_LOGITS, 0.0)

    def mean_of(self, by_kind: Sequence[Numeric]) -> Numeric:
        """The mean layer's share of what each kind of layer has."""
        return _mean(self.kinds, by_kind)

    def free_passes(self) -> ForwardBackward:
        """Seconds of the mean layer's passes that hide no traffic of tp, cp and ep."""
        recomputed, mean = self.recomputed, self.mean
        hidden = {channel: self.seconds[channel] - shown for channel, shown in self.exposed.items()}
        ep_hidden = self.ep_busy - self.ep
        # channels of the forward pass hold what recompute repeats, which hides in the backward pass
        tp_forward = hidden[Channel.TP_FORWARD] / (1 + recomputed.collectives)
        cp_forward = hidden[Channel.CP_FORWARD] / (1 + recomputed.attention)
        tp_backward = (
            recomputed.collectives * tp_forward
            + hidden[Channel.TP_BACKWARD]
            + hidden[Channel.TP_GRADIENTS]
        )
        cp_backward = recomputed.attention * cp_forward + hidden[Channel.CP_BACKWARD]
        taken_forward = tp_forward + cp_forward + ep_hidden / 2
        taken_backward = tp_backward + cp_backward + ep_hidden / 2
        return ForwardBackward(
            np.maximum(0.0, mean.forward - taken_forward),
            np.maximum(0.0, mean.backward + mean.recompute - taken_backward),
        )


def layer_costs(
    ctx: CostContext,
    layout: LayoutLike,
    kinds: tuple[KindTimes, ...],
    traffic: Traffic,
    recomputed: RecomputedShares,
    costs: Mapping[Channel, GroupCost],
) -> LayerCosts:
    """Seconds of layers whose kernels take these times and whose channels have these costs.

    kinds: kernel times of each kind of layer; costs: cost vectors of one run of every channel.
    """
    seconds = {channel: duration(cost, ctx.ramp) for channel, cost in costs.items()}
    works = tuple(layer_work(kind, recomputed) for kind in kinds)
    mean = mean_work(kinds, works)
    exposed = layer_exposed(ctx, layout, mean, recomputed, costs, seconds)
    waits = skew_seconds(ctx, layout, traffic)
    dispatch = dispatch_exposed(ctx, layout, kinds, works, seconds)
    busy = tuple(dispatch_busy(kind, seconds) for kind in kinds)
    offload: tuple[Numeric, ...] = tuple(0.0 for _ in works)
    if offloads_any(layout):
        offload = offload_exposed(ctx, layout, works)
    return LayerCosts(
        kinds=kinds,
        works=works,
        mean=mean,
        recomputed=recomputed,
        seconds=seconds,
        exposed=exposed,
        tp=waits + _sum_of(exposed, *TP_CHANNELS),
        cp=_sum_of(
            exposed,
            Channel.CP_FORWARD, Channel.CP_BACKWARD, Channel.CP_HEADS,
            Channel.CP_SCAN_FORWARD, Channel.CP_SCAN_BACKWARD,
        ),
        dispatch=dispatch,
        dispatch_busy=busy,
        ep=_mean(kinds, dispatch),
        ep_busy=sum(busy),
        offload=offload,
        boundary=_boundary(ctx, layout, seconds),
    )  # fmt: skip


def _mean(kinds: Sequence[KindTimes], by_kind: Sequence[Numeric]) -> Numeric:
    """The mean over layers of what each kind has."""
    return sum(kind.share * value for kind, value in zip(kinds, by_kind, strict=True))


def _sum_of(seconds: ChannelSeconds, first: Channel, *others: Channel) -> Numeric:
    """Seconds of some channels together; all but the first may be missing."""
    total = seconds[first]
    for channel in others:
        if channel in seconds:
            total = total + seconds[channel]
    return total


def _boundary(ctx: CostContext, layout: LayoutLike, seconds: ChannelSeconds) -> Numeric:
    """Exposed seconds of a rank's sends to other stages: computation hides a share of them."""
    sends = (np.asarray(layout.pp) > 1) * seconds[Channel.PP]
    hidden_share = ctx.software.coefficients.pp_overlap_fraction * layout.overlap_pp
    return sends * (1.0 - hidden_share)


# ---------------------------------------------------------------- by pass


def layer_passes(layers: LayerCosts, work: LayerWork, dispatch: Numeric) -> Passes:
    """Passes of a layer with these kernels and exposed seconds of dispatch and combine.

    Recompute, and all communication but the forward pass's share, belong to the gradients of
    inputs. Gradients of weights are matmuls alone: no communication waits for them.
    """
    communicated = _forward_exposed(layers)
    return Passes(
        forward=work.forward + communicated + dispatch / 2,
        input_gradients=work.backward
        - work.weight_gradients
        + work.recompute
        + (sum(layers.exposed.values()) - communicated)
        + dispatch / 2,
        weight_gradients=work.weight_gradients,
    )


def shorter_pass(layers: LayerCosts, work: LayerWork, dispatch: Numeric, both: Numeric) -> Numeric:
    """Seconds of the shorter of a layer's forward and backward pass, which take `both`."""
    forward = work.forward + _forward_exposed(layers) + dispatch / 2
    return np.minimum(forward, both - forward)


def _forward_exposed(layers: LayerCosts) -> Numeric:
    """Exposed seconds of the forward pass's tp and cp channels, without what recompute repeats."""
    exposed, recomputed = layers.exposed, layers.recomputed
    shown = exposed[Channel.TP_FORWARD] / (1 + recomputed.collectives)
    shown = shown + exposed[Channel.CP_FORWARD] / (1 + recomputed.attention)
    if Channel.CP_SCAN_FORWARD in exposed:
        shown = shown + exposed[Channel.CP_SCAN_FORWARD] / (1 + recomputed.scan)
    return shown


def recompute_seconds(layers: LayerCosts) -> Numeric:
    """Seconds that the mean layer's recompute takes, its kernels and its collectives, where
    dispatch and combine do not overlap."""
    recomputed, exposed = layers.recomputed, layers.exposed
    seconds = (
        layers.mean.recompute
        + exposed[Channel.TP_FORWARD] * (recomputed.collectives / (1 + recomputed.collectives))
        + exposed[Channel.CP_FORWARD] * (recomputed.attention / (1 + recomputed.attention))
    )
    if Channel.CP_HEADS in exposed:  # of both passes
        share = recomputed.attention / (2 + recomputed.attention)
        seconds = seconds + exposed[Channel.CP_HEADS] * share
    if Channel.EP_FORWARD in layers.seconds:
        dispatch = layers.seconds[Channel.EP_FORWARD] + layers.seconds[Channel.ETP_FORWARD]
        seconds = seconds + dispatch * (recomputed.experts / (1 + recomputed.experts))
    return seconds


@dataclass(frozen=True, slots=True)
class EndPasses:
    """Passes of what the first and the last stage do besides layers."""

    first: Passes
    last: Passes


def end_passes(ends: EndTimes, logits: Numeric) -> EndPasses:
    """Passes of the ends; half of the embedding and of the loss in either direction."""
    return EndPasses(
        first=Passes(ends.embedding / 2, ends.embedding / 2, 0.0),
        last=Passes(
            ends.head.forward + ends.loss / 2 + logits,
            ends.head.backward - ends.head_weight_gradients + ends.loss / 2,
            ends.head_weight_gradients,
        ),
    )
