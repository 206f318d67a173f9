"""The stages that ranks of a pipeline hold, and the layers of each kind on them.

A micro-batch passes stages 0, 1, … of its pipeline. Under most schedules rank r of pp holds stage r
and no other. *Folded* schedules lay more stages over the ranks, so that a rank holds two:

    dualpipe         micro-batches enter at both ends of pp stages; rank r holds stage r of those
                     that go one direction and stage pp − 1 − r of those that go the other
    zb-v, dualpipev  micro-batches pass 2·pp stages, to the last rank and back to the first; rank r
                     holds stages r and 2·pp − 1 − r

`unfold` gives the stages that one micro-batch passes, and a `RankStage` is one of them as a rank
holds it. How many layers each stage has is said in `planner.cost.stage_split`.

Arrays over stages carry them first: shape (S, …) for S stages that are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from planner.cost.context import CostContext
from planner.cost.layers import layer_kinds
from planner.cost.stage_split import (
    NONE,
    Reserved,
    SplitLike,
    by_stage,
    default_stage_layers,
    first_extra,
    given_stages,
    placed_layers,
)
from planner.layouts.keys import SCHEDULES, V_SHAPED
from planner.layouts.layout import Layout, LayoutLike
from planner.layouts.numeric import Boolean, Integer, Numeric
from planner.problem.blocks import LETTERS
from planner.problem.model import Model

IS_V_SHAPED = np.isin(SCHEDULES, V_SHAPED)
IS_FOLDED = IS_V_SHAPED | np.isin(SCHEDULES, ("dualpipe",))
"""By schedule, whether ranks hold two stages."""

DIRECTIONS = np.where(np.isin(SCHEDULES, ("dualpipe",)), 2, 1)
"""By schedule, the directions in which micro-batches pass; every stage lives on as many ranks."""


class UnfoldedPipeline(NamedTuple):
    """The stages that a micro-batch passes, one after another, and how layers are cut over them."""

    pp: Integer
    vp: Integer
    stage_layers: tuple[int, ...] | None


def unfold(layout: LayoutLike) -> UnfoldedPipeline:
    """The stages that a micro-batch of a layout passes.

    Of a V whose split is given, the first stage of a rank has the greater half of its layers.
    """
    v = IS_V_SHAPED[layout.schedule_index]
    split = layout.stage_layers
    if split is not None and np.all(v):
        split = (*((n + 1) // 2 for n in split), *(n // 2 for n in reversed(split)))
    return UnfoldedPipeline(np.where(v, 2 * layout.pp, layout.pp), np.where(v, 1, layout.vp), split)


@dataclass(frozen=True, slots=True)
class StageLayers:
    """Numbers of stages, and the model's layers on each: shapes (S, …).

    Of a folded schedule the numbers are ranks', and the layers those of both their stages.
    """

    stage: Integer
    layers: Numeric


@dataclass(frozen=True, slots=True)
class RankStage:
    """One stage that ranks hold; shapes alike, (S, …).

    pipeline: the stages that micro-batches pass, of which this is number `stage`.
    is_first, is_last: whether it has the embedding, the head; of a mean stage its share of them.
    layers_by_kind: layers of each of the model's kinds, prediction layers among them.
    microbatch_share: share of the micro-batches that pass it.
    is_second: whether it is the second one of a rank of a folded schedule.
    """

    pipeline: SplitLike
    stage: Numeric
    is_first: Numeric | Boolean
    is_last: Numeric | Boolean
    layers_by_kind: tuple[Numeric, ...]
    microbatch_share: Numeric = 1.0
    is_second: bool = False


RankStages = tuple[RankStage, ...]
"""All stages that ranks hold, one or two; the second has no layers where nothing is folded."""


def rank_stages(ctx: CostContext, layout: LayoutLike, ranks: StageLayers) -> RankStages:
    """The stages that given ranks hold: one each, or of a folded schedule two."""
    if ctx.software.only_1f1b:
        return (stage_of(ctx, layout, ranks),)
    schedule = np.asarray(layout.schedule_index)
    pipeline = unfold(layout)
    folded, v = IS_FOLDED[schedule], IS_V_SHAPED[schedule]
    # −1 is no stage: ranks of schedules that fold nothing have no second one
    second = np.where(folded, pipeline.pp - 1 - ranks.stage, -1)
    first_layers = np.where(v, _layers_on(ctx, pipeline, ranks.stage), ranks.layers)
    second_layers = folded * _layers_on(ctx, pipeline, second)
    share = 1.0 / DIRECTIONS[schedule]
    return (
        stage_of(ctx, pipeline, StageLayers(ranks.stage, first_layers), share),
        stage_of(ctx, pipeline, StageLayers(second, second_layers), share, is_second=True),
    )


def stage_of(
    ctx: CostContext,
    pipeline: SplitLike,
    at: StageLayers,
    microbatch_share: Numeric = 1.0,
    is_second: bool = False,
) -> RankStage:
    """Stages of a pipeline that have these numbers and layers."""
    is_last = at.stage == pipeline.pp - 1
    before = _layers_before(ctx, pipeline, at)
    return RankStage(
        pipeline=pipeline,
        stage=at.stage,
        is_first=at.stage == 0,
        is_last=is_last,
        layers_by_kind=count_by_kind(ctx.model, at.layers, before, is_last),
        microbatch_share=microbatch_share,
        is_second=is_second,
    )


def _layers_on(ctx: CostContext, pipeline: UnfoldedPipeline, stage: Integer) -> Integer:
    """The model's layers on stages of an unfolded pipeline."""
    if pipeline.stage_layers is not None:
        layers: Integer = np.array(pipeline.stage_layers)[stage]
        return layers
    return default_stage_layers(ctx.model.num_layers, pipeline, stage, ctx.reserved)


