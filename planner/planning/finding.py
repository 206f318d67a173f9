"""The layouts of one scenario searched: what was found, whatever they were searched for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from planner.cost.context import CostContext
from planner.layouts.layout import Layout
from planner.problem.scenario import Scenario
from planner.search.families import Answer, search_families
from planner.search.leanest import Leanest, search_leanest
from planner.search.protocol import SearchResult, Watch, unwatched
from planner.search.robust import weights


@dataclass(frozen=True)
class Found:
    """What the search of a scenario's layouts found; `leanest` where memory was the objective."""

    scenario: Scenario
    ctx: CostContext
    answer: Answer
    leanest: Leanest | None

    @property
    def result(self) -> SearchResult | None:
        """The search's answer."""
        return self.answer.result

    @property
    def least(self) -> float | None:
        """Of the objective: bytes for least_memory, else weighed seconds."""
        if self.leanest is not None:
            return self.leanest.least_bytes
        return None if self.result is None else self.result.objective_seconds

    @property
    def bound(self) -> float:
        """No layout is below; inf where none fits."""
        if self.leanest is not None:
            return self.leanest.bound_bytes
        bound = None if self.result is None else self.result.bound_seconds
        return inf if bound is None else bound

    @property
    def layout(self) -> Layout | None:
        """The layout shown."""
        best = None if self.result is None else self.result.best
        return None if best is None else self.answer.problem.layout(best.shape)

    @property
    def step_seconds(self) -> float | None:
        """Its step."""
        best = None if self.result is None else self.result.best
        if best is None:
            return None
        one = self.answer.problem.table.take(np.array([best.shape]))
        factor = weights(self.ctx, self.scenario.search, one)
        return best.step_seconds / (1.0 if factor is None else factor.item())

    @cached_property
    def weight(self) -> float:
        """What steps of the layout shown were multiplied by in the search, but for their bars."""
        least, most = self.scenario.training.batch_range
        if least == most or self.result is None or self.result.best is None:
            return 1.0
        return most / sequences(self.answer.problem.layout(self.result.best.shape))


def sequences(layout: Layout) -> int:
    """Of the batch that a layout cuts."""
    return layout.dp * layout.mbs * layout.num_microbatches


def find(
    scenario: Scenario,
    top_k: int,
    time_limit_seconds: float | None,
    watch: Watch = unwatched,
) -> Found:
    """Search the layouts of a scenario whose count and precision are known."""
    ctx = CostContext.of(scenario)
    if scenario.search.objective == "least_memory":
        leanest = search_leanest(ctx, scenario.search, top_k, time_limit_seconds, watch)
        return Found(scenario, ctx, leanest.answer, leanest)
    answer = search_families(ctx, scenario.search, top_k, time_limit_seconds, watch)
    return Found(scenario, ctx, answer, None)


def of_batch(scenario: Scenario, layout: Layout) -> Scenario:
    """The scenario with the batch that the layout cuts, where the batch is a band."""
    least, most = scenario.training.batch_range
    if least == most:
        return scenario
    return scenario.replace(training=scenario.training.with_batch(sequences(layout)))
