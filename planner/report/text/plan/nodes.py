"""The nodes of a plan: which are used, which are spare, and what groups cross before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.planning.plan import GroupCrossings, NodesReport, Plan
from planner.report.text.numbers import plural
from planner.report.text.pieces import (
    FAINT,
    GOOD,
    STRONG,
    Row,
    facts,
    note,
    printable,
    section,
    table,
)

MOST_NAMES = 8
"""How many nodes are named; plan.json has all."""


def nodes(plan: Plan) -> RenderableType | None:
    """The nodes of a plan for an inventory."""
    report = plan.nodes
    if report is None:
        return None
    used = len({name for name, _ in report.ranks})
    domains = ", ".join(
        plural(number, f"{printable(tier)} domain") for tier, number in report.domains.items()
    )
    return section(
        "Nodes",
        facts(
            [
                ("used", Text(f"{used:,} of {used + len(report.spares):,} usable: {domains}")),
                ("spare", node_names(report.spares)),
                ("not usable", _not_usable(report)),
            ]
        ),
        _crossings(report),
    )


def node_names(names: Sequence[str]) -> Text | None:
    """The first few names, and how many more there are."""
    if not names:
        return None
    text = ", ".join(printable(name) for name in names[:MOST_NAMES])
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return Text(f"{text}{more}")


def _not_usable(report: NodesReport) -> Text | None:
    if not report.left_out:
        return None
    counts = Counter(report.left_out.values())
    return Text(", ".join(f"{count:,} {printable(why)}" for why, count in counts.items()), FAINT)


def _crossings(report: NodesReport) -> RenderableType | None:
    tiers: list[str] = []
    if report.crossings:
        tiers = list(next(iter(report.crossings.values())).before)
    if not tiers:
        return None
    rows: list[Row] = [
        (Text(name, STRONG), f"{of.groups:,}", *(_cell(of, tier) for tier in tiers))
        for name, of in report.crossings.items()
    ]
    columns = [("group", "l"), ("number", "r"), *((f"cross {printable(t)}", "r") for t in tiers)]
    return Group(
        table(columns, rows),
        note(
            "How many groups have members in several domains of a tier: with the framework's own "
            "rank order on nodes by name → as planned."
        ),
    )


def _cell(of: GroupCrossings, tier: str) -> Text:
    before, after = of.before[tier], of.after[tier]
    return Text(f"{before:,} → {after:,}", GOOD if after < before else "")
