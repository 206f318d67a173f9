"""Why there is no plan: what nearly fits, the reasons, and what would make it fit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.layouts.layout import Layout
from planner.planning.plan import Plan
from planner.report.text.layouts import degrees_in_words, details_in_words
from planner.report.text.numbers import gigabytes, plural, seconds
from planner.report.text.pieces import BAD, FAIR, Phrases, facts, printable, section, table
from planner.report.text.plan.choice import choice, is_late
from planner.report.text.plan.memory import excess, fullest_stage_name
from planner.report.text.plan.proof import layouts_left_out


def headline(plan: Plan) -> Text:
    """The answer in a sentence."""
    if plan.status == "unknown":
        return Text(
            "No layout was found within the time limit; one that fits may still exist.",
            f"bold {FAIR}",
        )
    if is_late(plan):
        return Text("No number of accelerators meets the deadline.", f"bold {BAD}")
    return Text("No layout fits.", f"bold {BAD}")


def reasons(plan: Plan) -> list[RenderableType | None]:
    """The headline, and what is known of why."""
    if plan.status == "unknown":
        return [headline(plan), layouts_left_out(plan)]
    if is_late(plan):
        return [headline(plan), choice(plan)]
    return [
        headline(plan),
        _nearest_miss(plan.nearest_miss),
        _reasons(plan.reasons),
        _relaxations(plan.relaxations),
        layouts_left_out(plan),
    ]


def _nearest_miss(miss: Mapping[str, Any] | None) -> RenderableType:
    if miss is None:
        return Text("No layout satisfies the rules and the restrictions of `search:`.")
    where, layout = fullest_stage_name(miss["stage"]), Layout.from_document(miss["layout"])
    return facts(
        [
            ("Nearest", degrees_in_words(layout)),
            ("", Phrases(details_in_words(layout))),
            ("Memory", f"{excess(miss['over_bytes'])} on {where}; largest term: {miss['term']}"),
        ]
    )


def _reasons(reasons: Sequence[Mapping[str, Any]]) -> RenderableType | None:
    if not reasons:
        return None
    rows = [(reason["id"], printable(reason["text"])) for reason in reasons]
    title = "Why: together these rule out every layout; without any one of them, some remain"
    return section(title, table([("", "l"), ("", "w")], rows))


def _relaxations(relaxations: Sequence[Mapping[str, Any]]) -> RenderableType | None:
    if not relaxations:
        return None
    rows = [
        (
            " ".join(f"--set {key}={_yaml(value)}" for key, value in item["change"].items()),
            seconds(item["step_seconds"], 4) if "step_seconds" in item else "",
            f"{plural(item['layouts_that_fit'], 'layout')}, "
            f"lowest peak {gigabytes(item['peak_bytes'])} GB",
        )
        for item in relaxations
    ]
    columns = [("", "w"), ("best step", "r"), ("what fits", "w")]
    return section("What would make it fit, cheapest first", table(columns, rows))


def _yaml(value: object) -> str:
    # YAML's null, true and false are written as in JSON
    is_word = value is None or isinstance(value, bool)
    return json.dumps(value) if is_word else printable(value)
