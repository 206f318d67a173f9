"""The step: every cost of a layout and its placement joined, once, for numbers and for arrays.

    layout_costs(ctx, layout)                     what depends on the layout alone
    channel_costs(ctx, traffic, splits)           cost vectors of the groups' traffic, by placement
    step_time(ctx, layout, costs, group_costs)    the additive breakdown

`step_time` is non-decreasing in every component of every cost vector; the search's bounds rest on
that and nothing else. No other code combines the costs of groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from planner.cost.channels import Channel
from planner.cost.collectives import GroupCost
from planner.cost.compute import EndTimes, end_times
from planner.cost.context import CostContext
from planner.cost.layer_costs import (
    LayerCosts,
    end_passes,
    layer_costs,
    layer_passes,
    recompute_seconds,
    shorter_pass,
)
from planner.cost.layer_work import KindTimes, kind_times
from planner.cost.layers import num_layers
from planner.cost.model_states import Parameters, optimizer_seconds, stage_parameters
from planner.cost.offload import offloads_any
from planner.cost.overheads import (
    host_exposed,
    host_slope,
    kernel_launches,
    straggler_seconds,
    unexplained_seconds,
)
from planner.cost.overlap import state_exposed
from planner.cost.passes import Passes
from planner.cost.pipeline import (
    SlowestSlot,
    StageSlots,
    bubble_seconds,
    bubble_slots,
    idle_seconds,
    min_idle_seconds,
    runs_both_passes,
    runs_in_rounds,
)
from planner.cost.recompute import RecomputedShares, counts_layers, recomputed_shares
from planner.cost.stage_split import LastTurn, given_stages, last_turn
from planner.cost.stages import MOST_LAYERS, RankStages, candidate_ranks, rank_stages
from planner.cost.traffic import Splits, Traffic, channel_costs, layout_traffic
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Numeric


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step by cause, on a rank of the slowest stage; the terms sum to the step.

    Terms are numbers, or arrays of the table's shape. tp, cp, ep, pp and dp are what each one's
    communication exposes outside the bubble; bubble is the time in which the rank is idle.
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
    unexplained: Numeric

    @property
    def total(self) -> Numeric:
        """Seconds of the step."""
        seconds: Numeric = sum(getattr(self, f.name) for f in fields(self))
        return seconds


# ---------------------------------------------------------------- what a layout costs anywhere


@dataclass(frozen=True, slots=True)
class LayoutCosts:
    """What a layout costs wherever its groups live.

    kinds, ends: kernel times of each kind of layer, and of the embedding, head and loss.
    stages: the stages on the S ranks that are costed, shape (S, …); the slowest of all is among
    them. parameters: of the rank with the most, shape (…).
    bounds_all_splits: whether the step shall be a lower bound over all stage splits. Then the
    slowest stage has at least the shortest slot of the ranks that are costed, and the mean one.
    last_turn: see `cost.stage_split`; None where no row passes its chunks in rounds.
    """

    kinds: tuple[KindTimes, ...]
    ends: EndTimes
    stages: RankStages
    parameters: Parameters
    recomputed: RecomputedShares
    traffic: Traffic
    bounds_all_splits: bool = False
    last_turn: LastTurn | None = None


def layout_costs(ctx: CostContext, layout: LayoutLike) -> LayoutCosts:
    """Kernel times, stages and traffic of a layout, or of each row of a table."""
    stages = rank_stages(ctx, layout, candidate_ranks(ctx, layout, latest=True))
    by_rank = stage_parameters(ctx, layout, stages)
    parameters = Parameters(np.max(by_rank.dense, axis=0), np.max(by_rank.experts, axis=0))
    in_rounds, turn = runs_in_rounds(layout), None
    if np.any(in_rounds):
        turn = last_turn(ctx.model.num_layers, layout, ctx.reserved)
        turn = replace(turn, extra_layers=np.where(in_rounds, turn.extra_layers, -np.inf))
    return costs_of_stages(ctx, layout, stages, parameters, last_turn=turn)


def costs_of_stages(
    ctx: CostContext,
    layout: LayoutLike,
    stages: RankStages,
    parameters: Parameters,
    *,
    bounds_all_splits: bool = False,
    last_turn: LastTurn | None = None,
) -> LayoutCosts:
    """The same with given stages on the ranks that are costed, and parameters of the largest."""
    recomputed = recomputed_shares(ctx, layout)
    return LayoutCosts(
        kinds=kind_times(ctx, layout),
        ends=end_times(ctx, layout),
        stages=stages,
        parameters=parameters,
        recomputed=recomputed,
        traffic=layout_traffic(ctx, layout, parameters, recomputed),
        bounds_all_splits=bounds_all_splits,
        last_turn=last_turn,
    )


# ---------------------------------------------------------------- the step


def evaluate(ctx: CostContext, layout: LayoutLike, splits: Splits) -> StepTime:
    """Breakdown of a layout whose groups are split over tiers as given."""
    costs = layout_costs(ctx, layout)
    return step_time(ctx, layout, costs, channel_costs(ctx, costs.traffic, splits))


def step_time(
    ctx: CostContext,
    layout: LayoutLike,
    costs: LayoutCosts,
    group_costs: Mapping[Channel, GroupCost],
) -> StepTime:
    """Breakdown of a step in seconds, shape of the layout.

    group_costs: the cost vector of one run of every channel of `costs.traffic`.

    A micro-batch passes a stage in a slot. A step is m slots of the slowest stage, the pipeline's
    idle seconds (of equal stages under 1F1B (pp − 1)/vp slots), gradient and parameter traffic
    beyond what hides, the optimizer, and what the host and the slowest of many ranks add.
    Terms are means over stages; `stage_imbalance` brings them to the slowest stage's rank.
    """
    layers = layer_costs(ctx, layout, costs.kinds, costs.traffic, costs.recomputed, group_costs)
    slots = _slots(ctx, layout, costs, layers)
    launching = _launch_seconds(ctx, layout, costs.recomputed)
    idle = _idle_seconds(ctx, layout, costs, layers, slots, launching)
    # the host and stragglers add to the sum of all other terms, so they come last
    terms = _terms_without_overheads(ctx, layout, costs, layers, slots, idle)
    host = host_exposed(ctx, launching, layout.num_microbatches * slots.slowest)
    running = terms.total + host
    return replace(
        terms,
        host=host,
        straggler=straggler_seconds(ctx, layout, running),
        unexplained=unexplained_seconds(ctx, running),
    )


def _layers_per_stage(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Layers of the mean stage, prediction layers among them."""
    return num_layers(ctx.model) / layout.pp


