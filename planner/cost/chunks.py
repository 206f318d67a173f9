"""The passes of every chunk of one layout's pipeline, as `planner.layouts.timeline` plays them."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from planner.cost.context import CostContext
from planner.cost.layer_costs import LayerCosts, end_passes, layer_costs, layer_passes
from planner.cost.passes import Passes
from planner.cost.pipeline import overlapped_share, runs_both_passes
from planner.cost.stage_split import default_stage_layers
from planner.cost.stages import StageLayers, UnfoldedPipeline, stage_of, unfold
from planner.cost.step import layout_costs
from planner.cost.traffic import Splits, channel_costs
from planner.layouts.layout import Layout
from planner.layouts.numeric import Numeric
from planner.layouts.schedules import Pipeline
from planner.layouts.timeline import ChunkPasses


def pipeline_of(layout: Layout, num_microbatches: int) -> Pipeline:
    """A layout's pipeline with another number of micro-batches."""
    return Pipeline(layout.schedule, layout.pp, layout.vp, num_microbatches)


def shortened(pipeline: Pipeline, rounds: int) -> Pipeline:
    """The pipeline with no more micro-batches than so many times its chunks.

    Between warm-up and drain a schedule repeats, so what is left out is like what remains.
    """
    most = rounds * pipeline.num_chunks
    return replace(pipeline, num_microbatches=min(pipeline.num_microbatches, most))


def chunk_passes(ctx: CostContext, layout: Layout, splits: Splits) -> ChunkPasses:
    """Seconds of every chunk's passes of a micro-batch, with what the step counts as exposed.

    Sends are part of the passes.
    """
    costs = layout_costs(ctx, layout)
    group_costs = channel_costs(ctx, costs.traffic, splits)
    layers = layer_costs(ctx, layout, costs.kinds, costs.traffic, costs.recomputed, group_costs)
    count = layout.pp * layout.vp
    chunk = np.arange(count)
    ends = end_passes(costs.ends, layers.logits)
    sends = layers.boundary / (2 * layout.vp)
    passes = ends.first.times(1 * (chunk == 0)) + ends.last.times(1 * (chunk == count - 1))
    passes = passes + Passes(sends, sends, 0.0)
    by_kind = layers_of_chunks(ctx, layout)
    dispatch = _dispatch_in_passes(layout, layers)
    for number, work, seconds in zip(by_kind, layers.works, dispatch, strict=True):
        passes = passes + layer_passes(layers, work, seconds).times(number)
    mean_layers = np.sum(np.stack(by_kind)) / count
    return ChunkPasses(
        forward=np.asarray(passes.forward).tolist(),
        input_gradient=np.asarray(passes.input_gradients).tolist(),
        weight_gradient=np.broadcast_to(passes.weight_gradients, count).tolist(),
        hidden=float(mean_layers * _saved_by_pairs(layout, layers)),
    )


def _dispatch_in_passes(layout: Layout, layers: LayerCosts) -> list[Numeric]:
    """Seconds of each kind's dispatch and combine in passes: exposed ones; under schedules that run
    both passes at the same time all of them, for the timeline takes off what pairs save."""
    both = runs_both_passes(layout)
    return [
        np.where(both, busy / kind.share, shown)
        for kind, busy, shown in zip(
            layers.kinds, layers.dispatch_busy, layers.dispatch, strict=True
        )
    ]


def _saved_by_pairs(layout: Layout, layers: LayerCosts) -> Numeric:
    """Seconds that a forward and a backward pass of the mean layer save at the same time."""
    saved = layers.ep_busy - layers.ep
    return runs_both_passes(layout) * saved / overlapped_share(layout)


# ---------------------------------------------------------------- layers


def layers_of_chunks(ctx: CostContext, layout: Layout) -> tuple[Numeric, ...]:
    """Layers of each kind on every chunk, in model order, prediction layers on the last.

    Layers given by stage fall evenly into its chunks, what the ends hold besides counted.
    """
    pipeline = unfold(layout)
    count = int(np.max(pipeline.pp * pipeline.vp))
    chunk = np.arange(count)
    given = pipeline.stage_layers
    if given is None:
        chunks = UnfoldedPipeline(count, 1, None)
        layers = default_stage_layers(ctx.model.num_layers, chunks, chunk, ctx.reserved)
        return stage_of(ctx, chunks, StageLayers(chunk, layers)).layers_by_kind
    if len(given) < count:
        # fractions of layers, which nothing but this picture of a pipeline has
        given = cast("tuple[int, ...]", tuple(_evenly_in_chunks(ctx, given, count)))
    chunks = UnfoldedPipeline(count, 1, given)
    return stage_of(ctx, chunks, StageLayers(chunk, np.array(given))).layers_by_kind


def _evenly_in_chunks(ctx: CostContext, given: tuple[float, ...], count: int) -> list[float]:
    """Layers of each of `count` chunks whose stages have the given layers.

    A stage's chunks are even once what the first and last stage hold besides is counted in layers.
    """
    chunk, stages, num_stages = np.arange(count), np.array(given), len(given)
    first, last = ctx.reserved
    besides = np.zeros(num_stages)
    besides[0], besides[-1] = first, besides[-1] + last
    of_ends = first * (chunk == 0) + last * (chunk == count - 1)
    per_chunk = (stages + besides) / (count // num_stages)
    even = np.maximum(per_chunk[chunk % num_stages] - of_ends, 0.0)
    placed = np.array([even[stage::num_stages].sum() for stage in range(num_stages)])
    layers: list[float] = (even * (stages / placed)[chunk % num_stages]).tolist()
    return layers
