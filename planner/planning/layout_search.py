"""The layouts of one scenario searched, whatever they are searched for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from planner.cost.context import CostContext
from planner.layouts.layout import Layout
from planner.planning.options import batch_is_open
from planner.problem.scenario import Scenario
from planner.search.families import Answer, search_families
from planner.search.interface import PlacedLayout, SearchResult, Watch, unwatched
from planner.search.lowest_memory import LowestMemory, search_lowest_memory
from planner.search.weighted_steps import step_weights


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Wall and processor time since it was made."""

    _wall_start: float = field(default_factory=time.perf_counter)
    _cpu_start: float = field(default_factory=time.process_time)

    @property
    def seconds(self) -> float:
        """Wall seconds so far."""
        return time.perf_counter() - self._wall_start

    @property
    def cpu_seconds(self) -> float:
        """Seconds of processor time so far."""
        return time.process_time() - self._cpu_start


@dataclass(frozen=True)
class LayoutSearch:
    """The search of a scenario's layouts, and its answer.

    scenario: of one count and precision; its batch may be a band. answer: the fastest layouts;
    where memory is the objective, the fastest of those in `lowest_memory`.
    """

    scenario: Scenario
    ctx: CostContext
    answer: Answer
    lowest_memory: LowestMemory | None = None

    @property
    def result(self) -> SearchResult | None:
        """The search's answer; None where no layout fits."""
        return self.answer.result

    @property
    def best(self) -> PlacedLayout | None:
        """The layout that is shown, in its placement."""
        return None if self.result is None else self.result.best

    @property
    def layout(self) -> Layout | None:
        """The layout that is shown."""
        return None if self.best is None else self.answer.problem.layout(self.best.layout_index)

    @property
    def lowest_value(self) -> float | None:
        """Of the objective: bytes for least_memory, else weighted seconds."""
        if self.lowest_memory is not None:
            return self.lowest_memory.lowest_bytes
        return None if self.result is None else self.result.objective_seconds

    @property
    def bound(self) -> float:
        """A lower bound of the objective of every layout; inf where none fits."""
        if self.lowest_memory is not None:
            return self.lowest_memory.bound_bytes
        bound = None if self.result is None else self.result.bound_seconds
        return inf if bound is None else bound

    @property
    def step_seconds(self) -> float | None:
        """The step of the layout that is shown."""
        if self.best is None:
            return None
        row = self.answer.problem.table.take(np.array([self.best.layout_index]))
        weight = step_weights(self.ctx, self.scenario.search, row)
        return self.best.step_seconds / (1.0 if weight is None else weight.item())

    @cached_property
    def tokens_weight(self) -> float:
        """What the search multiplied steps of the layout's batch by, to compare them per token.

        1 where the batch is given; else the largest batch of the band over the layout's.
        """
        if self.layout is None or not batch_is_open(self.scenario):
            return 1.0
        _, most = self.scenario.training.batch_range
        return most / sequences(self.layout)


def search_layouts(
    scenario: Scenario,
    top_k: int,
    time_limit_seconds: float | None,
    watch: Watch = unwatched,
) -> LayoutSearch:
    """Search the layouts of a scenario whose count and precision are known."""
    ctx = CostContext.of(scenario)
    # a robust search compares upper ends, which are those of a cluster at its own upper end
    searched = ctx.at_cluster_end("high") if scenario.search.robust else ctx
    if scenario.search.objective != "least_memory":
        answer = search_families(searched, scenario.search, top_k, time_limit_seconds, watch)
        return LayoutSearch(scenario, ctx, answer)
    lowest = search_lowest_memory(searched, scenario.search, top_k, time_limit_seconds, watch)
    return LayoutSearch(scenario, ctx, lowest.answer, lowest)


# ---------------------------------------------------------------- the batch of a layout


def sequences(layout: Layout) -> int:
    """Sequences of the batch that a layout cuts into its micro-batches."""
    return layout.dp * layout.mbs * layout.num_microbatches


def with_batch_of(scenario: Scenario, layout: Layout) -> Scenario:
    """The scenario with the batch that the layout cuts, where the batch is a band."""
    if not batch_is_open(scenario):
        return scenario
    return scenario.replace(training=scenario.training.with_batch(sequences(layout)))