def _launch_seconds(ctx: CostContext, layout: LayoutLike, recomputed: RecomputedShares) -> Numeric:
    """Seconds in which the host launches a step's kernels on the mean stage."""
    launches = kernel_launches(ctx, layout, recomputed)
    per_kernel = ctx.software.coefficients.host_seconds_per_kernel
    return layout.num_microbatches * _layers_per_stage(ctx, layout) * launches * per_kernel


# ---------------------------------------------------------------- slots


@dataclass(frozen=True, slots=True)
class _Slots:
    """Seconds of one micro-batch, both passes and the communication they expose.

    layer, by_kind: in the mean layer, and in a layer of each kind. exposed_by_kind: what of the
    latter is dispatch, combine and offloading. last_end: in the head, the loss and the logits.
    ranks: on the S ranks that are costed, shape (S, …); mean: on the mean of all ranks; slowest:
    on the one that the step waits for, or a lower bound of it.
    """

    layer: Numeric
    by_kind: tuple[Numeric, ...]
    exposed_by_kind: tuple[Numeric, ...]
    last_end: Numeric
    ranks: NDArray[np.float64]
    mean: Numeric
    slowest: Numeric


def _slots(ctx: CostContext, layout: LayoutLike, costs: LayoutCosts, layers: LayerCosts) -> _Slots:
    """Slots of layers, joined to slots of ranks."""
    mean, ends, tp, cp = layers.mean, costs.ends, layers.tp, layers.cp
    layer = mean.forward + mean.backward + mean.recompute + tp + cp + layers.ep
    exposed_by_kind = layers.dispatch
    if offloads_any(layout):
        layer = layer + layers.mean_of(layers.offload)
        exposed_by_kind = tuple(
            dispatch + offload
            for dispatch, offload in zip(layers.dispatch, layers.offload, strict=True)
        )
    by_kind = tuple(
        work.forward + work.backward + work.recompute + tp + cp + exposed
        for work, exposed in zip(layers.works, exposed_by_kind, strict=True)
    )
    if counts_layers(layout):
        by_kind = (by_kind[0] + _counted_recompute(ctx, layout, costs, layers),)
    head = ends.head.both - _deferred_head_seconds(ctx, layout, ends)
    last_end = head + ends.loss + layers.logits
    of_ends = (ends.embedding + last_end) / layout.pp
    mean_slot = _layers_per_stage(ctx, layout) * layer + of_ends
    ranks = _rank_slots(ctx, costs, by_kind, last_end)
    if costs.bounds_all_splits:
        slowest = np.maximum(np.min(ranks, axis=0), mean_slot)
    else:
        slowest = np.max(ranks, axis=0)
    return _Slots(layer, by_kind, exposed_by_kind, last_end, ranks, mean_slot, slowest)


