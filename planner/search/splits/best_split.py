"""The best split of a layout's layers over its stages and virtual stages.

Layers stay in model order: chunk after chunk, at least one each or as many as each runs again,
prediction layers, head and loss on the last, the embedding on the first. What a stage costs depends
on the layers of each kind that it holds, and a step is

    max over the stages of (work and waiting) + rest(parameters of the largest) + host(slowest)

Stages of one dense and one expert kind hold what the leading dense layers leave them: each way in
which these fall on the first chunks (`_leads`) fixes who holds how many, so that beside it numbers
of layers alone matter. Over them a dynamic program (`planner.search.splits.counts`) finds the least
greatest stage. That is the best split where the rest and the host do not depend on it; where they
do, branching does the rest: a better one has a smaller largest stage, or a slower slowest one.
Where interleaved chunks differ, ranks also wait for the last one's head, which numbers of layers a
stage do not tell: what is found is then costed so, and the bound without it kept as open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from planner.cost.stages import RankStage, RankStages, count_by_kind
from planner.cost.step import LayoutCosts, costs_of_stages, layout_costs, step_time
from planner.layouts.layout import SCHEDULES, LayoutLike, LayoutTable
from planner.layouts.numeric import Numeric
from planner.layouts.stage_split import by_stage
from planner.problem.scenario import Search
from planner.search.space.room import upper_ends
from planner.search.splits.counts import least_maximum, least_sum

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Costing = Callable[[LayoutCosts], Mapping[Channel, GroupCost]]
"""Cost vectors of the groups' traffic: of a placement, or the least of all."""

UNFOLDED = tuple(
    SCHEDULES.index(name) for name in ("1f1b", "interleaved", "zb-h1", "interleaved-zb")
)
"""Schedules whose ranks hold a stage each: those whose splits are searched."""

MOST_LEADING = 6
"""More leading dense layers are placed one by one, without virtual stages alone."""

SLACK = 1e-12
"""Relative, against rounding."""

CLOSE = 1e-9
"""Steps so close, relatively, are taken for equal."""


def is_searched(ctx: CostContext, layout: LayoutLike) -> BoolArray:
    """Whether a layout's splits are searched.

    It has several stages, a schedule that folds nothing, and software that can be told; with
    virtual stages, no pattern of layers and few leading dense ones, which then are told by chunks.
    """
    if ctx.software.stage_splits == "even":
        return np.asarray(layout.pp) < 0
    positional = ctx.model.layer_pattern is not None or _leading(ctx) > MOST_LEADING
    told_by_chunks = not positional and (ctx.software.stage_splits == "any" or not _leading(ctx))
    several = np.asarray(layout.pp) > 1
    return several & np.isin(layout.schedule_index, UNFOLDED) & (told_by_chunks | (layout.vp == 1))


def _leading(ctx: CostContext) -> int:
    return ctx.model.moe.num_dense_layers if ctx.model.moe else 0


@dataclass(frozen=True)
class Stages:
    """What every stage of a layout may hold, one way for leading dense layers to fall on chunks.

    by_kind: layers of each kind, (S, I, N) each; allowed: which counts there are, (S, I, N);
    fewest: layers of each chunk at least; closed: how many chunks, the first, have no more.
    """

    by_kind: tuple[Numeric, ...]
    allowed: BoolArray
    fewest: tuple[int, ...]
    closed: int


@dataclass(frozen=True)
class Split:
    """A split as `Layout.stage_layers`, and its step."""

    stage_layers: tuple[int, ...]
    step_seconds: float


@dataclass(frozen=True)
class Best:
    """The best split found below a limit, and the least that another could take (inf: none)."""

    split: Split | None
    open_seconds: float = np.inf


@dataclass(frozen=True)
class Options:
    """What stages may hold, and what of it does not depend on where groups live.

    shape: costs as if all stages waited for each option alone; fits: whether memory holds it; dense
    and experts: its parameters. Of each stage and count, (S, I, N).
    """

    stages: Stages
    shape: LayoutCosts
    fits: BoolArray
    dense: FloatArray
    experts: FloatArray


@dataclass(frozen=True)
class _Costs:
    """Of each stage and count, (S, I, N): work and waiting, what its parameters cost, and what the
    host adds, less the slower the stage.

    Seconds with the stragglers' share.
    """

    pipeline: FloatArray
    rest: FloatArray
    host: FloatArray


def options_of(ctx: CostContext, search: Search, table: LayoutTable) -> list[Options]:
    """Of the one layout in a table; one for each way for its leading dense layers to fall."""
    assert len(table) == 1
    return [_options(ctx, search, table, stages) for stages in stages_of(ctx, table)]


