"""The choice of what a scenario leaves open besides the layout: accelerators, precision, batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from planner.layouts.layout import Layout
from planner.planning.plan import Choice, Option, Plan
from planner.report.text.numbers import (
    ABSENT,
    gigabytes,
    or_absent,
    percent,
    seconds,
    signed_percent,
)
from planner.report.text.pieces import (
    FAIR,
    GOOD,
    STRONG,
    Fact,
    Phrases,
    facts,
    note,
    section,
    table,
)

MOST_ROWS = 12

OBJECTIVES: Mapping[str, str] = {
    "time": "minimum time",
    "accelerator_seconds": "minimum accelerator-seconds",
    "fewest_for_deadline": "fewest accelerators for the deadline",
    "least_memory": "minimum memory",
}
STATUSES: Mapping[str, str] = {
    "solved": "proven worse",
    "ruled out": "ruled out by their bounds",
    "infeasible": "without a layout that fits",
    "unneeded": "larger than needed",
    "unknown": "not finished",
}
"""Status of an option that was not chosen → its words."""


def choice(plan: Plan) -> RenderableType | None:
    """Objective, its value and proof, and the options that were searched."""
    choice = plan.choice
    if choice is None:
        return None
    objective = OBJECTIVES[choice.objective]
    if choice.deadline_seconds is not None:
        objective += f" of {seconds(choice.deadline_seconds, 4)} a step"
    rows: list[Fact] = [("Objective", Text(objective, STRONG))]
    if choice.value is not None:
        rows.append(("Chosen", Phrases(_chosen(plan, choice))))
        rows.append(("", _proof(choice)))
    return section("Choices beyond the layout", facts(rows), _options(choice))


def is_late(plan: Plan) -> bool:
    """Whether layouts fit, but none meets the deadline."""
    choice = plan.choice
    return choice is not None and choice.deadline_seconds is not None and bool(plan.warnings)


def _chosen(plan: Plan, choice: Choice) -> Iterator[str]:
    training = plan.inputs["training"]
    yield f"{plan.inputs['num_accelerators']:,} accelerators"
    yield str(training["precision"])
    if any(key.startswith("training.global_batch") for key in choice.asked):
        yield f"a batch of {training['global_batch_size']:,} sequences"
    # its value is the number of accelerators, which is named already
    if choice.objective != "fewest_for_deadline":
        yield _value(choice, choice.value)


def _value(choice: Choice, value: float | None) -> str:
    if value is None:
        return ABSENT
    if choice.objective == "least_memory":
        return f"{gigabytes(value)} GB"
    if choice.objective == "accelerator_seconds":
        return f"{value:,.4g} {choice.unit}" if value < 1e4 else f"{value:,.0f} {choice.unit}"
    unit = "" if choice.objective == "fewest_for_deadline" else choice.unit.removeprefix("s")
    return f"{seconds(value, 4)}{unit}"


def _proof(choice: Choice) -> RenderableType:
    counts: Counter[str] = Counter(option.status for option in choice.options)
    others = [f"{counts[status]:,} {words}" for status, words in STATUSES.items() if counts[status]]
    if choice.gap_fraction:
        text = Text(f"not finished, gap {percent(choice.gap_fraction, 2)}", FAIR)
    else:
        text = Text("optimal", GOOD)
    if len(choice.options) > 1:
        text.append(f": {len(choice.options):,} options; {', '.join(others)}", "default")
    return text


def _options(choice: Choice) -> RenderableType | None:
    """The searched options nearest to the chosen one's value, by accelerators."""
    solved = [option for option in choice.options if option.value is not None]
    if len(solved) < 2 or choice.value is None:
        return None
    best = next((o.value for o in solved if o.status == "chosen" and o.value), None)
    if best is None:
        return None
    # of many options only the best ones, but listed by size
    shown = sorted(solved, key=lambda option: option.value or 0.0)[:MOST_ROWS]
    rows = [
        (f"{option.num_accelerators:,}", option.precision, *_cells(choice, option, best))
        for option in sorted(shown, key=lambda o: (o.num_accelerators, o.precision))
    ]
    columns = [
        ("accelerators", "r"), ("precision", "l"), ("objective", "r"), ("vs chosen", "r"),
        ("step", "r"), ("layout", "w"),
    ]  # fmt: skip
    rest = len(solved) - len(shown)
    more = [note(f"{rest:,} more searched")] if rest else []
    return Group(Text(""), table(columns, rows), *more)


def _cells(choice: Choice, option: Option, best: float) -> tuple[str, str, str, str]:
    value = option.value or 0.0
    shown = _value(choice, value).removesuffix(f" {choice.unit}")
    return (
        shown.removesuffix(choice.unit.removeprefix("s")) if choice.unit != "B" else shown,
        "" if option.status == "chosen" else signed_percent(value / best - 1.0),
        or_absent(lambda step: seconds(step, 4), option.step_seconds),
        or_absent(Layout.label, option.layout),
    )
