"""The nodes of a plan: which are used, which are spare, and what groups cross before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.planning.plan import GroupCrossings, NodesReport, Plan
from planner.report.text.numbers import plural
from planner.report.text.pieces import FAINT, GOOD, STRONG, facts, note, printable, section, table

SHOWN = 8
"""How many spare nodes are named; plan.json has all."""


def nodes(plan: Plan) -> RenderableType | None:
    """The nodes of a plan for an inventory."""
    found = plan.nodes
    if found is None:
        return None
    used = len({name for name, _ in found.ranks})
    domains = ", ".join(plural(n, f"{printable(tier)} domain") for tier, n in found.domains.items())
    return section(
        "Nodes",
        facts(
            [
                ("used", Text(f"{used:,} of {used + len(found.spares):,} usable: {domains}")),
                ("spare", named(found.spares)),
                ("not usable", _left_out(found)),
            ]
        ),
        _crossings(found),
    )


def named(names: Sequence[str]) -> Text | None:
    """The first few names, and how many more there are."""
    if not names:
        return None
    text = ", ".join(printable(name) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return Text(f"{text}{more}")


def _left_out(found: NodesReport) -> Text | None:
    if not found.left_out:
        return None
    counts = Counter(found.left_out.values())
    return Text(", ".join(f"{count:,} {printable(why)}" for why, count in counts.items()), FAINT)


def _crossings(found: NodesReport) -> RenderableType | None:
    tiers: list[str] = []
    if found.crossings:
        tiers = list(next(iter(found.crossings.values())).before)
    if not tiers:
        return None
    rows: list[Sequence[RenderableType | str]] = [
        (Text(name, STRONG), f"{of.groups:,}", *(_cell(of, tier) for tier in tiers))
        for name, of in found.crossings.items()
    ]
    columns = [("group", "l"), ("number", "r"), *((f"cross {printable(t)}", "r") for t in tiers)]
    return Group(
        table(columns, rows),
        note(
            "How many groups have members in several domains of a tier: with ranks in the "
            "software's own order on nodes by name → as planned."
        ),
    )


def _cell(of: GroupCrossings, tier: str) -> Text:
    before, after = of.before[tier], of.after[tier]
    return Text(f"{before:,} → {after:,}", GOOD if after < before else "")
