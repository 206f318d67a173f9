"""The communicating groups of a plan: where each lives, what it moves, what limits it."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.text import Text

from planner.planning.plan import GroupReport, Plan
from planner.problem.topology import Topology
from planner.report.text.layouts import order_in_words
from planner.report.text.numbers import (
    ABSENT,
    compact,
    gigabytes,
    milliseconds,
    or_absent,
    percent,
    signed_seconds,
)
from planner.report.text.pieces import FAINT, FAIR, STRONG, Row, facts, note, section, table

PLACES = "Where each group lives"

MEANINGS = {
    "tp": "tensor",
    "cp": "context",
    "etp": "expert tensor",
    "ep": "expert",
    "shard": "data, sharded",
    "edp": "expert data",
    "replicate": "data, replicated",
    "pp": "pipeline",
}


def _communicating(plan: Plan) -> dict[str, GroupReport]:
    return {name: group for name, group in plan.groups.items() if group.members > 1}


# ---------------------------------------------------------------- where groups live


def places(plan: Plan, topology: Topology) -> RenderableType | None:
    """Members of each group by tier, how full the tiers are, and the rank order."""
    if not plan.groups:
        return None
    tiers = topology.tiers
    columns = [("group", "l"), ("", "l"), ("members", "r"), *((t.name, "r") for t in tiers)]
    rows: list[Row] = [
        (
            Text(name, STRONG),
            Text(MEANINGS.get(name, ""), FAINT),
            f"{group.members:,}",
            *(_members(group.split.get(tier.name, 1)) for tier in tiers),
        )
        for name, group in _communicating(plan).items()
    ]
    if plan.fill is not None:
        used = (f"{plan.fill.get(t.name, 1):,} of {t.width:,}" for t in tiers)
        rows.append((note("used"), "", "", *(note(text) for text in used)))
    return section(
        f"{PLACES} (members per tier, inner to outer)", table(columns, rows), _rank_order(plan)
    )


def _members(number: float) -> str:
    if number == 1:
        return "·"
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"


def _rank_order(plan: Plan) -> RenderableType | None:
    if plan.rank_order is None:
        return None
    origin: RenderableType
    faster = None
    if plan.rank_order_name is not None:
        origin = Text(f"the framework's own order {plan.rank_order_name}")
        gain = plan.custom_order_gain_fraction
        if gain is not None and gain > 0:
            faster = f"a custom order would be {percent(gain, 2)} faster"
    else:
        origin = Text("a custom order: ranks must be placed from a table", FAIR)
    order = f"{order_in_words(plan.rank_order)} (innermost first)"
    return facts([("ranks", order), ("", origin), ("", faster)])


# ---------------------------------------------------------------- what groups move


def traffic(plan: Plan) -> RenderableType | None:
    """A row per group and tier it crosses: bytes, intensities, ridge, times, wall."""
    rows = [
        row for name, group in _communicating(plan).items() for row in _traffic_rows(name, group)
    ]
    if not rows:
        return None
    columns = [
        ("group", "l"), ("tier", "l"), ("GB", "r"), ("FLOP/B", "r"), ("exposed", "r"),
        ("ridge", "r"), ("link ms", "r"), ("exposed ms", "r"), ("wall", "l"),
    ]  # fmt: skip
    return section(
        "Groups, a step on one accelerator",
        table(columns, rows),
        note(
            "FLOP/B: FLOPs per byte moved, then per byte that computation does not hide. Ridge: "
            "dense peak over the tier's bandwidth; below it the link limits compute."
        ),
        _by_intensity(plan),
    )


def _traffic_rows(name: str, group: GroupReport) -> list[Row]:
    crossed: dict[str, Mapping[str, float]] = {
        tier: cost for tier, cost in group.tiers.items() if cost["bytes"] > 0
    }
    rows: list[Row] = []
    for tier, cost in (crossed or {ABSENT: {}}).items():
        first = not rows  # what holds for all tiers of the group is in its first row
        rows.append(
            (
                Text(name if first else "", STRONG),
                tier,
                or_absent(gigabytes, cost.get("bytes")),
                or_absent(compact, group.intensity) if first else "",
                or_absent(compact, group.exposed_intensity) if first else "",
                or_absent(compact, cost.get("ridge")),
                or_absent(milliseconds, cost.get("busy_seconds")),
                milliseconds(group.exposed_seconds) if first else "",
                group.wall if first else "",
            )
        )
    return rows


def _by_intensity(plan: Plan) -> RenderableType | None:
    known = {n: g.intensity for n, g in _communicating(plan).items() if g.intensity is not None}
    if len(known) < 2:
        return None
    return note("Lowest intensity first: " + " < ".join(sorted(known, key=lambda n: known[n])))


def swaps(plan: Plan) -> RenderableType | None:
    """What swapping the tiers of two groups' atoms adds to the step."""
    if not plan.swaps or not plan.step_seconds:
        return None
    rows: list[Row] = []
    # the dearest first, pairs that cannot be swapped last
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
