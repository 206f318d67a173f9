"""The page of one plan: the terminal's report, its pictures, and its inputs with their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.advise.what_if import WhatIf
from planner.inputs.units import format_quantity
from planner.planning.plan import Plan
from planner.report.page.frame import Block, Picture, render
from planner.report.page.markup import clean, markup_of
from planner.report.text.pieces import WARNINGS, Row, Section, plain_text, section, table
from planner.report.text.plan import plan_report
from planner.report.text.plan.groups import PLACES
from planner.report.text.plan.memory import MEMORY_OF
from planner.report.text.plan.time import TIME
from planner.report.text.what_if import SCALING, UPGRADES, what_if_sections

SECTION_OF_PICTURE = {
    "placement": PLACES, "time": TIME, "timeline": TIME, "memory": MEMORY_OF, "upgrades": UPGRADES,
    "scaling": SCALING,
}  # fmt: skip
"""Picture → how the title of the first section begins under which it is."""

WIDEST_LINE = 400
"""Columns in which no line of the head wraps."""


def plan_page(
    plan: Plan,
    pictures: Sequence[Picture] = (),
    notes: Sequence[str] = (),
    outlook: WhatIf | None = None,
) -> str:
    """The page's text. outlook: what other hardware would save; it follows the plan's own sections.

    Raises:
        PlannerError: Jinja2 is not installed.
    """
    head, *sections = plan_report(plan).renderables
    sections += what_if_sections(outlook) if outlook is not None else []
    heading, *lead = plain_text(head, WIDEST_LINE).splitlines()
    titles = [block.title if isinstance(block, Section) else "" for block in sections]
    under: dict[int, list[Picture]] = {}
    for picture in pictures:
        under.setdefault(_place(picture, titles), []).append(picture)
    blocks = [Block(markup_of(block), under.get(i, ())) for i, block in enumerate(sections)]
    if WARNINGS in titles:  # they come before all other sections
        first = next(i for i, title in enumerate(titles) if title)
        blocks.insert(first, blocks.pop(titles.index(WARNINGS)))
    blocks += [Block(markup_of(block)) for block in _inputs(plan)]
    made = f"Inputs of the plan: sha256 {plan.inputs_sha256}"
    return render(heading, [line for line in lead if line.strip()], blocks, [*notes, made])


def _place(picture: Picture, titles: Sequence[str]) -> int:
    """Number of the section under which a picture is; without that section, of the last one."""
    begins = SECTION_OF_PICTURE[picture.name]
    places = (i for i, title in enumerate(titles) if title.startswith(begins))
    return next(places, len(titles) - 1)


def _inputs(plan: Plan) -> Iterator[Section]:
    """A table per subject: every input's value, and of figures their status and source."""
    plain: dict[str, Any] = {}
    for name, value in plan.inputs.items():
        if isinstance(value, Mapping):
            yield _inputs_of(name, value)
        else:
            plain[name] = value
    yield _inputs_of("run", plain)


def _inputs_of(subject: str, values: Mapping[str, Any]) -> Section:
    rows: list[Row] = [
        (clean(key), value, status, clean(source))
        for key, value, status, source in _leaves(values, "")
    ]
    columns = [("input", "l"), ("value", "w"), ("status", "l"), ("source", "w")]
    return section(f"Inputs: {clean(subject)}", table(columns, rows))


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
        return ", ".join(_value(item) for item in value)
    number, _, unit = str(value).partition(" ")
    try:
        return format_quantity(float(number), unit, 6)
    except (ValueError, KeyError):
        return clean(str(value))
