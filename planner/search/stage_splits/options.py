"""What each pipeline stage of one layout may hold, whether it fits, and what it costs.

Arrays have shape (S, I, N): an option is that stage s, with i layers before it, holds n layers.
What comes before matters where layers differ by position; elsewhere I is 1.

Layers stay in model order, chunk after chunk: one or more in each chunk, and no fewer than each
chunk recomputes. The embedding is on the first stage; prediction layers, head and loss on the last.
Of a model with leading dense layers and experts, each distribution of the dense layers over the
first chunks fixes how many of them every stage holds, so that counts describe the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.cost import memory
from planner.cost.channels import Channel
from planner.cost.collectives import GroupCost
from planner.cost.context import CostContext
from planner.cost.model_states import Parameters, stage_parameters
from planner.cost.offload import offloads_any
from planner.cost.stage_split import by_stage
from planner.cost.stages import RankStage, RankStages, count_by_kind
from planner.cost.step import LayoutCosts, costs_of_stages, step_time
from planner.layouts.arrays import BoolArray, FloatArray
from planner.layouts.keys import SCHEDULES
from planner.layouts.layout import LayoutLike, LayoutTable
from planner.layouts.numeric import Numeric
from planner.problem.scenario import Search
from planner.search.space.limits import within_limits

TrafficCosts = Callable[[LayoutCosts], Mapping[Channel, GroupCost]]
"""Cost vectors of the groups' traffic: in one placement, or each component's minimum over all."""

UNFOLDED = tuple(
    SCHEDULES.index(name) for name in ("1f1b", "interleaved", "zb-h1", "interleaved-zb")
)
"""Schedules whose ranks hold one stage each: those whose splits are searched."""

MAX_LEADING = 6
"""Most leading dense layers whose distributions over chunks are enumerated. More are placed by
position, which needs layouts without virtual stages."""


@dataclass(frozen=True)
class StageContents:
    """What stages may hold, for one distribution of the leading dense layers over the chunks.

    by_kind: layers of each kind, (S, I, N) each; allowed: which options exist, (S, I, N);
    fewest: minimum layers of each chunk; num_fixed: so many of the first chunks have
    exactly those.
    """

    by_kind: tuple[Numeric, ...]
    allowed: BoolArray
    fewest: tuple[int, ...]
    num_fixed: int


@dataclass(frozen=True)
class StageOptions:
    """What stages may hold, and all of its costs that do not depend on the placement.

    costs: of each option, as if every stage were this one; fits: memory holds it, (S, I, N);
    dense, experts: its parameters, (S, I, N).
    """

    contents: StageContents
    costs: LayoutCosts
    fits: BoolArray
    dense: FloatArray
    experts: FloatArray


@dataclass(frozen=True)
class StageSeconds:
    """Seconds of each option in one placement, with the stragglers' share, (S, I, N).

    pipeline: work and waiting; rest: gradients, parameters and optimizer, of a rank with its
    parameters; host: what launches add, which falls as the stage gets slower.
    """

    pipeline: FloatArray
    rest: FloatArray
    host: FloatArray


# --- which splits are searched --------------------------------------------------------------------


def is_searched(ctx: CostContext, layout: LayoutLike) -> BoolArray:
    """Whether a layout's stage splits are searched (shape of the layout).

    It has several stages, a schedule that folds nothing, and software that can express splits.
    With virtual stages, splits are expressed by chunks, and neither a layer pattern nor many
    leading dense layers are searched.
    """
    if ctx.software.stage_splits == "even":
        return np.asarray(layout.pp) < 0
    positional = ctx.model.layer_pattern is not None or _num_leading(ctx) > MAX_LEADING
    chunks_expressed = ctx.software.stage_splits == "any" or not _num_leading(ctx)
    by_chunks = chunks_expressed and not positional
    several = np.asarray(layout.pp) > 1
    return several & np.isin(layout.schedule_index, UNFOLDED) & (by_chunks | (layout.vp == 1))


def _num_leading(ctx: CostContext) -> int:
    """Dense layers before the first layer with experts."""
    return ctx.model.moe.num_dense_layers if ctx.model.moe else 0


# --- what stages may hold -------------------------------------------------------------------------


def stage_options(ctx: CostContext, search: Search, table: LayoutTable) -> list[StageOptions]:
    """Of the one layout in a table; one for each distribution of its leading dense layers."""
    assert len(table) == 1
    return [
        _stage_options(ctx, search, table, contents) for contents in _stage_contents(ctx, table)
    ]


def _stage_contents(ctx: CostContext, table: LayoutTable) -> Iterator[StageContents]:
    model, pp, vp = ctx.model, int(table.pp[0]), int(table.vp[0])
    fewest_each = max(1, int(table.recompute_layers[0]))
    if pp * vp * fewest_each > model.num_layers:
        return
    if model.layer_pattern is not None or _num_leading(ctx) > MAX_LEADING:
        yield _contents_by_position(ctx, pp)
        return
    for dense in _distributions(_num_leading(ctx), pp * vp):
        yield _contents_by_count(ctx, table, dense, fewest_each)


def _contents_by_position(ctx: CostContext, pp: int) -> StageContents:
    """Stages whose layers' kinds follow from where they start; I is num_layers + 1."""
    model, total = ctx.model, ctx.model.num_layers
    stage, before, count = np.ogrid[:pp, : total + 1, : total + 1]
    inside = before + count <= total
    layers, start = np.where(inside, count, 0), np.where(inside, before, 0)
    if model.layer_pattern is None:
        start = np.clip(_num_leading(ctx) - start, 0, layers)  # dense layers on the stage
    by_kind = count_by_kind(model, layers, start, stage == pp - 1)
    return StageContents(by_kind, inside & (count > 0) & (stage >= 0), (1,) * pp, 0)


