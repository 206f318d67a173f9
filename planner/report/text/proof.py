"""What was proven of a plan, what was left out, and why there may be none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.inputs.text import counted_runs
from planner.planning.plan import DefaultSplit, Plan, SearchReport
from planner.report.text import choice
from planner.report.text.layouts import layout_in_words
from planner.report.text.memory import excess, fullest
from planner.report.text.numbers import gigabytes, percent, plural, seconds
from planner.report.text.pieces import (
    BAD,
    FAINT,
    FAIR,
    GOOD,
    Phrases,
    facts,
    printable,
    section,
    table,
)


def proof(plan: Plan, robust: bool) -> RenderableType | None:
    """What was proven, and the effort."""
    if plan.search is None or plan.objective_seconds is None:
        return None
    shown_seconds = plan.step_seconds_high if robust else plan.step_seconds
    if plan.status == "optimal":
        text = Text("optimal", f"bold {GOOD}")
        ends = "has an upper end" if robust else "is"
        text.append(
            f": {choice.compared(plan)}, however placed, {ends} below "
            f"{seconds(plan.objective_seconds, 4)}",
            "not bold default",
        )
    else:
        text = Text("not finished", f"bold {FAIR}")
        gap = "" if plan.gap_fraction is None else f", a gap of {percent(plan.gap_fraction, 2)}"
        bound = "" if plan.bound_seconds is None else f"; at least {seconds(plan.bound_seconds, 4)}"
        text.append(
            f": best so far {seconds(plan.objective_seconds, 4)}{bound}{gap}", "not bold default"
        )
    shown = None
    if shown_seconds is not None and shown_seconds > plan.objective_seconds * (1 + 1e-9):
        over = shown_seconds / plan.objective_seconds - 1
        shown = (
            f"shown is a tie, {percent(over, 2)} above it, for its rank order or its lesser "
            "traffic on slow tiers"
        )
    search = plan.search
    split = None
    if plan.default_split is not None:
        split = _split_gain(plan.default_split, plan.step_seconds)
    counts = (
        f"{plural(search.shapes, 'layout')} considered",
        f"{search.opened:,} opened",
        f"{plural(search.placements, 'placement')} costed",
        f"{seconds(search.seconds)} ({seconds(search.cpu_seconds)} of CPU)",
    )
    return facts([("Proof ", text), ("", shown), ("", split), ("", Phrases(counts, FAINT))])


def _split_gain(default: DefaultSplit, step_seconds: float | None) -> str:
    """What the split of the layers gains over the default one."""
    usual = f"the default split ({counted_runs(default.stage_layers)})"
    if not default.fits:
        return f"{usual} of this layout does not fit in memory"
    gain = (default.step_seconds or 0.0) / (step_seconds or 1.0) - 1.0
    return f"{usual} of this layout takes {percent(gain, 2)} longer"


def excluded(search: SearchReport | None) -> RenderableType | None:
    """How many layouts each rule left out."""
    if search is None or not search.excluded:
        return None
    rows = [
        (f"{count:,}", rule, Text(search.rule_texts.get(rule, ""), FAINT))
        for rule, count in sorted(search.excluded.items(), key=lambda item: -item[1])
        if count
    ]
    if not rows:
        return None
    return section(
        "Layouts left out, by the first rule each breaks",
        table([("", "r"), ("", "l"), ("", "w")], rows),
    )


def no_answer(plan: Plan) -> list[RenderableType | None]:
    """Why there is no plan: what misses least, the reasons, what would help."""
    if plan.status == "unknown":
        first = Text("Nothing found within the time limit; that says nothing about what exists.")
        first.stylize(f"bold {FAIR}")
        return [first, excluded(plan.search)]
    if choice.is_late(plan):
        return [Text("No count keeps the deadline.", f"bold {BAD}"), choice.chosen(plan)]
    return [
        Text("No layout fits.", f"bold {BAD}"),
        _nearest_miss(plan.nearest_miss),
        _reasons(plan.reasons),
        _relaxations(plan.relaxations),
        excluded(plan.search),
    ]


def _nearest_miss(miss: Mapping[str, Any] | None) -> RenderableType | None:
    if miss is None:
        return Text("No layout keeps the rules and the restrictions of `search:`.")
    degrees, pieces = layout_in_words(miss["layout"])
    how = excess(miss["over_bytes"])
    needs = f"{how} on {fullest(miss)}, where {miss['term']} takes most"
    return facts([("Nearest", degrees), ("", Phrases(pieces)), ("Misses by", needs)])


def _relaxations(relaxations: Sequence[Mapping[str, Any]]) -> RenderableType | None:
    if not relaxations:
        return None
    rows = [
        (
            " ".join(f"--set {key}={_yaml(value)}" for key, value in item["change"].items()),
            seconds(item["step_seconds"], 4) if "step_seconds" in item else "",
            f"{plural(item['layouts_that_fit'], 'layout')}, "
            f"the least with {gigabytes(item['peak_bytes'])} GB",
        )
        for item in relaxations
    ]
    columns = [("", "w"), ("best step", "r"), ("what fits", "w")]
    return section("What would make it fit, cheapest first", table(columns, rows))


def _reasons(reasons: Sequence[Mapping[str, Any]]) -> RenderableType | None:
    if not reasons:
        return None
    rows = [(reason["id"], printable(reason["text"])) for reason in reasons]
    title = "Why: all of this together; without any one of it a layout is left"
    return section(title, table([("", "l"), ("", "w")], rows))


def _yaml(value: object) -> str:
    plain = value is None or isinstance(value, bool)
    return json.dumps(value) if plain else printable(value)
