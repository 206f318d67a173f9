"""The passes of every chunk of one layout's pipeline, as a timeline plays them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.cost.context import CostContext
from planner.cost.folds import Held, Way, way_of
from planner.cost.layers import layers_of_kinds
from planner.cost.passes import end_passes, layer_passes
from planner.cost.pipeline import BOTH_WAYS, Passes, overlapped_share
from planner.cost.step import layer_costs, shape_costs
from planner.cost.traffic import Splits, channel_costs
from planner.layouts.layout import Layout, Numeric
from planner.layouts.schedules import Pipeline
from planner.layouts.stage_split import default_stage_layers
from planner.layouts.timeline import ChunkPasses


def pipeline_of(layout: Layout, num_microbatches: int) -> Pipeline:
    """A layout's pipeline with another number of micro-batches."""
    return Pipeline(layout.schedule, layout.pp, layout.vp, num_microbatches)


def chunk_passes(ctx: CostContext, layout: Layout, splits: Splits) -> ChunkPasses:
    """Seconds of every chunk's passes of a micro-batch, with what the step counts as exposed.

    Sends are part of the passes.
    """
    shape = shape_costs(ctx, layout)
    of_layers = layer_costs(ctx, layout, shape, channel_costs(ctx, shape.traffic, splits))
    count = layout.pp * layout.vp
    by_kind = layers_of_chunks(ctx, layout)
    # of schedules that run both ways: passes alone, and what a pair of the mean chunk saves
    both_ways = np.isin(layout.schedule_index, BOTH_WAYS)
    mean = sum(k.share * e for k, e in zip(shape.kinds, of_layers.exchanges, strict=True))
    saved = both_ways * (sum(of_layers.alone) - mean) / overlapped_share(layout)
    exchanges = [
        np.where(both_ways, alone / kind.share, shown)
        for kind, alone, shown in zip(
            shape.kinds, of_layers.alone, of_layers.exchanges, strict=True
        )
    ]
    chunk = np.arange(count)
    first, last = end_passes(shape.ends, of_layers.logits)
    sends = of_layers.boundary / (2 * layout.vp)
    total = first.times(chunk == 0) + last.times(chunk == count - 1) + Passes(sends, sends, 0.0)
    for layers, work, exchange in zip(by_kind, of_layers.works, exchanges, strict=True):
        own = layer_passes(work, of_layers.exposed, exchange, of_layers.again)
        total = total + own.times(layers)
    return ChunkPasses(
        forward=total.forward.tolist(),
        input_gradient=total.inputs.tolist(),
        weight_gradient=np.broadcast_to(total.weights, count).tolist(),
        hidden=float(np.sum(by_kind) / count * saved),
    )


def layers_of_chunks(ctx: CostContext, layout: Layout) -> tuple[Numeric, ...]:
    """Layers of each kind on every chunk, in model order, prediction layers on the last.

    Layers given by stage fall evenly into its chunks, what the ends hold besides counted.
    """
    way = way_of(layout)
    count = int(way.pp * way.vp)
    chunk = np.arange(count)
    row = Way(count, 1, None)
    layers = default_stage_layers(ctx.model.num_layers, row, chunk, ctx.reserved)
    if way.stage_layers is not None and len(way.stage_layers) == count:
        layers = np.array(way.stage_layers)
        row = Way(count, 1, way.stage_layers)
    elif way.stage_layers is not None:
        stages = np.array(way.stage_layers)
        ends = ctx.reserved[0] * (chunk == 0) + ctx.reserved[1] * (chunk == count - 1)
        besides = np.zeros(len(stages))
        besides[0], besides[-1] = ctx.reserved[0], besides[-1] + ctx.reserved[1]
        even = np.maximum(((stages + besides) / way.vp)[chunk % len(stages)] - ends, 0.0)
        whole = np.array([even[stage :: len(stages)].sum() for stage in range(len(stages))])
        layers = even * (stages / whole)[chunk % len(stages)]
        row = Way(count, 1, tuple(layers.tolist()))
    part = Held(row, chunk, chunk == 0, chunk == count - 1, layers, 1.0)
    return layers_of_kinds(ctx.model, part, ctx.reserved)


def short_of(pipeline: Pipeline, rounds: int) -> Pipeline:
    """The pipeline with no more micro-batches than so many times its chunks' ranks.

    Between its ends a schedule repeats, so what is left out is like what is there.
    """
    most = rounds * pipeline.num_chunks
    return replace(pipeline, num_microbatches=min(pipeline.num_microbatches, most))
