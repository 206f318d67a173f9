"""The inter-node bandwidth at which FSDP is as fast as the best layout, by planning at each.

FSDP: ZeRO-3 with tp = pp = cp = 1 (experts and micro-batches stay free). At one bandwidth both
rivals are planned; that FSDP does not match is also proven by any one layout that beats it, so
earlier winners are costed first and the search is run where none of them does. FSDP's step falls
as links get faster, and the best layout's falls too, so that matching is not monotone by theorem;
both ends of the answer's interval are tried, and the interval is bisected between a bandwidth that
does not match and a greater one that does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from typing import Literal

from planner.advise.changes import Replanner, changed_scenario, step_of
from planner.advise.upgrades import network_bytes_per_second, network_keys
from planner.layouts.layout import Layout
from planner.planning.document import LayoutValue
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario

MATCH_FRACTION = 0.01
"""FSDP matches within this share of the best step."""

WIDTH_FRACTION = 0.05
"""Greatest relative width of the interval that is left."""

HIGHEST_FACTOR, LOWEST_FACTOR = 1024.0, 1.0 / 16.0
"""The highest and the lowest bandwidth that are tried, over today's."""

Verdict = Literal["at", "always", "never", "impossible"]


@dataclass(frozen=True, slots=True)
class Trial:
    """Two rivals at one bandwidth, `factor` times today's.

    best_seconds: of a rival that suffices to decide; where `proven`, of the best layout.
    """

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
    (at the lowest bandwidth tried already), never (not at the highest), impossible (`reason`).
    `lower` and `upper` differ by at most `width_fraction`; equal is within `match_fraction`.
    now: today's bandwidth. assumed: what the software does not have and was taken to have.
    """

    verdict: Verdict
    match_fraction: float
    width_fraction: float
    now: float | None
    lower: float | None
    upper: float | None
    fsdp_layout: LayoutValue | None
    trials: tuple[Trial, ...]
    assumed: str | None = None
    reason: str | None = None


def fsdp_break_even(
    scenario: Scenario, base: Plan | None = None, replanner: Replanner | None = None
) -> BreakEven:
    """From which bandwidth of the network tiers on FSDP matches the best layout.

    base: the scenario's own plan, if it is at hand.
    """
    replanner = replanner or Replanner()
    now = network_bytes_per_second(scenario)
    if now is None:
        return _impossible(None, None, "the topology has no network tier")
    fsdp, assumed = fsdp_scenario(scenario)
    today = replanner.best(fsdp, "FSDP at today's bandwidth")
    if today.layout is None:
        return _impossible(now, assumed, "no layout with ZeRO-3 alone is legal and fits")
    rivals = _Rivals(scenario, fsdp, replanner, now)
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
        fsdp_layout=rivals.fsdp_layout or today.layout,
        trials=tuple(sorted(rivals.trials, key=lambda trial: trial.factor)),
        assumed=assumed,
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


def _impossible(now: float | None, assumed: str | None, reason: str) -> BreakEven:
    return BreakEven(
        verdict="impossible",
        match_fraction=MATCH_FRACTION,
        width_fraction=WIDTH_FRACTION,
        now=now,
        lower=None,
        upper=None,
        fsdp_layout=None,
        trials=(),
        assumed=assumed,
        reason=reason,
    )


@dataclass
class _Rivals:
    """A scenario, the same with FSDP only, and the layouts that have won so far, latest first."""

    scenario: Scenario
    fsdp: Scenario
    replanner: Replanner
    now: float  # bytes per second
    winners: list[Layout] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    fsdp_layout: Layout | None = None  # at the last bandwidth that matched

    def matches(self, factor: float) -> bool:
        """Whether FSDP is within MATCH_FRACTION of the best at `factor` times the bandwidth."""
        rate = factor * self.now
        faster = changed_scenario(self.fsdp, network_keys(self.fsdp, factor))
        fsdp = self.replanner.best(faster, f"FSDP at {rate / 1e9:.4g} GB/s")
        assert fsdp.objective_seconds is not None
        limit = fsdp.objective_seconds / (1.0 + MATCH_FRACTION)
        rival = changed_scenario(self.scenario, network_keys(self.scenario, factor))
        # a known layout that beats FSDP decides as well as the best one, and is costed at once
        for layout in self.winners:
            step = step_of(rival, layout)
            if step is not None and step < limit:
                self.trials.append(
                    Trial(factor, rate, fsdp.objective_seconds, step, False, False, layout)
                )
                return False
        best = self.replanner.best(rival, f"every layout at {rate / 1e9:.4g} GB/s")
        assert best.objective_seconds is not None and best.layout is not None
        self.winners.insert(0, best.layout)
        matches = not best.objective_seconds < limit
        self.trials.append(
            Trial(
                factor, rate, fsdp.objective_seconds, best.objective_seconds, True, matches,
                best.layout,
            )
        )  # fmt: skip
        if matches:
            self.fsdp_layout = fsdp.layout
        return matches


def _bracket(rivals: _Rivals) -> tuple[float | None, float | None, Verdict]:
    """A factor that does not match and one that does, next to each other by doublings."""
    if rivals.matches(1.0):
        upper = 1.0
        while upper > LOWEST_FACTOR:
            if not rivals.matches(upper / 2.0):
                return upper / 2.0, upper, "at"
            upper /= 2.0
        return None, upper, "always"
    if not rivals.matches(HIGHEST_FACTOR):
        return HIGHEST_FACTOR, None, "never"
    lower = 1.0
    while 2.0 * lower < HIGHEST_FACTOR and not rivals.matches(2.0 * lower):
        lower *= 2.0
    return lower, min(2.0 * lower, HIGHEST_FACTOR), "at"
