"""The best stage split of one layout: dynamic programming, and branch and bound around it.

A step of one layout in one placement is

    max over stages of pipeline(s, n_s) + rest(largest stage's parameters) + host(slowest stage)

where n_s is what stage s holds (`planner.search.stage_splits.options`).

**Dynamic program.** Over (stage, layers placed) it finds the split whose slowest stage is fastest,
in O(S · L · N). That is the best split where rest and host do not depend on it.

**Branch and bound.** Where they do, start from that split. No other has a faster slowest stage, so
a better one gains elsewhere: its largest stage is smaller, in dense parameters or in those of
experts, or one of its stages is slower than all of the first split's, and hides more of the host's
work. Each case is a restriction of the options and a branch of its own; a branch whose bound
reaches the best step so far is closed.

**What stays open.** Interleaved chunks that differ also wait for the last one's head, which counts
of layers per stage do not determine. A split is costed with that wait. Where the same counts in
other chunks might avoid it, the bound without it is returned as `open_seconds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import CostContext
from planner.cost.step import layout_costs, step_time
from planner.layouts.arrays import BoolArray, FloatArray, IntArray
from planner.layouts.layout import LayoutTable
from planner.search.stage_splits.options import (
    StageContents,
    StageOptions,
    StageSeconds,
    TrafficCosts,
    expressible,
    stage_seconds,
)

ROUNDING = 1e-12
"""Relative slack of sums that may be rounded apart."""

CLOSE = 1e-9
"""Steps that differ relatively by less count as equal."""


@dataclass(frozen=True)
class StageSplit:
    """A split as `Layout.stage_layers` takes it, and its step."""

    stage_layers: tuple[int, ...]
    step_seconds: float


@dataclass(frozen=True)
class BestSplit:
    """The best split below a limit, None where there is none.

    open_seconds: the lowest step that the same counts of layers per stage might have in other
    chunks; inf where no such split could be faster.
    """

    split: StageSplit | None
    open_seconds: float = np.inf


def best_split(
    ctx: CostContext,
    table: LayoutTable,
    options: Sequence[StageOptions],
    traffic: TrafficCosts,
    within_seconds: float = np.inf,
) -> BestSplit:
    """The split of the lowest step of the one layout in a table that memory and software allow.

    options: `stage_options` of the layout; traffic: its groups' costs in one placement;
    within_seconds: steps above it are of no interest.
    """
    best, limit, still_open = None, within_seconds, np.inf
    for each in options:
        seconds = stage_seconds(ctx, table, each, traffic)
        branching = _Branching(ctx, table, each, seconds, traffic)
        for allowed in expressible(ctx, table, each.fits):
            better = branching.best(allowed, limit)
            still_open = min(still_open, better.open_seconds)
            if better.split is not None:
                best, limit = better.split, better.split.step_seconds
    return BestSplit(best, still_open if still_open < limit * (1.0 - CLOSE) else np.inf)


def split_bound(
    ctx: CostContext, table: LayoutTable, options: Sequence[StageOptions], traffic: TrafficCosts
) -> float:
    """Seconds below which no allowed split's step lies: the dynamic program's, no branching."""
    lowest = np.inf
    for each in options:
        seconds = stage_seconds(ctx, table, each, traffic)
        for allowed in expressible(ctx, table, each.fits):
            lowest = min(lowest, _bound(seconds, allowed, ctx.model.num_layers))
    return lowest


# --- the dynamic program --------------------------------------------------------------------------


def lowest_maximum(cost: FloatArray, total: int) -> float:
    """The minimum, over all counts that sum to `total`, of the most expensive stage's cost.

    cost: (S, I, N) of stage s with i layers before it that holds n; inf where not allowed.
    """
    reached, _ = _tables(cost, total, np.maximum, -np.inf)
    return float(reached[-1][total])


def lowest_sum(cost: FloatArray, total: int) -> list[int] | None:
    """The counts of the lowest summed cost; None where none is allowed.

    Of equal sums the one whose last stages hold fewest. cost: as for `lowest_maximum`.
    """
    reached, choices = _tables(cost, total, np.add, 0.0)
    if not np.isfinite(reached[-1][total]):
        return None
    counts, placed = [], total
    for choice in reversed(choices):
        counts.append(int(choice[placed]))
        placed -= counts[-1]
    return counts[::-1]


def _tables(
    cost: FloatArray,
    total: int,
    join: Callable[[FloatArray, FloatArray], FloatArray],
    empty: float,
) -> tuple[list[FloatArray], list[IntArray]]:
    """Lowest joined cost of the first 0, 1, .. stages by layers placed, (total + 1) each, and the
    last of these stages' count there."""
    sizes = np.arange(cost.shape[2])
    before = np.arange(total + 1)[:, None] - sizes  # of j layers placed, n by this stage
    possible = before >= 0
    before = np.maximum(before, 0)
    at = before if cost.shape[1] > 1 else np.zeros_like(before)
    # no layers are placed before the first stage
    reached = [np.where(np.arange(total + 1) == 0, empty, np.inf)]
    choices: list[NDArray[np.int64]] = []
    for stage in cost:
        joined = np.where(possible, join(reached[-1][before], stage[at, sizes]), np.inf)
        choice = np.argmin(joined, axis=1)
        choices.append(choice)
        reached.append(joined[np.arange(total + 1), choice])
    return reached, choices


