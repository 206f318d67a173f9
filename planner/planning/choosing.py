"""Choosing beside the layout: how many accelerators, which precision, by which objective. Exact.

Every pair of a count and a precision is a scenario of its own, an option. An option's bound is
first that of its matmuls at the peak, then the least of its families' bounds (memory: floors), then
what the search of its layouts proves. Options are taken by rising bound, and the next step is made
with the least: once an option is solved whose value no bound of another undercuts, it is the best,
proven, and the others are ruled out by their bounds or solved as well.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count as counter
from math import inf, prod
from typing import Any

import numpy as np

from planner.cost import flops
from planner.cost.context import CostContext
from planner.cost.layers import num_layers, share_of
from planner.layouts.layout import Layout
from planner.planning.finding import Found, find, sequences
from planner.planning.plan import Choice, Option, OptionStatus, Plan
from planner.problem.cluster import Cluster
from planner.problem.objective import FREE
from planner.problem.scenario import Scenario
from planner.search.families import family_bounds
from planner.search.leanest import floors
from planner.search.placement import fills
from planner.search.protocol import Progress, Watch, unwatched
from planner.search.space.enumerate import families

UNITS = {
    "time": "s a step",
    "accelerator_seconds": "accelerator-seconds a step",
    "fewest_for_deadline": "accelerators",
    "least_memory": "B",
}
PER_TOKENS = 1e6
"""Tokens by which time is counted where the batch may differ."""


@dataclass
class _Option:
    """A count and a precision: its scenario, what is known of it."""

    scenario: Scenario
    bound: float = 0.0  # of the value
    level: int = 0
    solved: Found | None = None
    status: OptionStatus = "ruled out"
    value: float = inf


@dataclass
class _Effort:
    """How many layouts are asked for, until when, and who watches: together for all options."""

    top_k: int
    until: float
    watch: Watch
    stopped: bool = False

    def told(self, progress: Progress, /) -> bool:
        """The watch, whose word to stop holds for all options."""
        self.stopped = self.watch(progress) or self.stopped
        return self.stopped

    def over(self) -> bool:
        """Whether no more is to be searched."""
        return self.stopped or time.monotonic() >= self.until

    def left(self) -> float | None:
        """Seconds left; None without a limit."""
        return None if self.until == inf else max(0.0, self.until - time.monotonic())


def is_open(scenario: Scenario) -> bool:
    """Whether more than the layout (and a batch within its band) is to be chosen."""
    search = scenario.search
    return (
        search.num_accelerators is not None
        or search.precision is not None
        or search.objective != "time"
    )


def asked_of(scenario: Scenario) -> dict[str, Any]:
    """The scenario's keys that leave a choice beside the layout, as they were given."""
    document = scenario.model_dump(mode="json", by_alias=True)
    search, training = document["search"], document["training"]
    names = ("num_accelerators", "precision", "objective", "deadline", "step_deadline")
    found = {f"search.{name}": search[name] for name in names if search[name] is not None}
    if search["num_accelerators"] is not None:
        found["num_accelerators"] = document["num_accelerators"]
    least, most = scenario.training.batch_range
    if least != most:
        keys = ("global_batch_size", "global_batch_tokens")
        found |= {f"training.{key}": training[key] for key in keys if training[key] is not None}
    return found


def counts(scenario: Scenario) -> list[int]:
    """The counts of accelerators that may be used, rising.

    Free: whole fills of the topology up to num_accelerators (1, 2, … of a domain, then 1, 2, … full
    domains, and so on outwards), the same of domains as num_accelerators itself fills them, and
    num_accelerators. With an inventory a domain is full with what its usable nodes hold.
    """
    asked, most = scenario.search.num_accelerators, scenario.num_accelerators
    if asked is None:
        return [most]
    if asked != FREE:
        return sorted(asked)
    if scenario.inventory is not None:
        return sorted(_held_counts(Cluster.of(scenario.inventory, scenario.topology), most))
    widths = scenario.topology.widths
    found = {most}
    for used in (widths, *fills(widths, most)[:1]):
        for tier, width in enumerate(widths):
            unit = prod(used[:tier])
            found |= {unit * k for k in range(1, width + 1) if unit * k <= most}
    return sorted(n for n in found if fills(widths, n))


