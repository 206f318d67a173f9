"""A sweep in short: how its points ended, and the best of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from planner.report.text.numbers import percent, plural, seconds, words
from planner.report.text.pieces import BAD, STRONG, facts, note, printable, section, table

Row = Mapping[str, Any]

SHOWN = 10
WIDEST_HEADS = 24  # columns; longer names of axes stand above the table
WIDEST_VALUE = 20  # of a path the end tells
STATUSES = ("optimal", "feasible", "infeasible", "unknown", "failed")


def sweep_report(axes: Sequence[str], rows: Sequence[Row], num_points: int) -> RenderableType:
    """Points by status, the best rows, and why points failed."""
    counts = Counter(row["status"] for row in rows)
    ends = ", ".join(f"{counts[name]:,} {name}" for name in STATUSES if counts[name])
    heading = Text(f"{plural(num_points, 'point')}: {ends or 'none finished'}", STRONG)
    placed = [row for row in rows if row["layout"] is not None]
    parts: list[RenderableType] = [heading]
    if placed:
        name, best = _best_of(placed)
        parts.append(section(f"Best by {name}", _table(axes, best)))
        if len(placed) > len(best):
            parts.append(note(f"  and {len(placed) - len(best):,} more"))
    failed = [row for row in rows if row["status"] == "failed"]
    if failed:
        parts.append(section("Failed", _failures(failed)))
    return Group(*parts)


def _best_of(placed: Sequence[Row]) -> tuple[str, list[Row]]:
    """The best rows and by what; of each model apart, for tokens of different ones do not compare.

    By cost where every row has it.
    """
    by_cost = all(row["cost"] is not None for row in placed)
    key = "cost" if by_cost else "tokens_per_second_per_accelerator"
    models = list(dict.fromkeys(row["model"] for row in placed))
    best: list[Row] = []
    for model in models:
        own = [row for row in placed if row["model"] == model]
        own.sort(key=lambda row: row[key], reverse=not by_cost)
        best += own[: max(SHOWN // len(models), 1)]
    name = "cost" if by_cost else "tokens per second and accelerator"
    return name + (", for each model" if len(models) > 1 else ""), best


def _table(axes: Sequence[str], rows: Sequence[Row]) -> RenderableType:
    heads, legend = [axis.rpartition(".")[2] for axis in axes], None
    if sum(map(len, heads)) > WIDEST_HEADS or len(set(heads)) < len(heads):
        heads = [f"axis {number}" for number in range(1, len(axes) + 1)]
        legend = facts([(head, printable(axis)) for head, axis in zip(heads, axes, strict=True)])
    columns = [("point", "r"), *((printable(head), "l") for head in heads)]
    columns += [(name, "r") for name in ("step", "MFU", "tokens/s/acc")] + [("layout", "w")]
    with_cost = all(row["cost"] is not None for row in rows)
    if with_cost:
        columns.insert(-1, ("cost, USD", "r"))
    shown = table(columns, [_row(axes, row, with_cost) for row in rows])
    return shown if legend is None else Group(legend, Text(""), shown)


def _row(axes: Sequence[str], row: Row, with_cost: bool) -> list[RenderableType | str]:
    return [
        str(row["point"]),
        *(_written(row[axis]) for axis in axes),
        seconds(row["step_seconds"], 4),
        percent(row["mfu"]),
        words(row["tokens_per_second_per_accelerator"]),
        *([words(row["cost"])] if with_cost else []),
        row["layout"],
    ]


def _written(value: Any) -> str:
    text = printable(value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= WIDEST_VALUE else f"…{text[1 - WIDEST_VALUE :]}"


def _failures(failed: Sequence[Row]) -> RenderableType:
    """Reasons with how many points have them, the most frequent first."""
    reasons = Counter(row["reason"] for row in failed)
    shown = reasons.most_common(SHOWN)
    rows = [(f"{count:,} ×", Text(printable(reason), BAD)) for reason, count in shown]
    if len(reasons) > SHOWN:
        rows.append(("", Text(f"and {len(reasons) - SHOWN:,} other reasons")))
    return table([("", "r"), ("", "w")], rows)
