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
from functools import reduce

import numpy as np

from planner.cost.collectives import GroupCost, duration
from planner.cost.compute import EndTimes, end_times, on_unique
from planner.cost.context import CostContext
from planner.cost.exposed import exchange_exposed, exchange_seconds, layer_exposed, state_exposed
from planner.cost.host import host_exposed, host_slope, kernel_starts
from planner.cost.layers import num_layers
from planner.cost.memory import Holds, parameters_of, rank_classes, rank_holds
from planner.cost.optimizer import offload_exposed, optimizer_seconds
from planner.cost.passes import end_passes, layer_passes, rerun_seconds, shorter_pass
from planner.cost.pipeline import (
    BOTH_WAYS,
    Passes,
    bubble_seconds,
    bubble_slots,
    idle_seconds,
    least_idle_seconds,
    runs_in_rounds,
)
from planner.cost.recompute import counts_any, recomputed_shares
from planner.cost.traffic import Channel, Parameters, Splits, channel_costs, channels
from planner.cost.ways import offloads_any
from planner.cost.work import Kind, Work, kind_times, layer_work, mean_work
from planner.layouts.layout import LayoutLike, Numeric
from planner.layouts.stage_split import given_stages, last_turn


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

    holds: the stages that a rank holds and their layers of each kind, with the ranks considered
    first, shape (S, …). balanced: of a bound of every split, whose slowest stage has at least
    what one of these has. last_turn: that of `layouts.stage_split`, where ranks run in rounds.
    """

    kinds: tuple[Kind, ...]
    ends: EndTimes
    holds: Holds
    parameters: Parameters
    traffic: Mapping[str, Channel]
    balanced: bool = False
    last_turn: tuple[Numeric, Numeric] | None = None


def shape_costs(ctx: CostContext, layout: LayoutLike) -> ShapeCosts:
    """Kernel times, stages and traffic of a layout (or of each row of a table)."""
    stage, layers = rank_classes(ctx, layout, latest=True)
    holds = rank_holds(ctx, layout, stage, layers)
    by_stage = parameters_of(ctx, layout, holds)
    parameters = Parameters(np.max(by_stage.dense, axis=0), np.max(by_stage.experts, axis=0))
    rounds, turn = runs_in_rounds(layout), None
    if np.any(rounds):
        ahead, sooner = last_turn(ctx.model.num_layers, layout, ctx.reserved)
        turn = np.where(rounds, ahead, -np.inf), sooner
    return costs_of(ctx, layout, holds, parameters, last_turn=turn)


def costs_of(
    ctx: CostContext,
    layout: LayoutLike,
    holds: Holds,
    parameters: Parameters,
    balanced: bool = False,
    last_turn: tuple[Numeric, Numeric] | None = None,
) -> ShapeCosts:
    """The same of ranks that hold these stages, the largest of which has these parameters."""
    kinds = kind_times(ctx, layout)
    ends = on_unique(lambda *keys: end_times(ctx, *keys), layout.tp, layout.cp, layout.mbs)
    traffic = channels(ctx, layout, parameters)
    return ShapeCosts(kinds, ends, holds, parameters, traffic, balanced, last_turn)


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """What a micro-batch costs in a layer of each kind, in the mean one, and between stages.

    exposed: collectives over tp and cp, by channel; exchanges: those with experts, by kind; alone:
    what each kind has of a mean layer's where nothing hides them; seconds: of every channel.
    """

    works: tuple[Work, ...]
    mean: Work
    again: Numeric
    seconds: Mapping[str, Numeric]
    exposed: Mapping[str, Numeric]
    exchanges: tuple[Numeric, ...]
    alone: tuple[Numeric, ...]
    boundary: Numeric

    @property
    def logits(self) -> Numeric:
        """Seconds of gathering logits, where software does."""
        return self.seconds.get("tp_logits", 0.0)


def layer_costs(
    ctx: CostContext, layout: LayoutLike, shape: ShapeCosts, costs: Mapping[str, GroupCost]
) -> LayerCosts:
    """Seconds of layers and of boundaries, of which sends beside computation hide a share."""
    software = ctx.software.coefficients
    seconds = {name: duration(cost, ctx.ramp) for name, cost in costs.items()}
    again = recomputed_shares(ctx, layout)
    works = tuple(layer_work(kind, again) for kind in shape.kinds)
    mean = mean_work(shape.kinds, works)
    sends = (np.asarray(layout.pp) > 1) * seconds["pp"]
    return LayerCosts(
        works=works,
        mean=mean,
        again=again,
        seconds=seconds,
        exposed=layer_exposed(ctx, layout, mean, costs, seconds),
        exchanges=exchange_exposed(ctx, layout, shape.kinds, works, seconds),
        alone=tuple(exchange_seconds(kind, seconds) for kind in shape.kinds),
        boundary=sends * (1.0 - software.pp_overlap_fraction * layout.overlap_pp),
    )


def step_time(
    ctx: CostContext, layout: LayoutLike, shape: ShapeCosts, costs: Mapping[str, GroupCost]
) -> StepTime:
    """Breakdown of a step.

    A micro-batch passes a stage in `slot` seconds. A step is m slots of the slowest stage, the
    pipeline's idle seconds (of equal stages under 1F1B (pp − 1)/vp slots), gradient and parameter
    traffic beyond what hides, the optimizer, and what the host and the slowest of many ranks add.
    Interleaved, the turns in which the last chunk, with the head, takes longer than that of the
    stage with the most layers come on top of that stage's own, but for what is passed sooner
    (`planner.layouts.stage_split.last_turn`), even if the last has fewer layers.
    Terms are means over stages; `stage_imbalance` brings them to the slowest stage's rank.
    """
    software, ends = ctx.software.coefficients, shape.ends
    m, pp = layout.num_microbatches, layout.pp
    per_stage = num_layers(ctx.model) / pp
    of_layers = layer_costs(ctx, layout, shape, costs)
    mean, again, boundary = of_layers.mean, of_layers.again, of_layers.boundary
    exposed, exchanges, logits = of_layers.exposed, of_layers.exchanges, of_layers.logits

    tp = exposed["tp_forward"] + exposed["tp_backward"] + exposed["tp_beside"]
    cp = exposed["cp_forward"] + exposed["cp_backward"] + exposed.get("cp_inner", 0.0)
    if ctx.model.mamba is not None:
        cp = cp + exposed["cp_scan_forward"] + exposed["cp_scan_backward"]
    hidden = {name: of_layers.seconds[name] - value for name, value in exposed.items()}
    ep = sum(kind.share * value for kind, value in zip(shape.kinds, exchanges, strict=True))
    ep_alone = sum(of_layers.alone)
    hidden["ep"] = ep_alone - ep

    layer_slot = mean.forward + mean.backward + mean.recompute + tp + cp + ep
    offload: Numeric = 0.0
    if offloads_any(layout):
        away = offload_exposed(ctx, layout, of_layers.works)
        offload = sum(kind.share * value for kind, value in zip(shape.kinds, away, strict=True))
        layer_slot = layer_slot + offload
        exchanges = tuple(exchange + sent for exchange, sent in zip(exchanges, away, strict=True))
    head = ends.head_forward + ends.head_backward
    passed = [
        work.forward + work.backward + work.recompute + tp + cp + exchange
        for work, exchange in zip(of_layers.works, exchanges, strict=True)
    ]
    if counts_any(layout):
        # stages run as many layers again as each other, whatever they have: one kind of layer
        more = per_stage / np.maximum(shape.holds[0][1][0], 1) - 1
        rerun = rerun_seconds(mean, exposed, of_layers.seconds, again)
        passed = [passed[0] + (np.asarray(layout.recompute_layers) > 0) * more * rerun]
    slots: list[Numeric] = []
    for part, by_kind in shape.holds:
        own = part.first * ends.embedding + part.last * (head + ends.loss + logits)
        for layers, seconds in zip(by_kind, passed, strict=True):
            own = own + layers * seconds
        slots.append(own if ctx.software.only_1f1b else part.passes * own)
    mean_slot = per_stage * layer_slot + (ends.embedding + head + ends.loss + logits) / pp
    slot = reduce(np.add, slots)
    slowest_slot = np.max(slot, axis=0)
    stage, by_kind = shape.holds[0][0].stage, shape.holds[0][1]
    shorter = sum(
        layers * shorter_pass(work, exposed, exchange, again, seconds)
        for layers, work, exchange, seconds in zip(
            by_kind, of_layers.works, exchanges, passed, strict=True
        )
    )
    starting = m * per_stage * kernel_starts(ctx, layout, again) * software.host_seconds_per_kernel
    if shape.balanced:
        slowest_slot = np.maximum(np.min(slot, axis=0), mean_slot)
        slope = host_slope(ctx, starting, m * slowest_slot)
        share: Numeric = 0.0
        for work, exchange, seconds in zip(of_layers.works, exchanges, passed, strict=True):
            own = shorter_pass(work, exposed, exchange, again, seconds) / seconds
            share = np.maximum(share, own)
        if counts_any(layout):  # of stages with any number of layers the shorter pass is no more
            share = np.where(np.asarray(layout.recompute_layers) > 0, 0.5, np.max(share, axis=0))
        idle = least_idle_seconds(layout, slowest_slot, mean_slot, share, slope)
    else:
        idle = idle_seconds(layout, stage, slot, mean_slot, shorter)
    waits: Numeric = 0.0
    if shape.last_turn is not None:
        ahead, sooner = shape.last_turn
        most = slot[1]  # of the classes of stages, the one with the most layers
        if layout.stage_layers is not None:
            most = slot[len(slot) - 1 - np.argmax(given_stages(layout)[::-1])]
        late = np.maximum(0.0, head + ends.loss + logits + ahead * layer_slot)
        waits = np.maximum(0.0, m * (most + late - sooner * layer_slot - slowest_slot))
    idle = idle + bubble_slots(layout) * boundary

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
        "dp": state_exposed(ctx, layout, mean, hidden, again, of_layers.seconds),
        "optimizer": optimizer_seconds(ctx, layout, shape.parameters),
        "offload": offload * (m * per_stage) if offloads_any(layout) else 0.0 * mean_slot,
        "stage_imbalance": m * (slowest_slot - mean_slot) + waits,
        "bubble": idle,
    }
    if not ctx.software.only_1f1b:
        both_ways = np.isin(layout.schedule_index, BOTH_WAYS)
        layer = layer_passes(mean, exposed, np.where(both_ways, ep_alone, ep), again)
        first, last = end_passes(ends, logits)
        sends = Passes(boundary / 2, boundary / 2, 0.0)
        passes = layer.times(per_stage) + (first + last).times(1 / pp) + sends
        work_terms["bubble"] = bubble_seconds(layout, idle, passes)
    host = host_exposed(ctx, starting, m * slowest_slot) + software.step_overhead_seconds
    running = sum(work_terms.values()) + host
    ranks = 1.0 * layout.tp * layout.cp * pp * layout.dp_shard * layout.dp_replicate
    straggler = software.straggler_fraction_per_doubling * np.log2(ranks) * running
    return StepTime(**work_terms, host=host, straggler=straggler)


def evaluate(ctx: CostContext, layout: LayoutLike, splits: Splits) -> StepTime:
    """Breakdown of a layout whose groups are split over tiers as given."""
    shape = shape_costs(ctx, layout)
    return step_time(ctx, layout, shape, channel_costs(ctx, shape.traffic, splits))