def _held_counts(cluster: Cluster, most: int) -> set[int]:
    """The free counts of an inventory: of blocks as full as some domain of each tier below, as many
    as a domain of the next tier holds."""
    asked = next((fill for fill in fills(cluster.widths, most) if cluster.holds(fill)), ())
    found = {most} if asked else set()
    inner: set[tuple[int, ...]] = {()}
    for tier in range(len(cluster.tiers)):
        ones = (1,) * (len(cluster.tiers) - tier)
        fuller = {asked[: tier + 1]} if asked else set()
        for used in inner:
            unit = prod(used)
            held = [int(n) for n in np.unique(cluster.blocks((*used, *ones))[tier])]
            found |= {unit * k for k in range(1, held[-1] + 1) if unit * k <= most}
            fuller |= {(*used, n) for n in held if n and unit * n <= most}
        inner = fuller
    return found


def options(scenario: Scenario) -> Iterator[Scenario]:
    """A scenario for each count and precision, fewest accelerators first."""
    search = scenario.search
    kept = "least_memory" if search.objective == "least_memory" else "time"
    plain = search.replace(
        precision=None, num_accelerators=None, objective=kept, deadline=None, step_deadline=None
    )
    for number in counts(scenario):
        for precision in dict.fromkeys(search.precision or (scenario.training.precision,)):
            yield scenario.replace(
                num_accelerators=number,
                training=scenario.training.replace(precision=precision),
                search=plain,
            )


def least_matmul_seconds(ctx: CostContext) -> float:
    """Seconds of the greatest batch's weight matmuls at the dense peak: no step is shorter.

    Three times the forward ones; routers are left out, which are no matmuls to the cost model.
    """
    moe = ctx.model.moe
    routers = 0.0
    if moe is not None:
        layers = share_of(ctx.kinds, "experts") * num_layers(ctx.model)
        routers = 2.0 * layers * ctx.model.hidden_size * moe.num_experts
    forward = flops.forward_flops_per_token(ctx)
    tokens = float(ctx.training.batch_range[1]) * ctx.training.sequence_length
    each = 3.0 * (forward.layers + forward.head - routers)
    return tokens * each / (ctx.num_accelerators * ctx.peak_flops)


def step_deadline(scenario: Scenario) -> float | None:
    """Seconds that a step of the greatest batch may take."""
    search, training = scenario.search, scenario.training
    if search.step_deadline is not None or search.deadline is None:
        return search.step_deadline
    assert training.total_tokens is not None
    tokens = float(training.batch_range[1]) * training.sequence_length
    return search.deadline * tokens / training.total_tokens


@dataclass(frozen=True)
class Chosen:
    """What the search found of the chosen option and of all searched ones; the choice as told."""

    best: Found | None
    all: tuple[Found, ...]
    choice: Choice


def choose(
    scenario: Scenario, top_k: int, time_limit_seconds: float | None, watch: Watch = unwatched
) -> Chosen:
    """The best option by the scenario's objective, and the proof that no other is better."""
    seconds = inf if time_limit_seconds is None else time_limit_seconds
    effort = _Effort(top_k, time.monotonic() + seconds, watch)
    search = scenario.search
    known = [_Option(one) for one in options(scenario)]
    if search.objective == "fewest_for_deadline":
        deadline = step_deadline(scenario)
        assert deadline is not None
        best = None
        for number in counts(scenario):
            same = [o for o in known if o.scenario.num_accelerators == number]
            best = _best_first(same, "time", effort, deadline * (1.0 + 1e-12))
            if best is not None:
                break
        for option in known:
            if best is not None and option.scenario.num_accelerators > number:
                option.status = "unneeded"
        return _chosen(scenario, known, best, deadline)
    best = _best_first(known, search.objective, effort, inf)
    return _chosen(scenario, known, best, None)


_NO_ANSWER = ("infeasible", "unneeded")


def _best_first(
    known: Sequence[_Option],
    objective: str,
    effort: _Effort,
    within: float,
) -> _Option | None:
    """The option of the least value, if that is within; options at hand are solved no further than
    it takes to prove it. Of equal values the fewer accelerators."""
    order = counter()
    heap = [(0.0, next(order), option) for option in known]
    best: _Option | None = None
    least = within
    while heap:
        bound, _, option = heapq.heappop(heap)
        if bound > least or (best is not None and bound >= least):
            break
        if effort.over():
            option.status = "unknown"
            continue
        if option.level < _LEVELS:
            _raise_bound(option, objective)
            if option.status != "infeasible":
                heapq.heappush(heap, (option.bound, next(order), option))
            continue
        option.solved = find(option.scenario, effort.top_k, effort.left(), effort.told)
        factor = _factor(option.scenario, objective)
        option.bound = max(option.bound, factor * option.solved.bound)
        found = option.solved.least
        option.status = "infeasible" if option.solved.bound == inf else "unknown"
        if found is not None:
            option.value = factor * found
            proven = option.bound >= option.value * (1.0 - PROVEN)
            option.status = "solved" if proven else "unknown"
            if option.value < least or (best is None and option.value <= least):
                best, least = option, option.value
    return best


