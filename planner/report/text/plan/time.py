"""Where the time of a step goes, and by which terms the runners-up differ."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType

from planner.planning.plan import GroupLoss, Plan
from planner.report.text.layouts import layout_labels
from planner.report.text.numbers import seconds, signed_percent, signed_seconds
from planner.report.text.pieces import Phrases, section, table
from planner.report.text.terms import (
    COMMUNICATION,
    by_size,
    short_term,
    time_table,
    with_small_ones_summed,
)

TIME = "Time of a step (a rank of the slowest stage)"

SHOWN_TERMS = 3
"""How many of a runner-up's terms are named."""

GROUPS_OF_TERMS = {"ep": ("ep", "etp"), "dp": ("shard", "edp", "replicate")}
"""Groups whose exposed seconds are in a term of another name."""


def time(plan: Plan) -> RenderableType | None:
    """The terms of a step, each with its share and a bar."""
    if not plan.time or not plan.step_seconds:
        return None
    terms = with_small_ones_summed(plan.time, plan.step_seconds)
    return section(TIME, time_table(terms, plan.step_seconds, _style))


def _style(term: str) -> str:
    if term.startswith("compute"):
        return "green"
    return "cyan" if term in COMMUNICATION else "yellow"


def runners_up(plan: Plan) -> RenderableType | None:
    """The next-best layouts, and the terms in which they differ most from the plan."""
    if not plan.runners_up or not plan.step_seconds:
        return None
    # labels that would be equal to the plan's own say in what they differ
    own = [] if plan.layout is None else [plan.layout]
    labels = layout_labels([*own, *(runner.layout for runner in plan.runners_up)])
    rows = [
        (
            label,
            seconds(runner.step_seconds, 4),
            signed_percent(runner.loss_fraction),
            differing_terms(runner.terms, runner.groups),
        )
        for label, runner in zip(labels[len(own) :], plan.runners_up, strict=True)
    ]
    columns = [("layout", "w"), ("step", "r"), ("vs plan", "r"), ("main differences", "w")]
    return section("Runners-up, each in its best placement", table(columns, rows))


def differing_terms(
    terms: Mapping[str, float], groups: Mapping[str, GroupLoss] | None = None
) -> Phrases:
    """The terms that differ most, traffic with its tier: 'bubble +0.9 s, tp on leaf +0.4 s'."""
    # what is small next to the largest difference does not explain anything
    largest = by_size(terms)[:SHOWN_TERMS]
    most = abs(largest[0][1]) if largest else 0.0
    return Phrases(
        f"{short_term(term)}{_on_tier(term, groups or {})} {signed_seconds(value, 2)}"
        for term, value in largest
        if abs(value) > 0.05 * most
    )


def _on_tier(term: str, groups: Mapping[str, GroupLoss]) -> str:
    """' on leaf': the tier of the group, among those of the term, whose seconds differ most."""
    names = [n for n in GROUPS_OF_TERMS.get(term, (term,)) if n in groups]
    name = max(names, key=lambda n: abs(groups[n].extra_seconds), default=None)
    tier = None if name is None else groups[name].tier
    return "" if tier is None else f" on {tier}"