def _deferred_head_seconds(ctx: CostContext, layout: LayoutLike, ends: EndTimes) -> Numeric:
    """Of a micro-batch's LM head, seconds of weight gradients that wait for the end of the step.

    A mean over the step's micro-batches. There the last stage is idle while the others drain the
    pipeline, so that nothing waits for them.
    """
    if not ctx.software.deferred_head_gradients:
        return 0.0
    share = np.minimum(1.0, ctx.software.deferred_head_gradients / layout.num_microbatches)
    return np.where(np.asarray(layout.pp) > 1, share * ends.head_weight_gradients, 0.0)


def _counted_recompute(
    ctx: CostContext, layout: LayoutLike, costs: LayoutCosts, layers: LayerCosts
) -> Numeric:
    """Seconds that a layer of each rank recomputes more than the mean layer does, shape (S, …).

    Not 0 where layers are counted: then stages recompute as many layers as each other, however many
    they have, so that each of few recomputes more. Layers are of one kind there.
    """
    counted = np.asarray(layout.recompute_layers) > 0
    own_layers = costs.stages[0].layers_by_kind[0]
    more = _layers_per_stage(ctx, layout) / np.maximum(own_layers, 1) - 1
    return counted * more * recompute_seconds(layers)


def _rank_slots(
    ctx: CostContext, costs: LayoutCosts, by_kind: tuple[Numeric, ...], last_end: Numeric
) -> NDArray[np.float64]:
    """Slots of the ranks that are costed, with both stages of those that hold two; (S, …)."""
    slots = []
    for stage in costs.stages:
        slot = stage.is_first * costs.ends.embedding + stage.is_last * last_end
        for number, seconds in zip(stage.layers_by_kind, by_kind, strict=True):
            slot = slot + number * seconds
        # without folded schedules all micro-batches pass every stage
        slots.append(slot if ctx.software.only_1f1b else stage.microbatch_share * slot)
    first, *others = slots
    for other in others:
        first = first + other
    return np.asarray(first)


# ---------------------------------------------------------------- the pipeline


def _idle_seconds(
    ctx: CostContext,
    layout: LayoutLike,
    costs: LayoutCosts,
    layers: LayerCosts,
    slots: _Slots,
    launching: Numeric,
) -> Numeric:
    """Seconds in which the rank that the step waits for is idle, or a lower bound of them."""
    shorter = tuple(
        shorter_pass(layers, work, exposed, seconds)
        for work, exposed, seconds in zip(
            layers.works, slots.exposed_by_kind, slots.by_kind, strict=True
        )
    )
    if costs.bounds_all_splits:
        working = layout.num_microbatches * slots.slowest
        slope = host_slope(ctx, launching, working)
        share = _shorter_share(layout, shorter, slots.by_kind)
        idle = min_idle_seconds(layout, SlowestSlot(slots.slowest, slots.mean, share, slope))
    else:
        stage = costs.stages[0]
        of_layers = sum(
            number * seconds for number, seconds in zip(stage.layers_by_kind, shorter, strict=True)
        )
        ranks = StageSlots(stage.stage, slots.ranks, of_layers, slots.mean)
        idle = idle_seconds(layout, ranks)
    idle = idle + bubble_slots(layout) * layers.boundary
    if ctx.software.only_1f1b:
        return idle
    return bubble_seconds(layout, idle, _mean_passes(ctx, layout, costs, layers))