def best_split(
    ctx: CostContext,
    table: LayoutTable,
    options: Sequence[Options],
    costing: Costing,
    within_seconds: float = np.inf,
) -> Best:
    """The split of least step of the one layout in a table, that memory and software allow.

    options: `options_of` the layout; within_seconds: steps above it are of no interest; no split
    where none fits or is below it.
    """
    found, limit, left = None, within_seconds, np.inf
    for held in options:
        costs = _costs(ctx, table, held, costing)
        for told in _told(ctx, table, held.fits):
            better = _best(ctx, table, held, costs, told, costing, limit)
            left = min(left, better.open_seconds)
            if better.split is not None:
                found, limit = better.split, better.split.step_seconds
    return Best(found, left if left < limit * (1.0 - CLOSE) else np.inf)


def least_step(
    ctx: CostContext, table: LayoutTable, options: Sequence[Options], costing: Costing
) -> float:
    """Seconds that no allowed split goes under: the dynamic program's, without branching."""
    least = np.inf
    for held in options:
        costs = _costs(ctx, table, held, costing)
        for told in _told(ctx, table, held.fits):
            least = min(least, _bound(costs, told, ctx.model.num_layers))
    return least


# ---------------------------------------------------------------- what stages may hold


def stages_of(ctx: CostContext, table: LayoutTable) -> Iterator[Stages]:
    """The options of the one layout in a table, for each way of the leading dense layers."""
    model, pp, vp = ctx.model, int(table.pp[0]), int(table.vp[0])
    total, leading = model.num_layers, _leading(ctx)
    least_each = max(1, int(table.recompute_layers[0]))
    if pp * vp * least_each > total:
        return
    stage, count = np.ogrid[:pp, :1, : total + 1][::2]
    last = stage == pp - 1
    if model.layer_pattern is not None or leading > MOST_LEADING:
        before = np.arange(total + 1)[:, None]
        inside = before + count <= total
        held, start = np.where(inside, count, 0), np.where(inside, before, 0)
        if model.layer_pattern is None:
            start = np.clip(leading - start, 0, held)
        by_kind = count_by_kind(model, held, start, last)
        yield Stages(by_kind, inside & (count > 0) & (stage >= 0), (1,) * pp, 0)
        return
    for dense in _leads(leading, pp * vp):
        chunks = np.zeros(pp * vp, dtype=np.int64)
        chunks[: len(dense)] = dense
        fewest, closed = np.maximum(chunks, least_each), max(len(dense) - 1, 0)
        own, least = (by_stage(n, table)[:, None, None] for n in (chunks, fewest))
        whole = by_stage(np.arange(pp * vp) >= closed, table)[:, None, None] == 0
        by_kind = count_by_kind(model, np.maximum(count, least), own, last)
        yield Stages(by_kind, (count == least) | (~whole & (count > least)), tuple(fewest), closed)


def _leads(leading: int, chunks: int) -> Iterator[list[int]]:
    """Ways for the leading dense layers to fall on the first chunks: how many each of them has.

    All of these but the last hold nothing else.
    """
    if not leading:
        yield []
        return
    for number in range(1, min(leading, chunks) + 1):
        for ends in combinations(range(1, leading), number - 1):
            yield [b - a for a, b in pairwise((0, *ends, leading))]


def _told(ctx: CostContext, table: LayoutTable, fits: BoolArray) -> Iterator[BoolArray]:
    """The options that the software can be told, all that go together at once."""
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


# ---------------------------------------------------------------- what they cost


def _options(ctx: CostContext, search: Search, table: LayoutTable, stages: Stages) -> Options:
    shape = stages.allowed.shape
    stage = np.arange(shape[0])[:, None, None]

    def flat(numbers: ArrayLike) -> NDArray[Any]:
        return np.broadcast_to(numbers, shape).reshape(1, -1)

    first, last = flat(stage == 0), flat(stage == shape[0] - 1)
    by_kind = tuple(flat(np.asarray(n, dtype=np.float64)) for n in stages.by_kind)
    stages_held = (RankStage(table, flat(stage), first, last, by_kind),)
    sizes = stage_parameters(ctx, table, stages_held)
    dense = np.asarray(sizes.dense)
    dense, experts = dense[0], np.broadcast_to(sizes.experts, dense.shape)[0]
    fits = np.broadcast_to(_fits(ctx, search, table, stages_held), dense.shape).reshape(shape)
    return Options(
        stages=stages,
        shape=costs_of_stages(ctx, table, stages_held, Parameters(dense, experts)),
        fits=stages.allowed & fits,
        dense=dense.reshape(shape),
        experts=experts.reshape(shape),
    )


def _costs(ctx: CostContext, table: LayoutTable, options: Options, costing: Costing) -> _Costs:
    """Each option costed as if all stages waited for it alone."""
    time = step_time(ctx, table, options.shape, costing(options.shape))
    rest = time.dp + time.optimizer
    running = time.total - time.straggler
    share = time.total / running

    def back(seconds: Numeric) -> FloatArray:
        return np.broadcast_to(seconds, options.dense.size).reshape(options.dense.shape)

    return _Costs(
        pipeline=back(share * (running - rest - time.host)),
        rest=back(share * rest),
        host=back(share * time.host),
    )


