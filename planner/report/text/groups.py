"""The communicating groups of a plan: where each lives, what it moves, what limits it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from planner.planning.plan import GroupReport, Plan
from planner.problem.scenario import Scenario
from planner.report.text.layouts import order_in_words
from planner.report.text.numbers import (
    ABSENT,
    compact,
    gigabytes,
    milliseconds,
    percent,
    signed_seconds,
)
from planner.report.text.pieces import FAINT, FAIR, STRONG, facts, note, section, table

MEANING = {
    "tp": "tensor",
    "cp": "context",
    "etp": "expert tensor",
    "ep": "expert",
    "shard": "data, sharded",
    "edp": "data, of experts",
    "replicate": "data, replicated",
    "pp": "pipeline",
}


def _present(plan: Plan) -> dict[str, GroupReport]:
    return {name: group for name, group in plan.groups.items() if group.members > 1}


def places(plan: Plan, scenario: Scenario) -> RenderableType | None:
    """Members of each group by tier, how full the tiers are, and the rank order."""
    if not plan.groups:
        return None
    tiers = scenario.topology.tiers
    columns = [("group", "l"), ("", "l"), ("members", "r"), *((t.name, "r") for t in tiers)]
    rows: list[Sequence[RenderableType | str]] = [
        (
            Text(name, STRONG),
            Text(MEANING.get(name, ""), FAINT),
            f"{group.members:,}",
            *(_factor(group.split.get(tier.name, 1)) for tier in tiers),
        )
        for name, group in _present(plan).items()
    ]
    if plan.fill is not None:
        used = (f"{plan.fill.get(t.name, 1):,} of {t.width:,}" for t in tiers)
        rows.append((note("used"), "", "", *(note(text) for text in used)))
    return section(
        "Where each group lives (members per tier, inner to outer)",
        table(columns, rows),
        _order(plan),
    )


def _factor(members: float) -> str:
    if members == 1:
        return "·"
    return f"{members:,.0f}" if float(members).is_integer() else f"{members:,.2f}"


def _order(plan: Plan) -> RenderableType | None:
    if plan.rank_order is None:
        return None
    name: RenderableType
    if plan.rank_order_name is not None:
        name = f"the software's own order {plan.rank_order_name}"
    else:
        name = Text("a custom order: ranks must be placed from a table", FAIR)
    gain = plan.custom_order_gain_fraction
    more = None
    if plan.rank_order_name is not None and gain is not None and gain > 0:
        more = f"a custom order would gain {percent(gain, 2)}"
    return facts(
        [("ranks", f"{order_in_words(plan.rank_order)} (innermost first)"), ("", name), ("", more)]
    )


def traffic(plan: Plan) -> RenderableType | None:
    """A row per group and tier it crosses: bytes, intensities, ridge, times, wall."""
    rows: list[Sequence[RenderableType | str]] = []
    for name, group in _present(plan).items():
        crossed = {t: cost for t, cost in group.tiers.items() if cost["bytes"] > 0} or {ABSENT: {}}
        for position, (tier, cost) in enumerate(crossed.items()):
            first = position == 0
            rows.append(
                (
                    Text(name if first else "", STRONG),
                    tier,
                    gigabytes(cost["bytes"]) if cost else ABSENT,
                    _ratio(group.intensity) if first else "",
                    _ratio(group.exposed_intensity) if first else "",
                    compact(cost["ridge"]) if cost else ABSENT,
                    milliseconds(cost["busy_seconds"]) if cost else ABSENT,
                    milliseconds(group.exposed_seconds) if first else "",
                    group.wall if first else "",
                )
            )
    if not rows:
        return None
    columns = [
        ("group", "l"), ("tier", "l"), ("GB", "r"), ("FLOP/B", "r"), ("exposed", "r"),
        ("ridge", "r"), ("busy ms", "r"), ("exposed", "r"), ("wall", "l"),
    ]  # fmt: skip
    return section(
        "Groups, a step on one accelerator",
        table(columns, rows),
        note(
            "FLOP/B: work per byte moved, then per byte not hidden behind it. Ridge: dense peak "
            "over the tier's bandwidth; below it the link holds compute back."
        ),
        _by_intensity(plan),
    )


def _ratio(value: float | None) -> str:
    return ABSENT if value is None else compact(value)


def _by_intensity(plan: Plan) -> RenderableType | None:
    known = {n: g.intensity for n, g in _present(plan).items() if g.intensity is not None}
    if len(known) < 2:
        return None
    return note("Lowest intensity first: " + " < ".join(sorted(known, key=lambda n: known[n])))


def swaps(plan: Plan) -> RenderableType | None:
    """What exchanging the tiers of two groups' atoms adds to the step."""
    if not plan.swaps or not plan.step_seconds:
        return None
    rows: list[Sequence[RenderableType | str]] = []
    for swap in sorted(plan.swaps, key=lambda s: (s.seconds is None, -(s.seconds or 0.0))):
        pair = " ↔ ".join(swap.atoms)
        if swap.seconds is None:
            rows.append((pair, ABSENT, "", note("they share their tiers")))
        else:
            share = swap.seconds / plan.step_seconds
            rows.append((pair, signed_seconds(swap.seconds), percent(share), ""))
    return section(
        "Swapping the tiers of two groups adds",
        table([("", "l"), ("", "r"), ("", "r"), ("", "w")], rows),
    )
