"""Rows of a sweep as pictures and tables read them: axes, values, results of points.

A row is a flat mapping: `point`, a value per axis, `status`, `reason`, figures, `layout` as short
text and its keys as `layout.tp`, terms as `time.bubble`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from planner.report.text.numbers import in_words, percent, seconds
from planner.report.text.pieces import printable

Row = Mapping[str, Any]

COUNT = "num_accelerators"

WITHOUT_PLAN = {"infeasible": "nothing fits", "unknown": "time ran out", "failed": "failed"}
"""Status of a point without a plan → the text of its cell."""

LONGEST = 28
"""Characters of a value in a picture; of a longer one beginning and end are shown."""

FORMS: Mapping[str, tuple[str, Callable[[float], str], bool]] = {
    "mfu": ("MFU", percent, True),
    "hfu": ("HFU", percent, True),
    "step_seconds": ("Step", lambda value: seconds(value, 3), False),
    "tokens_per_second": ("Tokens/s", in_words, True),
    "tokens_per_second_per_accelerator": ("Tokens/s per accelerator", in_words, True),
    "days": ("Days", in_words, False),
    "accelerator_hours": ("Accelerator-hours", in_words, False),
    "cost": ("Cost, USD", in_words, False),
}
"""Figure of a row → its words, how it is written, and whether more is better."""


def planned(rows: Iterable[Row]) -> list[Row]:
    """Rows that hold a plan."""
    return [row for row in rows if row.get("status") in ("optimal", "feasible")]


def with_figure(rows: Iterable[Row], key: str) -> list[Row]:
    """Rows that hold a plan and the figure, above zero."""
    return [row for row in planned(rows) if (row.get(key) or 0) > 0]


def values_of(rows: Iterable[Row], key: str) -> list[Any]:
    """The values an axis takes: numbers by size, others in the order of the rows."""
    by_identity: dict[str, Any] = {}
    for row in rows:
        by_identity.setdefault(identity(row.get(key)), row.get(key))
    values = list(by_identity.values())
    return sorted(values) if all(_is_number(value) for value in values) else values


def identity(value: Any) -> str:
    """A key of a value, which may not be hashable; 1 and 1.0 have the same."""
    return repr(float(value)) if _is_number(value) else repr(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def value_text(value: Any) -> str:
    """A value of an axis in a few characters."""
    if _is_number(value):
        return f"{value:,}" if isinstance(value, int) else f"{value:,g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        text = ", ".join(f"{k}={value_text(v)}" for k, v in value.items())
    elif isinstance(value, list | tuple):
        text = ", ".join(value_text(item) for item in value)
    else:
        text = printable(value)
    return shortened(text, LONGEST)


def shortened(text: str, longest: int) -> str:
    """Text with its middle left out where it is longer."""
    if len(text) <= longest:
        return text
    head = (longest - 1) * 2 // 3
    return f"{text[:head]}…{text[-(longest - 1 - head) :]}"


def axis_words(key: str) -> str:
    """'training.global_batch_size' as 'global batch size'."""
    last = key.rpartition(".")[2]
    return "accelerators" if key == COUNT else printable(last).replace("_", " ")


def capital(text: str) -> str:
    """Text that begins with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def varying(rows: Sequence[Row], axes: Iterable[str]) -> list[str]:
    """Axes that take more than one value, those of most values first.

    Of axes that are stepped together only the first, or the count of accelerators.
    """
    # the count of accelerators first, so that of axes stepped with it, it is the one that is kept
    keys = sorted(dict.fromkeys(axes), key=lambda key: key != COUNT)
    number = {key: len(values_of(rows, key)) for key in keys}
    chosen: list[str] = []
    for key in sorted((key for key in keys if number[key] > 1), key=lambda key: -number[key]):
        same_number = [other for other in chosen if number[other] == number[key]]
        if not any(_together(rows, key, other) for other in same_number):
            chosen.append(key)
    return chosen


def _together(rows: Sequence[Row], key: str, other: str) -> bool:
    """Whether each value of one axis always comes with the same value of the other."""
    pairs = {(identity(row.get(key)), identity(row.get(other))) for row in rows}
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def axis_name(rows: Sequence[Row], axes: Iterable[str], key: str) -> str:
    """The words of an axis and of those that are stepped with it."""
    known = [other for other in axes if other != key and len(values_of(rows, other)) > 1]
    names = [key, *(other for other in known if _together(rows, key, other))]
    return ", ".join(axis_words(name) for name in names)


def at_fixed_values(
    rows: Sequence[Row], axes: Iterable[str], shown: Sequence[str]
) -> tuple[list[Row], dict[str, Any]]:
    """Rows at one value of every axis that is not shown, the most frequent, and those values."""
    kept, values = list(rows), {}
    for key in varying(rows, [*shown, *axes]):
        if key in shown:
            continue
        counts: dict[str, int] = {}
        for row in planned(kept) or kept:
            name = identity(row.get(key))
            counts[name] = counts.get(name, 0) + 1
        most = max(counts, key=lambda name: counts[name])
        kept = [row for row in kept if identity(row.get(key)) == most]
        values[key] = kept[0].get(key)
    return kept, values


def where(values: Mapping[str, Any]) -> str:
    """Values of axes in words: 'at sequence length 8,192, precision bf16'."""
    phrases = [
        f"{value_text(value)} accelerators" if key == COUNT
        else f"{axis_words(key)} {value_text(value)}"
        for key, value in values.items()
    ]  # fmt: skip
    return f"at {', '.join(phrases)}" if phrases else ""


def reason_of(row: Row) -> str:
    """Why a point has no plan, without the file, line and key that an error begins with."""
    reason = printable(row.get("reason") or "")
    # errors begin with file, line and key, which have no blanks
    pieces = reason.split(": ")
    start = next((i for i, piece in enumerate(pieces) if " " in piece), 0)
    return ": ".join(pieces[start:])


def text_without_plan(row: Row) -> str:
    """The status of a point without a plan, and how the reason of a failure begins, for a cell."""
    beginning = shortened(re.split("[:;,]", reason_of(row))[0].strip(), 34)
    status = WITHOUT_PLAN.get(str(row.get("status")), "no figure")
    return f"{status}\n{beginning}" if row.get("status") == "failed" and beginning else status


def degrees_of(row: Row) -> str:
    """The degrees of a layout besides data parallelism: 'tp8 pp2', or 'dp only'."""
    degrees = [
        f"{axis}{row[f'layout.{axis}']}"
        for axis in ("tp", "cp", "ep", "pp")
        if (row.get(f"layout.{axis}") or 1) > 1
    ]
    return " ".join(degrees) or "dp only"