_LEVELS = 2
PROVEN = 1e-9
"""Relative slack between a proven value and its bound, which are rounded apart."""


def _factor(scenario: Scenario, objective: str) -> float:
    return float(scenario.num_accelerators) if objective == "accelerator_seconds" else 1.0


def _raise_bound(option: _Option, objective: str) -> None:
    """The next closer bound of an option; infeasible where no layout is legal."""
    scenario = option.scenario
    ctx, factor = CostContext.of(scenario), _factor(scenario, objective)
    if option.level == 0:
        plain = objective != "least_memory" and not scenario.search.robust
        option.bound = factor * least_matmul_seconds(ctx) * (1.0 - 1e-9) if plain else 0.0
    else:
        table, _ = families(ctx, scenario.search)
        if not len(table):
            option.status, option.bound = "infeasible", inf
        elif objective == "least_memory":
            option.bound = float(floors(ctx, table).min())
        else:
            lowest = float(family_bounds(ctx, scenario.search, table).min())
            option.bound = max(option.bound, factor * lowest)
            option.status = "infeasible" if lowest == inf else option.status
    option.level += 1


def _chosen(
    scenario: Scenario, known: Sequence[_Option], best: _Option | None, deadline: float | None
) -> Chosen:
    solved = tuple(option.solved for option in known if option.solved is not None)
    objective, unit = scenario.search.objective, UNITS[scenario.search.objective]
    least, most = scenario.training.batch_range
    scale = 1.0
    if least != most and objective in ("time", "accelerator_seconds"):
        scale = PER_TOKENS / (float(most) * scenario.training.sequence_length)
        unit = unit.replace("a step", "a million tokens")
    fewest = objective == "fewest_for_deadline"

    def shown(option: _Option, value: float) -> float | None:
        return None if value == inf else scale * value

    value = bound = gap = None
    if best is not None:
        best.status = "chosen"
        floor = min((o.bound for o in known if o.status not in _NO_ANSWER), default=inf)
        value, bound = scale * best.value, scale * min(best.value, floor)
        if fewest:
            open_ = [o for o in known if o.status == "unknown"]
            fewer = min((o.scenario.num_accelerators for o in open_), default=inf)
            value = float(best.scenario.num_accelerators)
            bound = min(value, fewer)
        gap = (value - bound) / value
    return Chosen(
        best=None if best is None else best.solved,
        all=solved,
        choice=Choice(
            objective=objective,
            unit=unit,
            value=value,
            bound=bound,
            gap_fraction=gap,
            asked=asked_of(scenario),
            deadline_seconds=deadline,
            options=tuple(
                Option(
                    num_accelerators=o.scenario.num_accelerators,
                    precision=o.scenario.training.precision,
                    status=o.status,
                    value=shown(o, o.value),
                    bound=shown(o, o.bound),
                    step_seconds=None if o.solved is None else o.solved.step_seconds,
                    layout=None if o.solved is None else o.solved.layout,
                    global_batch_size=None if o.solved is None else _batch(o.solved.layout),
                )
                for o in known
            ),
        ),
    )


def _batch(layout: Layout | None) -> int | None:
    """Sequences of the batch that a layout cuts."""
    return None if layout is None else sequences(layout)


def choice_of_batch(scenario: Scenario, best: Plan) -> Choice:
    """What is told of a batch that was chosen from a band, where nothing else was."""
    scale = 1.0
    batch = _batch(best.layout)
    if batch is not None:
        scale = PER_TOKENS / (float(batch) * scenario.training.sequence_length)
    least, bound = best.objective_seconds, best.bound_seconds
    return Choice(
        objective="time",
        unit=UNITS["time"].replace("a step", "a million tokens"),
        value=None if least is None else scale * least,
        bound=None if least is None or bound is None else scale * bound,
        gap_fraction=best.gap_fraction,
        asked=asked_of(scenario),
        options=(),
    )
