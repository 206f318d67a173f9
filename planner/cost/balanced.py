"""Bounds that hold whatever the split of layers over stages: the mean stage's costs and memory.

The fullest stage holds at least the mean's parameters, the slowest works at least the mean's slot,
and no split idles less than `planner.cost.pipeline.least_idle_seconds`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.cost.context import CostContext
from planner.cost.experts import own_tokens
from planner.cost.folds import Held
from planner.cost.layers import kinds_among, num_layers
from planner.cost.memory import Holds, memory_of, parameters_of, resident_bytes
from planner.cost.step import ShapeCosts, costs_of
from planner.cost.traffic import Parameters
from planner.cost.ways import offloads_activations
from planner.layouts.layout import LayoutLike, Numeric
from planner.layouts.stage_split import default_stage_layers, placed_layers


def balanced_costs(ctx: CostContext, layout: LayoutLike) -> ShapeCosts:
    """Costs of a layout whose stages all are the mean one: `step_time` of them is a lower bound of
    the step in every split."""
    mean = _mean_holds(ctx, layout)
    return costs_of(ctx, layout, mean, mean_parameters(ctx, layout), balanced=True)


def changed_costs(ctx: CostContext, layout: LayoutLike) -> ShapeCosts:
    """The same of layers alike in every split but the default: some stage has a layer more."""
    first, middle, last = _fewest_layers(ctx, layout)
    pp, total = np.asarray(layout.pp), ctx.model.num_layers
    chunks = pp * layout.vp
    stage = np.stack([0 * pp, np.minimum(1, pp - 1), pp - 1])
    # with as many a stage, chunks that differ may wait less for the head in other turns
    more = 1 - 1 * ((layout.vp > 1) & (placed_layers(total, layout, ctx.reserved) % chunks > 0))
    layers = np.stack([first, np.where(pp > 2, middle, first + last), last]) + more
    held = Held(layout, stage, stage == 0, stage == pp - 1, layers, 1.0)
    holds = ((held, kinds_among(ctx.model, layers, 0, held.last)),)
    return costs_of(ctx, layout, holds, mean_parameters(ctx, layout), balanced=True)


def alike(ctx: CostContext) -> bool:
    """Whether a model's layers are, so that their numbers alone tell splits apart."""
    return ctx.model.layer_pattern is None and not (
        ctx.model.moe and ctx.model.moe.num_dense_layers
    )


def _fewest_layers(ctx: CostContext, layout: LayoutLike) -> tuple[Numeric, Numeric, Numeric]:
    """Layers of the default split's first stage, at least of those in the middle, of the last."""
    total, reserved, pp = ctx.model.num_layers, ctx.reserved, np.asarray(layout.pp)
    first, last = (default_stage_layers(total, layout, s, reserved) for s in (0 * pp, pp - 1))
    return first, placed_layers(total, layout, reserved) // pp, last


def mean_parameters(ctx: CostContext, layout: LayoutLike) -> Parameters:
    """Parameters of a rank of the mean stage, shape of the layout."""
    pp = np.asarray(layout.pp)
    stage = np.stack([0 * pp, pp - 1])
    none = 0.0 * stage
    last = stage == pp - 1
    ends = Held(layout, stage, stage == 0, last, none, 1.0)
    of_ends = parameters_of(ctx, layout, ((ends, tuple(none for _ in ctx.kinds)),))
    ((middle, _),) = _mean_holds(ctx, layout)
    inner = replace(middle, first=pp < 0, last=pp < 0)
    of_layers = parameters_of(ctx, layout, ((inner, _mean_layers(ctx, layout)),))
    own = np.where(pp > 1, np.sum(of_ends.dense, axis=0), of_ends.dense[0]) / pp
    return Parameters(own + of_layers.dense, of_layers.experts)


def least_bytes(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Peak bytes that no split and no way of recomputing goes under: a stage has the mean's states
    and its layers' inputs of one micro-batch."""
    kept = resident_bytes(ctx, layout, mean_parameters(ctx, layout))
    tokens = own_tokens(ctx, layout) * ctx.model.hidden_size * ctx.element_bytes
    inputs = ~offloads_activations(layout) * sum(_mean_layers(ctx, layout)) * tokens
    return kept + inputs + ctx.software.runtime_bytes


def least_peak(ctx: CostContext, layout: LayoutLike) -> Numeric:
    """Peak bytes that no split goes under, of layouts that fold nothing and keep all on the device.

    A stage's peak is at least c + n·k_s, n its layers of the most frequent kind (where layers run
    again are counted, beside those), and k_s falls with s as fewer micro-batches are in flight: by
    no less than linearly between the first stage and the last, so the n that all stages hold below
    a limit are at most (limit − c)·pp·(1/k_first + 1/k_last)/2.
    """
    pp = np.asarray(layout.pp)
    stage = np.stack([0 * pp, pp - 1])
    counted = layout.vp * np.asarray(layout.recompute_layers)
    most = max(range(len(ctx.kinds)), key=lambda i: ctx.kinds[i].share)

    def peak(layers: float) -> Numeric:
        number = layers + counted + 0.0 * stage
        by_kind = tuple(number * (i == most) for i in range(len(ctx.kinds)))
        held = Held(layout, stage, stage < 0, stage < 0, number, 1.0)
        return memory_of(ctx, layout, ((held, by_kind),)).total

    nothing = peak(0.0)
    ease = 1.0 / (peak(1.0) - nothing)
    layers = ctx.kinds[most].share * num_layers(ctx.model) - pp * counted
    return np.min(nothing, axis=0) + layers * 2.0 / (pp * np.sum(ease, axis=0))


def _mean_holds(ctx: CostContext, layout: LayoutLike) -> Holds:
    layers = _mean_layers(ctx, layout)
    share = (1.0 / np.asarray(layout.pp))[None]
    held = Held(layout, 0.0 * share, share, share, np.asarray(sum(layers))[None], 1.0)
    return ((held, tuple(of_kind[None] for of_kind in layers)),)


def _mean_layers(ctx: CostContext, layout: LayoutLike) -> tuple[Numeric, ...]:
    each = num_layers(ctx.model) / np.asarray(layout.pp)
    return tuple(kind.share * each for kind in ctx.kinds)