def _contents_by_count(
    ctx: CostContext, table: LayoutTable, dense: list[int], fewest_each: int
) -> StageContents:
    """Stages whose leading dense layers are distributed over the first chunks like `dense`."""
    model, pp, vp = ctx.model, int(table.pp[0]), int(table.vp[0])
    stage, _, count = np.ogrid[:pp, :1, : model.num_layers + 1]
    leading = np.zeros(pp * vp, dtype=np.int64)
    leading[: len(dense)] = dense
    fewest = np.maximum(leading, fewest_each)
    # the last chunk with dense layers may have others after them, those before it may not
    num_fixed = max(len(dense) - 1, 0)
    own, fewest_of_stage = (by_stage(n, table)[:, None, None] for n in (leading, fewest))
    all_fixed = by_stage(np.arange(pp * vp) >= num_fixed, table)[:, None, None] == 0
    by_kind = count_by_kind(model, np.maximum(count, fewest_of_stage), own, stage == pp - 1)
    allowed = (count == fewest_of_stage) | (~all_fixed & (count > fewest_of_stage))
    return StageContents(by_kind, allowed, tuple(fewest), num_fixed)


def _distributions(leading: int, chunks: int) -> Iterator[list[int]]:
    """How many of the leading dense layers each of the first chunks may have.

    All of these chunks but the last hold nothing else, since layers stay in model order.
    """
    if not leading:
        yield []
        return
    for number in range(1, min(leading, chunks) + 1):
        for ends in combinations(range(1, leading), number - 1):
            yield [b - a for a, b in pairwise((0, *ends, leading))]


def expressible(ctx: CostContext, table: LayoutTable, fits: BoolArray) -> Iterator[BoolArray]:
    """Sets of options that the software can express, (S, I, N) each; a split uses one of the sets.

    Software that sets only the first and last stage has one number of layers on all others.
    """
    if ctx.software.stage_splits == "any":
        yield fits
        return
    pp, vp, count = int(table.pp[0]), int(table.vp[0]), np.arange(fits.shape[2])
    even = fits & (count % vp == 0)
    if pp == 2:
        yield even
        return
    for inner in range(vp, ctx.model.num_layers // (pp - 2) + 1, vp):
        options = even.copy()
        options[1:-1] &= count == inner
        if options.any(axis=(1, 2)).all():
            yield options


# --- what they cost -------------------------------------------------------------------------------


def _stage_options(
    ctx: CostContext, search: Search, table: LayoutTable, contents: StageContents
) -> StageOptions:
    """All options costed as one table of ranks that hold one stage each."""
    shape = contents.allowed.shape
    stage = np.arange(shape[0])[:, None, None]

    def flat(numbers: ArrayLike) -> NDArray[Any]:
        return np.broadcast_to(numbers, shape).reshape(1, -1)

    first, last = flat(stage == 0), flat(stage == shape[0] - 1)
    by_kind = tuple(flat(np.asarray(n, dtype=np.float64)) for n in contents.by_kind)
    stages = (RankStage(table, flat(stage), first, last, by_kind),)
    sizes = stage_parameters(ctx, table, stages)
    dense = np.asarray(sizes.dense)
    dense, experts = dense[0], np.broadcast_to(sizes.experts, dense.shape)[0]
    fits = np.broadcast_to(_fits(ctx, search, table, stages), dense.shape).reshape(shape)
    return StageOptions(
        contents=contents,
        costs=costs_of_stages(ctx, table, stages, Parameters(dense, experts)),
        fits=contents.allowed & fits,
        dense=dense.reshape(shape),
        experts=experts.reshape(shape),
    )


def _fits(ctx: CostContext, search: Search, table: LayoutTable, stages: RankStages) -> BoolArray:
    """Which ranks memory allows, as `space.limits.fits_in_memory` of a layout's fullest rank."""
    usage = memory.memory_of(ctx, table, stages)
    fits = within_limits(ctx, search, table, usage, np.asarray(usage.total)[0])
    if offloads_any(table):
        host = ctx.accelerator.host
        pinned = memory.PINNED_SHARE * host.memory_bytes if host is not None else -1.0
        fits = fits & (np.asarray(memory.host_bytes_of(ctx, table, stages))[0] <= pinned)
    return fits


def stage_seconds(
    ctx: CostContext, table: LayoutTable, options: StageOptions, traffic: TrafficCosts
) -> StageSeconds:
    """Each option costed as if it were the stage that all others wait for."""
    time = step_time(ctx, table, options.costs, traffic(options.costs))
    rest = time.dp + time.optimizer
    constant = float(ctx.software.coefficients.unexplained_seconds)
    running = time.total - time.straggler - time.unexplained
    # stragglers, and what is not explained, lengthen all terms alike
    share = (time.total - constant) / running

    def unflattened(seconds: Numeric) -> FloatArray:
        return np.broadcast_to(seconds, options.dense.size).reshape(options.dense.shape)

    return StageSeconds(
        pipeline=unflattened(share * (running - rest - time.host)),
        rest=unflattened(share * rest + constant),
        host=unflattened(share * time.host),
    )
