"""The page of one plan: the terminal's report, its pictures, and its inputs with their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from planner.advise.what_if import WhatIf
from planner.inputs.units import format_quantity
from planner.planning.plan import Plan
from planner.report.page.markup import clean, markup_of
from planner.report.page.render import Part, Picture, render
from planner.report.text.pieces import Section, plain_text, section, table
from planner.report.text.plan import plan_report
from planner.report.text.what_if import SCALING, UPGRADES, what_if_sections

UNDER = {
    "placement": "Where each group lives", "time": "Time of a step", "timeline": "Time of a step",
    "memory": "Memory of", "upgrades": UPGRADES, "scaling": SCALING,
}  # fmt: skip
"""Picture → how the title of the report's first section that it stands under begins."""

SOON = "Warnings"
"""Section that comes before all others."""


def plan_page(
    plan: Plan,
    pictures: Sequence[Picture] = (),
    notes: Sequence[str] = (),
    outlook: WhatIf | None = None,
) -> str:
    """The page's text; outlook: what other machines would buy, which follows what the plan is.

    Raises:
        PlannerError: Jinja2 is not installed.
    """
    whole = plan_report(plan)
    assert isinstance(whole, Group)
    head, *found = whole.renderables
    found += what_if_sections(outlook) if outlook is not None else []
    heading, *lead = plain_text(head, 400).splitlines()
    titles = [part.title if isinstance(part, Section) else "" for part in found]
    under: dict[int, list[Picture]] = {}
    for picture in pictures:
        begins = UNDER[picture.name]
        place = next(
            (i for i, name in enumerate(titles) if name.startswith(begins)), len(found) - 1
        )
        under.setdefault(place, []).append(picture)
    parts = [Part(markup_of(part), under.get(i, ())) for i, part in enumerate(found)]
    first = next((i for i, name in enumerate(titles) if name), 0)
    if SOON in titles:
        parts.insert(first, parts.pop(titles.index(SOON)))
    parts += [Part(markup_of(part)) for part in _inputs(plan)]
    made = f"Inputs of the plan: sha256 {plan.inputs_sha256}"
    return render(heading, [line for line in lead if line.strip()], parts, [*notes, made])


def _inputs(plan: Plan) -> Iterator[Section]:
    """A table per subject: every input's value, and of figures their status and source."""
    plain: dict[str, Any] = {}
    for name, value in plan.inputs.items():
        if isinstance(value, Mapping):
            yield _subject(name, value)
        else:
            plain[name] = value
    yield _subject("run", plain)


def _subject(name: str, values: Mapping[str, Any]) -> Section:
    rows: list[Sequence[RenderableType | str]] = [
        (clean(key), value, status, clean(source))
        for key, value, status, source in _leaves(values, "")
    ]
    columns = [("input", "l"), ("value", "w"), ("status", "l"), ("source", "w")]
    return section(f"Inputs: {clean(name)}", table(columns, rows))


def _leaves(value: Any, key: str) -> Iterator[tuple[str, str, str, str]]:
    """Dotted key, value, status and source of every input that is given."""
    if isinstance(value, Mapping):
        if {"value", "source", "status"} <= value.keys():
            yield key, _value(value["value"]), str(value["status"]), str(value["source"])
            return
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple) and any(isinstance(v, Mapping | list) for v in value):
        for i, inner in enumerate(value):
            yield from _leaves(inner, f"{key}.{i}" if key else str(i))
    elif value is not None:
        yield key, _value(value), "", ""


def _value(value: Any) -> str:
    """A value as people write it: '3.35 TB/s' for '3350000000000.0 B/s'."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(_value(part) for part in value)
    number, _, unit = str(value).partition(" ")
    try:
        return format_quantity(float(number), unit, 6)
    except (ValueError, KeyError):
        return clean(str(value))
