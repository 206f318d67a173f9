"""Choosing besides the layout: how many accelerators, which precision, by which objective. Exact.

An option's lower bound is first that of its matmuls at the peak, then the lowest of its families'
bounds (of memory: floors), then what the search of its layouts proves. Options are taken by rising
bound, and the next step is made with the lowest: once an option is solved whose value no bound of
another undercuts, it is the best, proven, and the others are ruled out by their bounds or solved as
well.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count as counter
from math import inf

from planner.cost import flops
from planner.cost.context import CostContext
from planner.cost.layers import num_layers, share_of
from planner.planning.layout_search import LayoutSearch, search_layouts, sequences
from planner.planning.options import (
    batch_is_open,
    counts,
    open_keys,
    options,
    step_deadline_seconds,
)
from planner.planning.plan import Choice, Option, OptionStatus, Plan
from planner.problem.scenario import Scenario
from planner.search.family_bounds import lowest_peak_bound, lowest_step_bound
from planner.search.interface import Progress, Watch, unwatched

UNITS = {
    "time": "s a step",
    "accelerator_seconds": "accelerator-seconds a step",
    "fewest_for_deadline": "accelerators",
    "least_memory": "B",
}
PER_TOKENS = 1e6
"""Tokens by which time is counted where the batch may differ."""

PROVEN = 1e-9
"""Relative slack between a proven value and its bound, which are rounded apart."""


@dataclass(frozen=True)
class Chosen:
    """The search of the chosen option, None where there is none, and the searches of all options
    that were searched; the choice as the plan tells it."""

    best: LayoutSearch | None
    searches: tuple[LayoutSearch, ...]
    choice: Choice


def choose(
    scenario: Scenario, top_k: int, time_limit_seconds: float | None, watch: Watch = unwatched
) -> Chosen:
    """The best option by the scenario's objective, and the proof that no other is better."""
    seconds = inf if time_limit_seconds is None else time_limit_seconds
    effort = _Effort(top_k, time.monotonic() + seconds, watch)
    candidates = [_Candidate(option) for option in options(scenario)]
    if scenario.search.objective != "fewest_for_deadline":
        best = _best_first(candidates, scenario.search.objective, effort)
        return _chosen(scenario, candidates, best, None)
    deadline = step_deadline_seconds(scenario)
    assert deadline is not None, "the objective needs one"
    best = _fewest_within(scenario, candidates, effort, deadline)
    return _chosen(scenario, candidates, best, deadline)


def _fewest_within(
    scenario: Scenario, candidates: Sequence[_Candidate], effort: _Effort, deadline_seconds: float
) -> _Candidate | None:
    """The fastest option of the fewest accelerators whose step keeps the deadline."""
    best = None
    for number in counts(scenario):
        same = [c for c in candidates if c.scenario.num_accelerators == number]
        # counts rise: the first whose best step keeps the deadline is the fewest
        best = _best_first(same, "time", effort, deadline_seconds * (1.0 + 1e-12))
        if best is not None:
            break
    if best is not None:
        for candidate in candidates:
            if candidate.scenario.num_accelerators > best.scenario.num_accelerators:
                candidate.status = "unneeded"
    return best


# ---------------------------------------------------------------- best first


@dataclass
class _Candidate:
    """An option and what is known of it; it changes as the search goes on.

    bound, value: of the objective. bounded: how many of the two bounds before the search are known.
    """

    scenario: Scenario
    bound: float = 0.0
    bounded: int = 0
    search: LayoutSearch | None = None
    status: OptionStatus = "ruled out"
    value: float = inf


@dataclass
class _Effort:
    """How many layouts are wanted, until when, and who watches: together for all options."""

    top_k: int
    until: float  # of time.monotonic()
    watch: Watch
    stopped: bool = False

    def report(self, progress: Progress, /) -> bool:
        """The watch, whose word to stop holds for all options."""
        self.stopped = self.watch(progress) or self.stopped
        return self.stopped

    @property
    def is_over(self) -> bool:
        """Whether no more is to be searched."""
        return self.stopped or time.monotonic() >= self.until

    @property
    def seconds_left(self) -> float | None:
        """Seconds left; None without a limit."""
        return None if self.until == inf else max(0.0, self.until - time.monotonic())


_NUM_BOUNDS = 2


def _best_first(
    candidates: Sequence[_Candidate],
    objective: str,
    effort: _Effort,
    most: float = inf,
) -> _Candidate | None:
    """The option of the lowest value, if that is at most `most`.

    Options are searched only as far as it takes to prove it. Of equal values the first in the
    order of the options, which has fewer accelerators, is taken.
    """
    order = counter()
    heap = [(0.0, next(order), candidate) for candidate in candidates]
    best: _Candidate | None = None
    lowest = most
    while heap:
        bound, _, candidate = heapq.heappop(heap)
        if bound > lowest or (best is not None and bound >= lowest):
            break
        if effort.is_over:  # the others are looked at too: all that could be better are unknown
            candidate.status = "unknown"
            continue
        if candidate.bounded < _NUM_BOUNDS:
            _raise_bound(candidate, objective)
            if candidate.status != "infeasible":
                heapq.heappush(heap, (candidate.bound, next(order), candidate))
            continue
        _search(candidate, objective, effort)
        if candidate.value == inf:  # nothing fits, or the time ran out before anything did
            continue
        if candidate.value < lowest or (best is None and candidate.value <= lowest):
            best, lowest = candidate, candidate.value
    return best