def _fits(ctx: CostContext, search: Search, table: LayoutTable, held: RankStages) -> BoolArray:
    """Which ranks memory allows: as `search.space.room.accepted` of the fullest of a layout."""
    usage = memory.memory_of(ctx, table, held)
    fits: BoolArray = np.asarray(usage.total)[0] <= memory.limit_bytes(ctx, search.memory)
    host = ctx.accelerator.host
    if offloads_any(table):
        room = memory.PINNED_SHARE * host.memory_bytes if host is not None else -1.0
        fits = fits & (np.asarray(memory.host_bytes_of(ctx, table, held))[0] <= room)
    if search.robust:
        fits = fits & (upper_ends(ctx, table, usage) <= memory.limit_bytes(ctx, "fragile"))
    return fits


def _steps(ctx: CostContext, table: LayoutTable, costing: Costing) -> tuple[float, float]:
    """The step, and what it were if ranks did not wait slot by slot for unequal chunks."""
    shape = layout_costs(ctx, table)
    costs = costing(shape)
    alone = replace(shape, last_turn=None)
    step, unequal = (np.asarray(step_time(ctx, table, one, costs).total) for one in (shape, alone))
    return float(step[0]), float(unequal[0])


# ---------------------------------------------------------------- the best of them


def _only(cost: FloatArray, options: BoolArray) -> FloatArray:
    return np.where(options, cost, np.inf)


def _bound(costs: _Costs, allowed: BoolArray, total: int) -> float:
    """The least that a split of the allowed options takes: its pipeline and the rest each the
    least, or both of one stage; and whichever option is its slowest stage, what the host adds."""
    rest = least_maximum(_only(costs.rest, allowed), total)
    if rest == np.inf:
        return np.inf
    found = 0.0
    for seconds in (costs.pipeline + rest, costs.pipeline + costs.rest):
        slowest = np.maximum(seconds, least_maximum(_only(seconds, allowed), total))
        found = max(found, float((slowest + costs.host)[allowed].min()))
    return found * (1.0 - SLACK)


def _levelled(costs: _Costs, allowed: BoolArray, total: int) -> list[int]:
    """Counts of the least slowest stage; of these of the least rest, then the most level."""
    for cost in (costs.pipeline, costs.rest):
        least = least_maximum(_only(cost, allowed), total)
        allowed = allowed & (cost <= least * (1.0 + SLACK))
    counts = least_sum(_only(costs.pipeline**2, allowed), total)
    assert counts is not None  # the least of both is reached
    return counts


def _best(
    ctx: CostContext,
    table: LayoutTable,
    options: Options,
    costs: _Costs,
    allowed: BoolArray,
    costing: Costing,
    limit: float,
) -> Best:
    """The best split of the allowed options below a limit, by branch and bound.

    Of a split that is found, another is better only if its pipeline is no slower and either its
    largest stage smaller, in either kind of parameters, or its slowest stage slower, beside which
    more of the host hides.
    """
    total, found, left = ctx.model.num_layers, None, np.inf
    waiting = [allowed]
    while waiting:
        allowed = waiting.pop()
        bound = _bound(costs, allowed, total)
        if bound >= limit * (1.0 - CLOSE):
            continue
        counts = _levelled(costs, allowed, total)
        split = _chunks(ctx, table, options.stages, counts)
        seconds, alone = _steps(ctx, replace(table, stage_layers=split), costing)
        if alone < seconds * (1.0 - CLOSE):
            left = min(left, bound)  # as many layers a stage in other chunks may take less
        if seconds < limit * (1.0 - CLOSE):
            found, limit = Split(split, seconds), seconds
        before = np.cumsum([0, *counts[:-1]]) * (allowed.shape[1] > 1)
        chosen = (np.arange(len(counts)), before, counts)
        for size in (options.dense, options.experts):
            waiting.append(allowed & (size < size[chosen].max()))
        slower = allowed & (costs.host < costs.host[chosen].min())
        for stage in np.flatnonzero(slower.any(axis=(1, 2))):
            forced = allowed.copy()
            forced[stage] = slower[stage]
            waiting.append(forced)
    return Best(found, left)


def _chunks(
    ctx: CostContext, table: LayoutTable, stages: Stages, counts: Sequence[int]
) -> tuple[int, ...]:
    """A split by chunks: of each stage as even as can be, what is left over beside the head."""
    pp, vp = int(table.pp[0]), int(table.vp[0])
    if vp == 1 or ctx.software.stage_splits == "ends":
        return tuple(counts)
    chunks = list(stages.fewest)
    for stage, count in enumerate(counts):
        own = [chunk for chunk in range(stage, pp * vp, pp) if chunk >= stages.closed]
        for _ in range(count - sum(chunks[stage::pp])):
            chunks[
                min(
                    own,
                    key=lambda c: (chunks[c], c in (0, pp * vp - 1), -c),
                )
            ] += 1
    return tuple(int(layers) for layers in chunks)