# ---------------------------------------------------------------- ranks that count


def candidate_ranks(ctx: CostContext, layout: LayoutLike, latest: bool = False) -> StageLayers:
    """Ranks among which the fullest is, or (`latest`) the one that the step waits for; (S, …).

    All ranks where a layout names its split or the model has a pattern; else those of a few
    classes, for all others have as many layers as one of them and no end of the model.
    """
    model, reserved = ctx.model, ctx.reserved
    given = model.layer_pattern is not None or layout.stage_layers is not None
    if given or ctx.software.only_1f1b:
        return candidate_stages(ctx, layout, latest)
    leading, pipeline = _num_leading(model), unfold(layout)
    # the first rank of a folded schedule has both ends, those in the middle what is left over
    middle = pipeline.pp // 2 - 1
    folded = stage_classes(model.num_layers, pipeline, reserved, leading, latest)
    plain = stage_classes(model.num_layers, layout, reserved, leading, latest)
    rank = np.where(IS_FOLDED[layout.schedule_index], np.minimum(folded, middle), plain)
    return StageLayers(rank, _default_rank_layers(model.num_layers, layout, rank, reserved))


def candidate_stages(ctx: CostContext, layout: LayoutLike, latest: bool = False) -> StageLayers:
    """The same as if no schedule were folded: every stage on a rank of its own."""
    model, reserved = ctx.model, ctx.reserved
    if model.layer_pattern is not None:
        return every_stage(model.num_layers, layout)
    if layout.stage_layers is not None:
        layers = np.array(given_stages(layout))
        shape = (-1,) + (1,) * np.ndim(layout.pp)
        return StageLayers(np.arange(len(layers)).reshape(shape), layers.reshape(shape))
    stage = stage_classes(model.num_layers, layout, reserved, _num_leading(model), latest)
    return StageLayers(stage, default_stage_layers(model.num_layers, layout, stage, reserved))


def _num_leading(model: Model) -> int:
    """The model's first layers that are dense before others with experts."""
    return model.moe.num_dense_layers if model.moe else 0


def stage_classes(
    num_layers: int,
    layout: SplitLike,
    reserved: Reserved = NONE,
    leading: int = 0,
    latest: bool = False,
) -> Integer:
    """Stages of the default split among which the fullest is, shape (3, …) or more.

    These are the first stage, the first of those with the most layers, and the last. latest: for
    the one that the step waits for, the last of those with the most layers instead. Where the ends
    have fewer layers for what they hold besides, a neighbour of theirs too. Where the model's first
    `leading` layers are of a lighter kind, the stages that can hold them and the first without.
    """
    placed = placed_layers(num_layers, layout, reserved)
    first_chunk = first_extra(placed, layout)
    last = layout.pp - 1 + 0 * first_chunk
    with_most = first_chunk % layout.pp
    if latest:
        extra = placed % (layout.pp * layout.vp)
        with_most = np.where(extra > 0, (first_chunk + extra - 1) % layout.pp, last)
    classes = [np.zeros_like(with_most), with_most, last]
    if latest and any(reserved):
        classes.append(np.maximum(last - 1, 0))
    elif reserved[0]:
        classes.append(np.minimum(1, last))
    if leading:
        classes += [np.minimum(stage, last) for stage in range(1, leading + 1)]
    return np.stack(classes)


MOST_LAYERS = 1
"""Position among `stage_classes` of the stage with the most layers."""


def every_stage(num_layers: int, layout: LayoutLike) -> StageLayers:
    """All stages, without virtual stages, and their layers.

    Rows of a table with fewer stages than others repeat their last one.
    """
    number = np.max(np.asarray(layout.pp))
    stage = np.arange(number).reshape((-1,) + (1,) * np.ndim(layout.pp))
    stage = np.minimum(stage, np.asarray(layout.pp) - 1)
    if layout.stage_layers is not None:
        return StageLayers(stage, np.array(layout.stage_layers)[stage])
    return StageLayers(stage, default_stage_layers(num_layers, layout, stage))