# --- branch and bound -----------------------------------------------------------------------------


def _only(cost: FloatArray, allowed: BoolArray) -> FloatArray:
    return np.where(allowed, cost, np.inf)


def _bound(seconds: StageSeconds, allowed: BoolArray, total: int) -> float:
    """Seconds below which no split of the allowed options lies; inf where there is none.

    A step is at least (a) its slowest pipeline plus the smallest largest rest, and (b) the largest
    pipeline + rest of any one stage. Whichever option is the slowest stage, the step is at least
    its own and the dynamic program's value of (a) or (b), plus what the host then adds.
    """
    rest = lowest_maximum(_only(seconds.rest, allowed), total)
    if rest == np.inf:
        return np.inf
    bound = 0.0
    for stage in (seconds.pipeline + rest, seconds.pipeline + seconds.rest):
        slowest = np.maximum(stage, lowest_maximum(_only(stage, allowed), total))
        bound = max(bound, float((slowest + seconds.host)[allowed].min()))
    return bound * (1.0 - ROUNDING)


def _fastest_counts(seconds: StageSeconds, allowed: BoolArray, total: int) -> list[int]:
    """Layers per stage: the fastest slowest stage, then the smallest rest, then the most even."""
    for cost in (seconds.pipeline, seconds.rest):
        lowest = lowest_maximum(_only(cost, allowed), total)
        allowed = allowed & (cost <= lowest * (1.0 + ROUNDING))
    counts = lowest_sum(_only(seconds.pipeline**2, allowed), total)
    assert counts is not None  # some split reaches both minima
    return counts


@dataclass(frozen=True)
class _Branching:
    """Branch and bound over the splits of one layout in one placement."""

    ctx: CostContext
    table: LayoutTable
    options: StageOptions
    seconds: StageSeconds
    traffic: TrafficCosts

    def best(self, allowed: BoolArray, limit_seconds: float) -> BestSplit:
        """The best split of the allowed options below a limit."""
        best, limit, still_open = None, limit_seconds, np.inf
        branches = [allowed]
        while branches:
            allowed = branches.pop()
            bound = _bound(self.seconds, allowed, self.ctx.model.num_layers)
            if bound >= limit * (1.0 - CLOSE):
                continue
            counts = _fastest_counts(self.seconds, allowed, self.ctx.model.num_layers)
            split = _split_of_counts(self.ctx, self.table, self.options.contents, counts)
            step, step_without_wait = self._steps(split)
            if step_without_wait < step * (1.0 - CLOSE):
                # the same counts in other chunks may wait less
                still_open = min(still_open, bound)
            if step < limit * (1.0 - CLOSE):
                best, limit = StageSplit(split, step), step
            branches += self._branches(allowed, counts)
        return BestSplit(best, still_open)

    def _branches(self, allowed: BoolArray, counts: Sequence[int]) -> list[BoolArray]:
        """Options of the splits that could be better than one of the lowest pipeline."""
        before = np.cumsum([0, *counts[:-1]]) * (allowed.shape[1] > 1)
        chosen = (np.arange(len(counts)), before, counts)
        branches = [
            allowed & (size < size[chosen].max())
            for size in (self.options.dense, self.options.experts)
        ]
        slower = allowed & (self.seconds.host < self.seconds.host[chosen].min())
        for stage in np.flatnonzero(slower.any(axis=(1, 2))):
            forced = allowed.copy()
            forced[stage] = slower[stage]
            branches.append(forced)
        return branches

    def _steps(self, stage_layers: tuple[int, ...]) -> tuple[float, float]:
        """The step, and what it were if ranks did not wait slot by slot for unequal chunks."""
        table = replace(self.table, stage_layers=stage_layers)
        costs = layout_costs(self.ctx, table)
        traffic = self.traffic(costs)
        step, without_wait = (
            float(np.asarray(step_time(self.ctx, table, each, traffic).total)[0])
            for each in (costs, replace(costs, last_turn=None))
        )
        return step, without_wait


def _split_of_counts(
    ctx: CostContext, table: LayoutTable, contents: StageContents, counts: Sequence[int]
) -> tuple[int, ...]:
    """Layers of each stage, or of each chunk where chunks are expressed.

    Chunks of a stage are as even as can be. A layer more goes to the latest of them, and to the
    first or last of all chunks, which have the embedding and the head, only after the others.
    """
    pp, vp = int(table.pp[0]), int(table.vp[0])
    if vp == 1 or ctx.software.stage_splits == "ends":
        return tuple(counts)
    chunks = list(contents.fewest)
    ends = (0, pp * vp - 1)
    for stage, count in enumerate(counts):
        own = [chunk for chunk in range(stage, pp * vp, pp) if chunk >= contents.num_fixed]
        for _ in range(count - sum(chunks[stage::pp])):
            chunks[min(own, key=lambda c: (chunks[c], c in ends, -c))] += 1
    return tuple(int(layers) for layers in chunks)
