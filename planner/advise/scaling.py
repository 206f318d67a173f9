"""The best plan over counts of accelerators with the batch fixed, and where more are wasted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.advise.changes import Replanner, changed_scenario
from planner.advise.upgrades import most_accelerators, twice
from planner.errors import InputError
from planner.planning.document import LayoutValue
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, ScenarioLike, load_scenario

WASTED_FRACTION = 0.5
"""Marginal efficiency below which added accelerators are called wasted."""

HALVINGS, DOUBLINGS, MOST_DOUBLINGS = 2, 2, 5
"""Counts tried: a quarter to four times the scenario's; of models without experts, which are
planned in a moment, up to 32 times, until more are wasted."""


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """The best plan on so many accelerators, the batch as it is.

    efficiency_fraction: throughput per accelerator over that of the smallest count that fits;
    marginal_fraction: throughput that each accelerator beyond the count before adds, over what each
    of those before achieves.
    """

    num_accelerators: int
    step_seconds: float | None
    tokens_per_second: float | None
    mfu: float | None
    layout: LayoutValue | None
    efficiency_fraction: float | None
    marginal_fraction: float | None


@dataclass(frozen=True, slots=True)
class Scaling:
    """The best layouts over counts.

    Beyond `wasted_beyond` an added accelerator brings less than `threshold_fraction` of what those
    before it achieve; None where that is so at no count tried.
    """

    points: tuple[ScalePoint, ...]
    threshold_fraction: float
    wasted_beyond: int | None


def default_counts(scenario: Scenario) -> tuple[list[int], list[int]]:
    """Halves and doubles of the scenario's count that fill its topology evenly, rising.

    Those that are always tried, and those that follow until more accelerators are wasted.
    """
    now, most = scenario.num_accelerators, most_accelerators(scenario)
    halves = [now // 2**k for k in range(HALVINGS, 0, -1) if now % 2**k == 0]
    doubles = [now * 2**k for k in range(1, MOST_DOUBLINGS + 1) if now * 2**k <= most]
    first, later = doubles[:DOUBLINGS], doubles[DOUBLINGS:]
    fills = scenario.topology.fills
    tried = [n for n in (*halves, now, *first) if fills(n)]
    return tried, [] if scenario.model.moe is not None else [n for n in later if fills(n)]


def scaling_curve(
    scenario: ScenarioLike,
    base: Plan | None = None,
    counts: Sequence[int] | None = None,
    threshold_fraction: float = WASTED_FRACTION,
    replanner: Replanner | None = None,
) -> Scaling:
    """The proven best layout at each count.

    base: the scenario's own plan, if it is at hand. counts: by default halves and doubles.

    Raises:
        InputError: a count that the topology does not have, or a threshold out of range.
    """
    scenario = load_scenario(scenario)
    if not 0 < threshold_fraction < 1:
        raise InputError(
            f"{threshold_fraction} is out of range", key="threshold_fraction",
            value=threshold_fraction, allowed="a number > 0 and < 1",
        )  # fmt: skip
    replanner = replanner or Replanner()
    points: list[ScalePoint] = []
    tried, later = default_counts(scenario) if counts is None else (sorted(set(counts)), [])
    for number in (*tried, *later):
        if number in later and _wasted(points, threshold_fraction) is not None:
            break
        if number == scenario.num_accelerators and base is not None:
            best = base
        else:
            best = replanner.best(_on(scenario, number), f"{number:,} accelerators")
        points.append(_point(number, best, points))
    return Scaling(tuple(points), threshold_fraction, _wasted(points, threshold_fraction))


def _on(scenario: Scenario, number: int) -> Scenario:
    """The scenario on so many accelerators, with more domains where the topology has too few."""
    if scenario.inventory is None and number > scenario.topology.num_accelerators:
        factor, rest = divmod(number, scenario.num_accelerators)
        if not rest:
            return changed_scenario(scenario, twice(scenario, factor).set)
    return scenario.replace(num_accelerators=number)


def _point(number: int, best: Plan, before: Sequence[ScalePoint]) -> ScalePoint:
    step = best.objective_seconds
    if step is None:
        return ScalePoint(number, None, None, None, None, None, None)
    known = [point for point in before if point.step_seconds is not None]
    efficiency, marginal = 1.0, None
    if known:
        first, last = known[0], known[-1]
        assert first.step_seconds is not None and last.step_seconds is not None
        efficiency = first.num_accelerators * first.step_seconds / (number * step)
        added = (last.step_seconds / step - 1.0) * last.num_accelerators
        marginal = added / (number - last.num_accelerators)
    # the plan shown may be a tie, whose figures are those of a slightly longer step
    times = (best.step_seconds or step) / step
    return ScalePoint(
        num_accelerators=number,
        step_seconds=step,
        tokens_per_second=None if (rate := best.tokens_per_second) is None else times * rate,
        mfu=None if best.mfu is None else times * best.mfu,
        layout=best.layout,
        efficiency_fraction=efficiency,
        marginal_fraction=marginal,
    )


def _wasted(points: Sequence[ScalePoint], threshold: float) -> int | None:
    """The count after which added accelerators bring less than the threshold, or nothing fits."""
    known: ScalePoint | None = None
    for point in points:
        if known is not None and (
            point.step_seconds is None
            or (point.marginal_fraction is not None and point.marginal_fraction < threshold)
        ):
            return known.num_accelerators
        known = point if point.step_seconds is not None else known
    return None
