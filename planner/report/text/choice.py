"""What was chosen beside the layout, and the proof that no other count or precision is better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from planner.planning.plan import Choice, Option, Plan
from planner.report.text.numbers import ABSENT, gigabytes, seconds, signed_percent
from planner.report.text.pieces import FAIR, GOOD, STRONG, Phrases, facts, note, section, table

MOST_ROWS = 12

AIMS: Mapping[str, str] = {
    "time": "least time",
    "accelerator_seconds": "least accelerator-seconds",
    "fewest_for_deadline": "fewest accelerators for the deadline",
    "least_memory": "least memory",
}
SAID: Mapping[str, str] = {
    "solved": "worse, each with its own proof",
    "ruled out": "no better by their bounds",
    "infeasible": "without a layout that fits",
    "unneeded": "larger than needed",
    "unknown": "not finished",
}


def chosen(plan: Plan) -> RenderableType | None:
    """Objective, its value and proof, and the options that were searched."""
    choice = plan.choice
    if choice is None:
        return None
    aim = AIMS[choice.objective]
    if choice.deadline_seconds is not None:
        aim += f" of {seconds(choice.deadline_seconds, 4)} a step"
    rows: list[tuple[str, RenderableType | str | None]] = [("Objective", Text(aim, STRONG))]
    if choice.value is not None:
        rows.append(("Chosen", Phrases(_chosen(plan, choice))))
        rows.append(("", _proof(choice)))
    return section("Choice beside the layout", facts(rows), _options(choice))


def compared(plan: Plan) -> str:
    """What the least step was compared with."""
    if plan.choice is not None and plan.choice.objective == "least_memory":
        return "of the layouts that tie for the least memory nothing"
    splits = (
        "any split of the layers" if plan.search and plan.search.any_split else "the default split"
    )
    by_token = plan.choice is not None and any("batch" in key for key in plan.choice.asked)
    return f"nothing legal in {splits}{', by the token' if by_token else ''}"


def is_late(plan: Plan) -> bool:
    """Whether layouts fit, but none keeps the deadline."""
    choice = plan.choice
    return choice is not None and choice.deadline_seconds is not None and bool(plan.warnings)


def _chosen(plan: Plan, choice: Choice) -> list[str]:
    inputs = plan.inputs
    batch = inputs["training"]["global_batch_size"]
    found = [f"{inputs['num_accelerators']:,} accelerators", str(inputs["training"]["precision"])]
    if any(key.startswith("training.global_batch") for key in choice.asked):
        found.append(f"a batch of {batch:,} sequences")
    if choice.objective != "fewest_for_deadline":
        found.append(_value(choice, choice.value))
    return found


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
    counted: Counter[str] = Counter(option.status for option in choice.options)
    others = [f"{counted[status]:,} {said}" for status, said in SAID.items() if counted[status]]
    if choice.gap_fraction:
        text = Text(f"not finished, a gap of {100 * choice.gap_fraction:.2f} %", FAIR)
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
    shown = sorted(solved, key=lambda option: option.value or 0.0)[:MOST_ROWS]
    rows = [
        (f"{option.num_accelerators:,}", option.precision, *_cells(choice, option, best))
        for option in sorted(shown, key=lambda o: (o.num_accelerators, o.precision))
    ]
    columns = [
        ("accelerators", "r"), ("precision", "l"), ("objective", "r"), ("more", "r"),
        ("step", "r"), ("layout", "w"),
    ]  # fmt: skip
    rest = len(solved) - len(shown)
    return Group(
        Text(""), table(columns, rows), *([note(f"{rest:,} more searched")] if rest else [])
    )


def _cells(choice: Choice, option: Option, best: float) -> tuple[str, str, str, str]:
    value = option.value or 0.0
    shown = _value(choice, value).removesuffix(f" {choice.unit}")
    return (
        shown.removesuffix(choice.unit.removeprefix("s")) if choice.unit != "B" else shown,
        "" if option.status == "chosen" else signed_percent(value / best - 1.0),
        ABSENT if option.step_seconds is None else seconds(option.step_seconds, 4),
        ABSENT if option.layout is None else option.layout.label(),
    )
