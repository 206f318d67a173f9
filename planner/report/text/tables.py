"""Tables of many: layouts evaluated, two plans compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from planner.errors import IllegalLayoutError
from planner.planning.plan import Plan
from planner.problem.scenario import scenario_from_document
from planner.report.text.layouts import layout_in_words, order_in_words
from planner.report.text.numbers import ABSENT, gigabytes, percent, seconds, signed_percent, words
from planner.report.text.pieces import (
    BAD,
    FAINT,
    GOOD,
    STRONG,
    VERDICT_STYLES,
    facts,
    printable,
    section,
    table,
)

Row = Sequence[RenderableType | str]


# ---------------------------------------------------------------- evaluate --layouts


def evaluations_report(results: Sequence[Plan | IllegalLayoutError]) -> RenderableType:
    """A row per layout in the order given; the fastest that fits is marked."""
    fitting = [result for result in results if isinstance(result, Plan) and _fits(result)]
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
        ABSENT if result.layout is None else result.layout.label(),
        seconds(result.step_seconds, 4) if result.step_seconds is not None else ABSENT,
        percent(result.mfu) if result.mfu is not None else ABSENT,
        gigabytes(memory.peak_bytes) if memory is not None else ABSENT,
        verdict,
    )


# ---------------------------------------------------------------- compare


def comparison_report(
    first: Plan,
    second: Plan,
    time: Mapping[str, Sequence[float]],
    memory: Mapping[str, Sequence[float]],
) -> RenderableType:
    """Two plans side by side; terms are (first, second, difference) in seconds and bytes."""
    return Group(
        facts([("A", _named(first)), ("", ""), ("B", _named(second))]),
        section("Figures", _figures(first, second)),
        section("Time of a step", _terms(time)),
        section("Memory of the fullest stage's rank, GB", _memory(memory)),
    )


def _named(plan: Plan) -> RenderableType:
    scenario = scenario_from_document(plan.inputs, "plan")
    title = Text(
        f"{printable(scenario.model.name)} on {scenario.num_accelerators:,} × "
        f"{printable(scenario.topology.accelerator.name)} ({printable(scenario.topology.name)})",
        STRONG,
    )
    if plan.layout is None:
        return Group(title, Text("no layout", BAD))
    order = order_in_words(plan.rank_order) if plan.rank_order else ""
    degrees, _ = layout_in_words(plan.layout.to_document())
    label = plan.layout.label()
    return Group(title, Text(degrees), Text(f"{label}; ranks {order}", FAINT))


def _figures(first: Plan, second: Plan) -> RenderableType:
    rows: list[Row] = []
    forms: Sequence[tuple[str, str, Callable[[Any], str]]] = (
        ("step", "step_seconds", lambda v: seconds(v, 4)),
        ("MFU", "mfu", percent),
        ("HFU", "hfu", percent),
        ("tokens/s", "tokens_per_second", words),
        ("tokens/s per accelerator", "tokens_per_second_per_accelerator", words),
        ("accelerator-hours", "accelerator_hours", words),
        ("cost, USD", "cost", words),
        ("memory", "memory", lambda m: m.verdict),
    )
    for name, key, form in forms:
        a, b = getattr(first, key), getattr(second, key)
        if a is None and b is None:
            continue
        numbers = isinstance(a, float) and isinstance(b, float) and a > 0
        change = signed_percent(b / a - 1) if numbers else ""
        rows.append((name, *(ABSENT if v is None else form(v) for v in (a, b)), change))
    return table([("", "l"), ("A", "r"), ("B", "r"), ("B to A", "r")], rows)


def _terms(terms: Mapping[str, Sequence[float]]) -> RenderableType:
    first, second = (sum(term[side] for term in terms.values()) for side in (0, 1))
    unit, factor = ("s", 1.0) if max(first, second) >= 1 else ("ms", 1e-3)
    rows: list[Row] = [
        (name.replace("_", " "), f"{a / factor:.3f}", f"{b / factor:.3f}", _change(change / factor))
        for name, (a, b, change) in terms.items()
        if a or b
    ]
    total = f"{first / factor:.3f}", f"{second / factor:.3f}", _change((second - first) / factor)
    rows.append((Text("step", STRONG), *total))
    return table([("", "l"), (f"A {unit}", "r"), (f"B {unit}", "r"), ("B − A", "r")], rows)


def _change(difference: float) -> Text:
    if abs(difference) < 0.0005:
        return Text("=", FAINT)
    return Text(f"{difference:+.3f}", BAD if difference > 0 else GOOD)


def _memory(terms: Mapping[str, Sequence[float]]) -> RenderableType:
    rows: list[Row] = [
        (name.removesuffix("_bytes"), gigabytes(a), gigabytes(b), f"{difference / 1e9:+,.1f}")
        for name, (a, b, difference) in terms.items()
        if a or b
    ]
    return table([("", "l"), ("A", "r"), ("B", "r"), ("B − A", "r")], rows)
