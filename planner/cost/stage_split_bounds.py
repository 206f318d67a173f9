"""Bounds that hold whatever the stage split: the mean stage's costs and memory.

The fullest stage holds at least the mean's parameters, the slowest works at least the mean's slot,
and no split idles less than `planner.cost.pipeline.min_idle_seconds`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.cost.context import CostContext
from planner.cost.experts import own_tokens
from planner.cost.layers import num_layers
from planner.cost.memory import memory_of
from planner.cost.model_states import Parameters, device_state_bytes, stage_parameters
from planner.cost.offload import offloads_activations
from planner.cost.stage_split import default_stage_layers, placed_layers
from planner.cost.stages import RankStage, RankStages, count_by_kind
from planner.cost.step import LayoutCosts, costs_of_stages
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Numeric

# ---------------------------------------------------------------- of the step


def mean_stage_costs(ctx: CostContext, layout: LayoutLike) -> LayoutCosts:
    """Costs of a layout whose stages all are the mean one: `step_time` of them is a lower bound of
    the step in every split."""
    stages = _mean_stages(ctx, layout)
    parameters = mean_parameters(ctx, layout)
    return costs_of_stages(ctx, layout, stages, parameters, bounds_all_splits=True)


def other_split_costs(ctx: CostContext, layout: LayoutLike) -> LayoutCosts:
    """The same over every split but the default, of models whose layers are alike.

    Some stage has a layer more than in the default split, so the bound is higher.
    """
    total, reserved, pp = ctx.model.num_layers, ctx.reserved, np.asarray(layout.pp)
    stage = np.stack([0 * pp, np.minimum(1, pp - 1), pp - 1])
    # layers in the default split, of the stages between the ends at least
    first, last = (default_stage_layers(total, layout, s, reserved) for s in (0 * pp, pp - 1))
    placed = placed_layers(total, layout, reserved)
    middle = np.where(pp > 2, placed // pp, first + last)
    # another order of unequal chunks may wait less for the head with as many layers a stage
    more = 1 - 1 * ((layout.vp > 1) & (placed % (pp * layout.vp) > 0))
    layers = np.stack([first, middle, last]) + more
    is_last = stage == pp - 1
    by_kind = count_by_kind(ctx.model, layers, 0, is_last)
    stages = (RankStage(layout, stage, stage == 0, is_last, by_kind),)
    parameters = mean_parameters(ctx, layout)
    return costs_of_stages(ctx, layout, stages, parameters, bounds_all_splits=True)


def layers_are_alike(ctx: CostContext) -> bool:
    """Whether a model's layers are alike, so that their numbers alone tell splits apart."""
    leading_dense = ctx.model.moe.num_dense_layers if ctx.model.moe else 0
    return ctx.model.layer_pattern is None and not leading_dense


# ---------------------------------------------------------------- of memory


def mean_parameters(ctx: CostContext, layout: LayoutLike) -> Parameters:
    """Parameters of a rank of the mean stage, shape of the layout."""
    pp = np.asarray(layout.pp)
    stage = np.stack([0 * pp, pp - 1])
    no_layers = tuple(0.0 * stage for _ in ctx.layer_kinds)
    ends = RankStage(layout, stage, stage == 0, stage == pp - 1, no_layers)
    of_ends = stage_parameters(ctx, layout, (ends,))
    (mean,) = _mean_stages(ctx, layout)
    inner = replace(mean, is_first=pp < 0, is_last=pp < 0, layers_by_kind=_mean_layers(ctx, layout))
    of_layers = stage_parameters(ctx, layout, (inner,))
    dense = np.asarray(of_ends.dense)
    # one stage is both the first and the last
    own = np.where(pp > 1, np.sum(dense, axis=0), dense[0]) / pp
    return Parameters(own + of_layers.dense, of_layers.experts)


def any_split_floor_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Lower bound of the peak bytes under any stage split and any recompute, shape of the layout.

    Some stage has at least the mean's states and its layers' inputs of one micro-batch.
    """
    states = device_state_bytes(ctx, layout, mean_parameters(ctx, layout)).total
    layer_input = own_tokens(ctx, layout) * ctx.model.hidden_size * ctx.element_bytes
    inputs = ~offloads_activations(layout) * sum(_mean_layers(ctx, layout)) * layer_input
    return states + inputs + ctx.software.runtime_bytes


def any_split_peak_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Lower bound of the peak bytes under any stage split, of layouts that fold nothing and keep
    all on the device; shape of the layout.

    A stage's peak is at least c + n·k_s, n its layers of the most frequent kind (where recomputed
    layers are counted, besides those), and k_s falls with s as fewer micro-batches are in flight:
    by no less than linearly between the first stage and the last, so the n that all stages hold
    below a limit are at most (limit − c)·pp·(1/k_first + 1/k_last)/2.
    """
    pp = np.asarray(layout.pp)
    stage = np.stack([0 * pp, pp - 1])
    counted = layout.vp * np.asarray(layout.recompute_layers)
    kinds = ctx.layer_kinds
    most = max(range(len(kinds)), key=lambda i: kinds[i].share)

    def peak_with(layers: float) -> Numeric:
        number = layers + counted + 0.0 * stage
        by_kind = tuple(number * (i == most) for i in range(len(kinds)))
        return memory_of(
            ctx, layout, (RankStage(layout, stage, stage < 0, stage < 0, by_kind),)
        ).total

    nothing = peak_with(0.0)
    ease = 1.0 / (peak_with(1.0) - nothing)
    layers = kinds[most].share * num_layers(ctx.model) - pp * counted
    least: Numeric = np.min(nothing, axis=0) + layers * 2.0 / (pp * np.sum(ease, axis=0))
    return least


# ---------------------------------------------------------------- the mean stage


def _mean_stages(ctx: CostContext, layout: LayoutLike) -> RankStages:
    """The mean stage, with its share of both ends; shape (1, …)."""
    layers = _mean_layers(ctx, layout)
    share = (1.0 / np.asarray(layout.pp))[None]
    by_kind = tuple(np.asarray(of_kind)[None] for of_kind in layers)
    return (RankStage(layout, 0.0 * share, share, share, by_kind),)


def _mean_layers(ctx: CostContext, layout: LayoutLike) -> tuple[Numeric, ...]:
    """Layers of each kind on the mean stage."""
    each = num_layers(ctx.model) / np.asarray(layout.pp)
    return tuple(kind.share * each for kind in ctx.layer_kinds)
