"""A sweep in short: how its points ended, and the best of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from planner.report.text.numbers import in_words, percent, plural, seconds
from planner.report.text.pieces import (
    BAD,
    STRONG,
    Row,
    facts,
    note,
    printable,
    section,
    stacked,
    table,
)
from planner.report.text.sweep_rows import Row as Point
from planner.sweep import Sweep

MOST_ROWS = 10
WIDEST_HEADS = 24  # columns; longer names of axes are above the table
WIDEST_VALUE = 20  # columns; of a longer path the end is shown
STATUSES = ("optimal", "feasible", "infeasible", "unknown", "failed")


def sweep_report(sweep: Sweep) -> RenderableType:
    """Points by status, the best rows, and why points failed."""
    counts = ", ".join(
        f"{sweep.counts[status]:,} {status}" for status in STATUSES if sweep.counts[status]
    )
    heading = Text(f"{plural(sweep.num_points, 'point')}: {counts or 'none finished'}", STRONG)
    planned = [point for point in sweep.rows if point["layout"] is not None]
    failed = [point for point in sweep.rows if point["status"] == "failed"]
    return stacked(
        heading,
        *(_best(sweep.axes, planned) if planned else ()),
        section("Failed", _failures(failed)) if failed else None,
    )


def _best(axes: Sequence[str], planned: Sequence[Point]) -> list[RenderableType]:
    criterion, best = _best_of(planned)
    blocks: list[RenderableType] = [section(f"Best by {criterion}", _table(axes, best))]
    if len(planned) > len(best):
        blocks.append(note(f"  and {len(planned) - len(best):,} more"))
    return blocks


def _best_of(planned: Sequence[Point]) -> tuple[str, list[Point]]:
    """By what the best are chosen, and they: for each model its own, since tokens of different
    models do not compare. By cost where every point has it."""
    by_cost = all(point["cost"] is not None for point in planned)
    key = "cost" if by_cost else "tokens_per_second_per_accelerator"
    models = list(dict.fromkeys(point["model"] for point in planned))
    best: list[Point] = []
    for model in models:
        own = [point for point in planned if point["model"] == model]
        own.sort(key=lambda point: point[key], reverse=not by_cost)
        best += own[: max(MOST_ROWS // len(models), 1)]
    criterion = "cost" if by_cost else "tokens per second and accelerator"
    return criterion + (", for each model" if len(models) > 1 else ""), best


def _table(axes: Sequence[str], points: Sequence[Point]) -> RenderableType:
    heads, legend = [axis.rpartition(".")[2] for axis in axes], None
    if sum(map(len, heads)) > WIDEST_HEADS or len(set(heads)) < len(heads):
        heads = [f"axis {number}" for number in range(1, len(axes) + 1)]
        legend = facts([(head, printable(axis)) for head, axis in zip(heads, axes, strict=True)])
    columns = [("point", "r"), *((printable(head), "l") for head in heads)]
    columns += [(name, "r") for name in ("step", "MFU", "tokens/s/acc")] + [("layout", "w")]
    with_cost = all(point["cost"] is not None for point in points)
    if with_cost:
        columns.insert(-1, ("cost, USD", "r"))
    shown = table(columns, [_row(axes, point, with_cost) for point in points])
    return shown if legend is None else Group(legend, Text(""), shown)


def _row(axes: Sequence[str], point: Point, with_cost: bool) -> Row:
    return [
        str(point["point"]),
        *(_value(point[axis]) for axis in axes),
        seconds(point["step_seconds"], 4),
        percent(point["mfu"]),
        in_words(point["tokens_per_second_per_accelerator"]),
        *([in_words(point["cost"])] if with_cost else []),
        point["layout"],
    ]


def _value(value: Any) -> str:
    text = printable(value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= WIDEST_VALUE else f"…{text[1 - WIDEST_VALUE :]}"


def _failures(failed: Sequence[Point]) -> RenderableType:
    """Reasons and how many points failed for each, the most frequent first."""
    reasons = Counter(point["reason"] for point in failed)
    rows: list[Row] = [
        (f"{count:,} ×", Text(printable(reason), BAD))
        for reason, count in reasons.most_common(MOST_ROWS)
    ]
    if len(reasons) > MOST_ROWS:
        rows.append(("", Text(f"and {len(reasons) - MOST_ROWS:,} other reasons")))
    return table([("", "r"), ("", "w")], rows)