def layers_by_rank(num_layers: int, layout: Layout, reserved: Reserved = NONE) -> list[int]:
    """The model's layers on every rank of one layout's pipeline; of a V, on both its stages."""
    if layout.stage_layers is not None:
        return given_stages(layout)
    layers = _default_rank_layers(num_layers, layout, np.arange(layout.pp), reserved)
    return [int(count) for count in np.broadcast_to(layers, (layout.pp,))]


def _default_rank_layers(
    num_layers: int, layout: LayoutLike, rank: Integer, reserved: Reserved
) -> Integer:
    """The model's layers on ranks in the default split; of a V, on both stages of each."""
    v, pipeline = IS_V_SHAPED[layout.schedule_index], unfold(layout)
    back = default_stage_layers(num_layers, pipeline, pipeline.pp - 1 - rank, reserved)
    return default_stage_layers(num_layers, pipeline, rank, reserved) + v * back


# ---------------------------------------------------------------- layers of each kind


def count_by_kind(
    model: Model, layers: Numeric, before: Numeric, is_last: Boolean
) -> tuple[Numeric, ...]:
    """Layers of each kind on stages that have `layers` of the model's.

    before: of a pattern, the layers before them; else how many of the leading dense layers they
    are. Prediction layers are on the last stage.
    """
    predicting = model.mtp_layers * is_last if model.mtp_layers else 0
    if model.layer_pattern is not None:
        # layers of a pattern are whole: it has no virtual stages that share them
        first, number = cast(Integer, before), cast(Integer, layers)
        return _count_letters(model, first, first + number, predicting)
    if model.moe is None:
        return (layers + predicting,)
    # dense layers between those with experts are spread evenly
    sparse = (layers - before) / model.moe.layer_period
    counts = {False: layers - sparse, True: sparse + predicting}
    return tuple(counts[kind.has_experts] for kind in layer_kinds(model))


def _count_letters(
    model: Model, start: Integer, end: Integer, predicting: Integer
) -> tuple[Numeric, ...]:
    """Letters of the pattern from `start` up to `end`, and what prediction layers add, by kind."""
    counts = []
    for kind in layer_kinds(model):
        letters = [kind.blocks == (LETTERS[letter],) for letter in model.layer_pattern or ()]
        before = np.concatenate([[0], np.cumsum(letters)])
        count = before[end] - before[start]
        counts.append(count + predicting * model.prediction_blocks.get(kind.blocks, 0))
    return tuple(counts)


def _layers_before(ctx: CostContext, pipeline: SplitLike, at: StageLayers) -> Numeric:
    """What `count_by_kind` takes for `before`."""
    model = ctx.model
    if model.layer_pattern is not None:
        return first_layer(model.num_layers, pipeline, at.stage)
    if model.moe is None:
        return 0
    return leading_layers(model.moe.num_dense_layers, model.num_layers, pipeline, at, ctx.reserved)


def first_layer(num_layers: int, pipeline: SplitLike, stage: Integer) -> Integer:
    """Layers before those of `stage`, without virtual stages."""
    if pipeline.stage_layers is not None:
        before = np.concatenate([[0], np.cumsum(pipeline.stage_layers)[:-1]])
        layers: Integer = before[np.asarray(stage)]
        return layers
    base, extra = num_layers // pipeline.pp, num_layers % pipeline.pp
    before_stage: Integer = base * stage + np.clip(stage - (pipeline.pp - extra) // 2, 0, extra)
    return before_stage


def leading_layers(
    num_leading: int,
    num_layers: int,
    pipeline: SplitLike,
    at: StageLayers,
    reserved: Reserved = NONE,
) -> Numeric:
    """How many of the model's first `num_leading` layers stages hold.

    Of a split that is given by stages, virtual stages are taken for one.
    """
    if pipeline.stage_layers is not None:
        split = np.array(pipeline.stage_layers)
        leading = np.clip(num_leading - (np.cumsum(split) - split), 0, split)
        of_stages: Numeric = by_stage(leading, pipeline)[np.asarray(at.stage)]
        return np.minimum(of_stages, at.layers)
    placed = placed_layers(num_layers, pipeline, reserved)
    chunks = pipeline.pp * pipeline.vp
    base, first = placed // chunks, first_extra(placed, pipeline)
    extra = placed - base * chunks
    leading_on: Integer = 0
    # no chunk is empty, so `num_leading` chunks hold all of them
    for turn in range(num_leading):
        chunk = at.stage + turn * pipeline.pp
        start = base * chunk + np.clip(chunk - first, 0, extra)
        size = base + ((first <= chunk) & (chunk < first + extra))
        if reserved[0]:
            ahead = reserved[0] * (placed > num_layers)
            start, size = np.maximum(start - ahead, 0), size - ahead * (chunk == 0)
        leading_on = leading_on + np.clip(num_leading - start, 0, size) * (turn < pipeline.vp)
    return np.minimum(leading_on, at.layers)
