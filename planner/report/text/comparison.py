"""Layouts next to each other: many evaluated ones in a table, two plans term by term."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from planner.errors import IllegalLayoutError
from planner.layouts.layout import Layout
from planner.planning.plan import Plan
from planner.problem.scenario import scenario_from_document
from planner.report.text.layouts import degrees_in_words, order_in_words
from planner.report.text.numbers import (
    ABSENT,
    column_unit,
    gigabytes,
    in_words,
    or_absent,
    percent,
    seconds,
    signed_percent,
)
from planner.report.text.pieces import (
    BAD,
    FAINT,
    GOOD,
    STRONG,
    VERDICT_STYLES,
    Row,
    facts,
    section,
    table,
)
from planner.report.text.plan.head import title
from planner.report.text.terms import term_words

# ---------------------------------------------------------------- evaluate --layouts


def evaluations_report(results: Sequence[Plan | IllegalLayoutError]) -> RenderableType:
    """A row per layout in the order given; the fastest that fits is marked."""
    fitting = [result for result in results if isinstance(result, Plan) and _fits(result)]
    # a layout that does not fit may be faster, but cannot run
    fastest = min(fitting, key=lambda plan: plan.step_seconds or 0.0, default=None)
    rows = [
        _evaluation(number, result, result is fastest) for number, result in enumerate(results, 1)
    ]
    columns = [
        ("row", "r"), ("layout", "w"), ("step", "r"), ("MFU", "r"), ("GB", "r"), ("memory", "w"),
    ]  # fmt: skip
    fits = f"{len(fitting)} of {len(results)} layouts fit"
    return Group(table(columns, rows), Text(""), Text(fits, FAINT))


def _fits(plan: Plan) -> bool:
    return plan.memory is not None and plan.memory.verdict != "no"


def _evaluation(number: int, result: Plan | IllegalLayoutError, fastest: bool) -> Row:
    if isinstance(result, IllegalLayoutError):
        why = f"{result.rule}: {result.message} ({result.value})"
        return (str(number), Text(why, FAINT), ABSENT, ABSENT, ABSENT, Text("illegal", BAD))
    memory = result.memory
    verdict = Text(ABSENT)
    if memory is not None:
        verdict = Text(memory.verdict, VERDICT_STYLES[memory.verdict])
    if fastest:
        verdict.append(", fastest", STRONG)
    return (
        str(number),
        or_absent(Layout.label, result.layout),
        or_absent(_step, result.step_seconds),
        or_absent(percent, result.mfu),
        or_absent(gigabytes, None if memory is None else memory.peak_bytes),
        verdict,
    )


def _step(value: float) -> str:
    return seconds(value, 4)


# ---------------------------------------------------------------- compare

Terms = Mapping[str, tuple[float, float, float]]
"""Term → its value in the first and the second plan, and the second less the first."""


class Comparison(Protocol):
    """Two plans, and the terms of their time in seconds and of their memory in bytes."""

    @property
    def plans(self) -> tuple[Plan, Plan]: ...
    @property
    def time(self) -> Terms: ...
    @property
    def memory(self) -> Terms: ...


def comparison_report(comparison: Comparison) -> RenderableType:
    """Two plans side by side."""
    first, second = comparison.plans
    return Group(
        facts([("A", _plan(first)), ("", ""), ("B", _plan(second))]),
        section("Figures", _figures(first, second)),
        section("Time of a step", _time(comparison.time)),
        section("Memory of the fullest stage's rank, GB", _memory(comparison.memory)),
    )


def _plan(plan: Plan) -> RenderableType:
    heading = title(scenario_from_document(plan.inputs, "plan"))
    if plan.layout is None:
        return Group(heading, Text("no layout", BAD))
    order = order_in_words(plan.rank_order) if plan.rank_order else ""
    label = plan.layout.label()
    return Group(
        heading, Text(degrees_in_words(plan.layout)), Text(f"{label}; ranks {order}", FAINT)
    )


FIGURES: Sequence[tuple[str, str, Callable[[Any], str]]] = (
    ("step", "step_seconds", _step),
    ("MFU", "mfu", percent),
    ("HFU", "hfu", percent),
    ("tokens/s", "tokens_per_second", in_words),
    ("tokens/s per accelerator", "tokens_per_second_per_accelerator", in_words),
    ("accelerator-hours", "accelerator_hours", in_words),
    ("cost, USD", "cost", in_words),
    ("memory", "memory", lambda memory: str(memory.verdict)),
)
"""Name, attribute of a plan, and how its value is written."""


def _figures(first: Plan, second: Plan) -> RenderableType:
    rows: list[Row] = []
    for name, attribute, form in FIGURES:
        a, b = getattr(first, attribute), getattr(second, attribute)
        if a is None and b is None:
            continue
        comparable = isinstance(a, float) and isinstance(b, float) and a > 0
        change = signed_percent(b / a - 1) if comparable else ""
        rows.append((name, or_absent(form, a), or_absent(form, b), change))
    return table([("", "l"), ("A", "r"), ("B", "r"), ("B vs A", "r")], rows)


def _time(terms: Terms) -> RenderableType:
    first, second = (sum(term[side] for term in terms.values()) for side in (0, 1))
    unit, unit_seconds = column_unit(max(first, second))

    def row(name: str | Text, a: float, b: float, change: float) -> Row:
        a, b, change = a / unit_seconds, b / unit_seconds, change / unit_seconds
        return name, f"{a:.3f}", f"{b:.3f}", _change(change)

    rows = [row(term_words(name), *values) for name, values in terms.items() if any(values[:2])]
    rows.append(row(Text("step", STRONG), first, second, second - first))
    return table([("", "l"), (f"A {unit}", "r"), (f"B {unit}", "r"), ("B − A", "r")], rows)


def _change(difference: float) -> Text:
    if abs(difference) < 0.0005:  # it would be written as 0.000
        return Text("=", FAINT)
    return Text(f"{difference:+.3f}", BAD if difference > 0 else GOOD)


def _memory(terms: Terms) -> RenderableType:
    rows: list[Row] = [
        (name.removesuffix("_bytes"), gigabytes(a), gigabytes(b), f"{difference / 1e9:+,.1f}")
        for name, (a, b, difference) in terms.items()
        if a or b
    ]
    return table([("", "l"), ("A", "r"), ("B", "r"), ("B − A", "r")], rows)
