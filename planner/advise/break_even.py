"""The inter-node bandwidth at which FSDP is as fast as the best layout, by planning at each.

FSDP: ZeRO-3 alone, tp = pp = cp = 1 (experts and micro-batches stay free). At one bandwidth both
rivals are planned; that FSDP does not match is also proven by any one layout that beats it, so
earlier winners are costed first and the search is run where none of them does. FSDP's step falls
as links get faster, and the best layout's falls too, so that matching is not monotone by theorem;
both ends of the answer's interval are tried, and the interval is bisected between a bandwidth that
does not match and a greater one that does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from typing import Any, Literal

from planner.advise.baseline import Planner, changed, step_of
from planner.advise.upgrades import network_bytes_per_second, network_keys
from planner.layouts.layout import Layout
from planner.planning.document import LayoutValue
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario

MATCH_FRACTION = 0.01
"""FSDP matches within this share of the best step."""

WIDTH_FRACTION = 0.05
"""Greatest relative width of the interval that is left."""

MOST_TIMES, LEAST_TIMES = 1024.0, 1.0 / 16.0
"""Bandwidths tried at most and at least, over today's."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Two rivals at one bandwidth; `best_seconds` is of a rival that suffices to decide, and the
    proven least where `proven`."""

    factor: float
    bytes_per_second: float
    fsdp_seconds: float
    best_seconds: float
    proven: bool
    matches: bool
    layout: LayoutValue | None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The inter-node bandwidth from which on FSDP is as fast as the best layout.

    verdict: at (between `lower` and `upper`, bytes per second and accelerator, both tried), always
    (at the least bandwidth tried already), never (not at the greatest), impossible (`reason`).
    `lower` and `upper` differ by at most `width_fraction`; equal is within `match_fraction`.
    """

    verdict: Literal["at", "always", "never", "impossible"]
    match_fraction: float
    width_fraction: float
    now: float | None
    lower: float | None
    upper: float | None
    fsdp_layout: LayoutValue | None
    trials: tuple[Trial, ...]
    assumed: str | None = None
    reason: str | None = None


@dataclass
class _Rivals:
    """A scenario, its FSDP twin, and the layouts that have won so far."""

    scenario: Scenario
    fsdp: Scenario
    planner: Planner
    now: float
    winners: list[Layout] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    fsdp_layout: Layout | None = None

    def matches(self, factor: float) -> bool:
        """Whether FSDP is within MATCH_FRACTION of the best at so many times the bandwidth."""
        rate = factor * self.now
        slow = self.planner.best(
            changed(self.fsdp, network_keys(self.fsdp, factor)), f"FSDP at {rate / 1e9:.4g} GB/s"
        )
        assert slow.objective_seconds is not None
        own = slow.objective_seconds
        rival = changed(self.scenario, network_keys(self.scenario, factor))
        limit = own / (1.0 + MATCH_FRACTION)
        for layout in self.winners:
            step = step_of(rival, layout)
            if step is not None and step < limit:
                self.trials.append(Trial(factor, rate, own, step, False, False, layout))
                return False
        best = self.planner.best(rival, f"every layout at {rate / 1e9:.4g} GB/s")
        assert best.objective_seconds is not None and best.layout is not None
        self.winners.insert(0, best.layout)
        matches = not best.objective_seconds < limit
        self.trials.append(
            Trial(factor, rate, own, best.objective_seconds, True, matches, best.layout)
        )
        if matches:
            self.fsdp_layout = slow.layout
        return matches


def fsdp_break_even(
    scenario: Scenario, base: Plan | None = None, planner: Planner | None = None
) -> BreakEven:
    """From which bandwidth of the network tiers on FSDP matches the best layout.

    base: the scenario's own plan, if it is at hand.
    """
    planner = planner or Planner()
    now = network_bytes_per_second(scenario)
    if now is None:
        return _none(reason="the topology has no network tier")
    fsdp, assumed = fsdp_scenario(scenario)
    first = planner.best(fsdp, "FSDP at today's bandwidth")
    if first.layout is None:
        reason = "no layout with ZeRO-3 alone is legal and fits"
        return _none(now, assumed, reason)
    rivals = _Rivals(scenario, fsdp, planner, now)
    if base is not None and base.layout is not None:
        rivals.winners.append(base.layout)
    lower, upper, verdict = _bracket(rivals)
    while lower is not None and upper is not None and upper / lower > 1.0 + WIDTH_FRACTION:
        middle = sqrt(lower * upper)
        if rivals.matches(middle):
            upper = middle
        else:
            lower = middle
    return BreakEven(
        verdict=verdict,
        match_fraction=MATCH_FRACTION,
        width_fraction=WIDTH_FRACTION,
        now=now,
        lower=None if lower is None else lower * now,
        upper=None if upper is None else upper * now,
        fsdp_layout=rivals.fsdp_layout or first.layout,
        trials=tuple(sorted(rivals.trials, key=lambda trial: trial.factor)),
        assumed=assumed,
    )


def _bracket(rivals: _Rivals) -> tuple[float | None, float | None, Any]:
    """Factors that do not match and that do, next to each other by doublings."""
    if rivals.matches(1.0):
        upper = 1.0
        while upper > LEAST_TIMES:
            if not rivals.matches(upper / 2.0):
                return upper / 2.0, upper, "at"
            upper /= 2.0
        return None, upper, "always"
    if not rivals.matches(MOST_TIMES):
        return MOST_TIMES, None, "never"
    lower = 1.0
    while 2.0 * lower < MOST_TIMES and not rivals.matches(2.0 * lower):
        lower *= 2.0
    return lower, min(2.0 * lower, MOST_TIMES), "at"


def _none(
    now: float | None = None, assumed: str | None = None, reason: str | None = None
) -> BreakEven:
    return BreakEven(
        "impossible", MATCH_FRACTION, WIDTH_FRACTION, now, None, None, None, (), assumed, reason
    )


def fsdp_scenario(scenario: Scenario) -> tuple[Scenario, str | None]:
    """The scenario restricted to ZeRO-3 alone; what was assumed, where its software has none."""
    software, assumed = scenario.software, None
    if 3 not in software.zero_stages:
        assumed = f"as if {software.name} sharded parameters too (ZeRO-3), which it does not"
        software = software.replace(zero_stages=(*software.zero_stages, 3))
    search = scenario.search.replace(
        tp=(1,), cp=(1,), pp=(1,), vp=None, zero_stage=(3,), sp=None, etp=None, dp=None,
        dp_shard=None, dp_replicate=None, schedule=None, cp_kind=None, cp_a2a=None,
        num_microbatches=None,
    )  # fmt: skip
    return scenario.replace(software=software, search=search), assumed