def _shorter_share(
    layout: LayoutLike, shorter: tuple[Numeric, ...], both: tuple[Numeric, ...]
) -> Numeric:
    """The largest share of a layer's slot that its shorter pass takes, over the kinds of layers."""
    share: Numeric = 0.0
    for one, seconds in zip(shorter, both, strict=True):
        share = np.maximum(share, one / seconds)
    if counts_layers(layout):
        # how much a layer recomputes depends on its stage's layers: half is the most in any case
        share = np.where(np.asarray(layout.recompute_layers) > 0, 0.5, np.max(share, axis=0))
    return share


def _mean_passes(
    ctx: CostContext, layout: LayoutLike, costs: LayoutCosts, layers: LayerCosts
) -> Passes:
    """Passes of a micro-batch on the mean rank, none at the same time as another micro-batch's."""
    dispatch = np.where(runs_both_passes(layout), layers.ep_busy, layers.ep)
    layer = layer_passes(layers, layers.mean, dispatch)
    ends = end_passes(costs.ends, layers.logits)
    sends = Passes(layers.boundary / 2, layers.boundary / 2, 0.0)
    of_ends = (ends.first + ends.last).times(1 / layout.pp)
    return layer.times(_layers_per_stage(ctx, layout)) + of_ends + sends


def _last_turn_seconds(layout: LayoutLike, costs: LayoutCosts, slots: _Slots) -> Numeric:
    """Seconds that ranks of an interleaved schedule wait for the turns of the last chunk.

    In its turn all ranks wait for the slowest chunk: for the last one if that takes longer, with
    the head, than the chunk of the stage with the most layers. The difference adds to that stage's
    slots, less what is passed sooner (`planner.cost.stage_split.LastTurn`).
    """
    turn = costs.last_turn
    if turn is None:
        return 0.0
    fullest = slots.ranks[MOST_LAYERS]
    if layout.stage_layers is not None:  # then all stages are costed, in their order
        fullest = slots.ranks[len(slots.ranks) - 1 - np.argmax(given_stages(layout)[::-1])]
    late = np.maximum(0.0, slots.last_end + turn.extra_layers * slots.layer)
    sooner = turn.sooner_layers * slots.layer
    waits = layout.num_microbatches * (fullest + late - sooner - slots.slowest)
    seconds: Numeric = np.maximum(0.0, waits)
    return seconds


# ---------------------------------------------------------------- terms


def _terms_without_overheads(
    ctx: CostContext,
    layout: LayoutLike,
    costs: LayoutCosts,
    layers: LayerCosts,
    slots: _Slots,
    idle: Numeric,
) -> StepTime:
    """Every term of the step; host and straggler are 0."""
    mean, ends = layers.mean, costs.ends
    head = ends.head.both - _deferred_head_seconds(ctx, layout, ends)
    m, pp, per_stage = layout.num_microbatches, layout.pp, _layers_per_stage(ctx, layout)
    # terms that are plain numbers where no row has them take the shape of the others
    zeros = 0.0 * slots.mean
    offload = zeros
    if offloads_any(layout):
        offload = layers.mean_of(layers.offload) * (m * per_stage)
    imbalance = m * (slots.slowest - slots.mean)
    return StepTime(
        compute_gemm=m * (per_stage * mean.gemm.both + head / pp),
        compute_attention=m * per_stage * mean.attention.both,
        compute_memory_bound=m * (per_stage * mean.memory_bound.both + ends.embedding / pp),
        recompute=m * per_stage * mean.recompute,
        loss=m * ends.loss / pp,
        tp=m * (per_stage * layers.tp + layers.logits / pp),
        cp=m * per_stage * layers.cp,
        ep=m * per_stage * layers.ep + zeros,
        pp=m * layers.boundary,
        dp=state_exposed(ctx, layout, mean, layers.free_passes(), layers.seconds),
        optimizer=optimizer_seconds(ctx, layout, costs.parameters),
        offload=offload,
        host=0.0,
        stage_imbalance=imbalance + _last_turn_seconds(layout, costs, slots),
        bubble=idle,
        straggler=0.0,
        unexplained=0.0,
    )