def _search(candidate: _Candidate, objective: str, effort: _Effort) -> None:
    """Search the layouts of an option: its value, its final bound and its status."""
    search = search_layouts(candidate.scenario, effort.top_k, effort.seconds_left, effort.report)
    factor = _per_step(candidate.scenario, objective)
    candidate.search = search
    candidate.bound = max(candidate.bound, factor * search.bound)
    candidate.status = "infeasible" if search.bound == inf else "unknown"
    if search.lowest_value is not None:
        candidate.value = factor * search.lowest_value
        if candidate.bound >= candidate.value * (1.0 - PROVEN):
            candidate.status = "solved"


def _per_step(scenario: Scenario, objective: str) -> float:
    """What a step's seconds (or bytes) are multiplied by to make the objective."""
    return float(scenario.num_accelerators) if objective == "accelerator_seconds" else 1.0


def _raise_bound(candidate: _Candidate, objective: str) -> None:
    """The next closer bound of an option; infeasible where no layout is legal."""
    scenario = candidate.scenario
    ctx, factor = CostContext.of(scenario), _per_step(scenario, objective)
    candidate.bounded += 1
    if candidate.bounded == 1:  # cheap, and often enough to rule an option out
        # matmuls say nothing of memory, and ends of prediction intervals may lie below predictions
        plain = objective != "least_memory" and not scenario.search.robust
        candidate.bound = factor * least_matmul_seconds(ctx) * (1.0 - PROVEN) if plain else 0.0
        return
    bound_of_families = lowest_peak_bound if objective == "least_memory" else lowest_step_bound
    lowest = bound_of_families(ctx, scenario.search)
    candidate.bound = max(candidate.bound, factor * lowest)
    candidate.status = "infeasible" if lowest == inf else candidate.status


def least_matmul_seconds(ctx: CostContext) -> float:
    """Seconds of the largest batch's weight matmuls at the dense peak: no step is shorter.

    Three times the forward ones; routers are left out, which are no matmuls to the cost model.
    """
    moe = ctx.model.moe
    routers = 0.0
    if moe is not None:
        layers = share_of(ctx.layer_kinds, "experts") * num_layers(ctx.model)
        routers = 2.0 * layers * ctx.model.hidden_size * moe.num_experts
    forward = flops.forward_flops_per_token(ctx)
    tokens = float(ctx.training.batch_range[1]) * ctx.training.sequence_length
    per_token = 3.0 * (forward.layers + forward.head - routers)
    return tokens * per_token / (ctx.num_accelerators * ctx.peak_flops)


# ---------------------------------------------------------------- the choice, as the plan tells it


def _chosen(
    scenario: Scenario,
    candidates: Sequence[_Candidate],
    best: _Candidate | None,
    deadline_seconds: float | None,
) -> Chosen:
    objective = scenario.search.objective
    unit, scale = UNITS[objective], 1.0
    if batch_is_open(scenario) and objective in ("time", "accelerator_seconds"):
        # the search compares steps per token, as of steps of the band's largest batch
        unit, scale = _per_million_tokens(unit, scenario, scenario.training.batch_range[1])
    value = bound = None
    if best is not None:
        best.status = "chosen"
        if objective == "fewest_for_deadline":
            value, bound = _fewest_and_bound(best, candidates)
        else:
            value, bound = scale * best.value, scale * _lowest_bound(best, candidates)
    return Chosen(
        best=None if best is None else best.search,
        searches=tuple(c.search for c in candidates if c.search is not None),
        choice=Choice(
            objective=objective,
            unit=unit,
            value=value,
            bound=bound,
            gap_fraction=None if value is None or bound is None else (value - bound) / value,
            asked=open_keys(scenario),
            options=tuple(_option(candidate, scale) for candidate in candidates),
            deadline_seconds=deadline_seconds,
        ),
    )


def _lowest_bound(best: _Candidate, candidates: Sequence[_Candidate]) -> float:
    """No option is below."""
    answered = ("infeasible", "unneeded")
    bounds = [c.bound for c in candidates if c.status not in answered]
    return min(best.value, min(bounds, default=inf))


def _fewest_and_bound(best: _Candidate, candidates: Sequence[_Candidate]) -> tuple[float, float]:
    """The accelerators of the option, and the fewest of one that was not searched in time."""
    value = float(best.scenario.num_accelerators)
    unknown = [c.scenario.num_accelerators for c in candidates if c.status == "unknown"]
    return value, min(value, float(min(unknown, default=value)))


def _option(candidate: _Candidate, scale: float) -> Option:
    search = candidate.search
    layout = None if search is None else search.layout

    def known(value: float) -> float | None:
        return None if value == inf else scale * value

    return Option(
        num_accelerators=candidate.scenario.num_accelerators,
        precision=candidate.scenario.training.precision,
        status=candidate.status,
        value=known(candidate.value),
        bound=known(candidate.bound),
        step_seconds=None if search is None else search.step_seconds,
        layout=layout,
        global_batch_size=None if layout is None else sequences(layout),
    )


def choice_of_batch(scenario: Scenario, best: Plan) -> Choice:
    """The choice of a batch from a band, where nothing else was chosen."""
    unit, scale = UNITS["time"], 1.0
    batch = None if best.layout is None else sequences(best.layout)
    unit, scale = _per_million_tokens(unit, scenario, batch)
    lowest, bound = best.objective_seconds, best.bound_seconds
    return Choice(
        objective="time",
        unit=unit,
        value=None if lowest is None else scale * lowest,
        bound=None if lowest is None or bound is None else scale * bound,
        gap_fraction=best.gap_fraction,
        asked=open_keys(scenario),
        options=(),
    )


def _per_million_tokens(unit: str, scenario: Scenario, batch: int | None) -> tuple[str, float]:
    """The unit of a step as one of a million tokens, and what makes it: a step has `batch`
    sequences; None where there is no step."""
    unit = unit.replace("a step", "a million tokens")
    if batch is None:
        return unit, 1.0
    return unit, PER_TOKENS / (float(batch) * scenario.training.sequence_length)
