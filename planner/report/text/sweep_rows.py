"""Rows of a sweep as pictures and tables read them: axes, values, what a point came to.

A row is a flat mapping: `point`, a value per axis, `status`, `reason`, figures, `layout` as short
text and its parts as `layout.tp`, terms as `time.bubble`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from planner.report.text.numbers import percent, seconds, words
from planner.report.text.pieces import printable

Row = Mapping[str, Any]

COUNT = "num_accelerators"

NO_ANSWER = {"infeasible": "nothing fits", "unknown": "time ran out", "failed": "failed"}
"""Status of a point without a plan → what a cell says."""

LONGEST = 28
"""Characters of a value in a picture; of longer ones beginning and end are shown."""

FORMS: Mapping[str, tuple[str, Callable[[float], str], bool]] = {
    "mfu": ("MFU", percent, True),
    "hfu": ("HFU", percent, True),
    "step_seconds": ("Step", lambda value: seconds(value, 3), False),
    "tokens_per_second": ("Tokens/s", words, True),
    "tokens_per_second_per_accelerator": ("Tokens/s per accelerator", words, True),
    "days": ("Days", words, False),
    "accelerator_hours": ("Accelerator-hours", words, False),
    "cost": ("Cost, USD", words, False),
}
"""Figure of a row → its words, how it is written, and whether more is better."""


def done(rows: Iterable[Row]) -> list[Row]:
    """Rows that hold a plan."""
    return [row for row in rows if row.get("status") in ("optimal", "feasible")]


def with_figure(rows: Iterable[Row], key: str) -> list[Row]:
    """Rows that hold a plan and the figure, above zero."""
    return [row for row in done(rows) if (row.get(key) or 0) > 0]


def values_of(rows: Iterable[Row], key: str) -> list[Any]:
    """The values an axis takes: numbers by size, others as they come."""
    found: dict[str, Any] = {}
    for row in rows:
        found.setdefault(identity(row.get(key)), row.get(key))
    values = list(found.values())
    return sorted(values) if all(_is_number(value) for value in values) else values


def identity(value: Any) -> str:
    """What tells values apart that cannot all be hashed; 1 and 1.0 are the same."""
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
        text = ", ".join(value_text(part) for part in value)
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
    return f"{text[:1].upper()}{text[1:]}"


def varying(rows: Sequence[Row], axes: Iterable[str]) -> list[str]:
    """Axes that take more than one value, those of most values first.

    Of axes that change together, as zipped ones do, the first; or the count of accelerators.
    """
    keys = sorted(dict.fromkeys(axes), key=lambda key: key != COUNT)
    number = {key: len(values_of(rows, key)) for key in keys}
    found: list[str] = []
    for key in sorted((key for key in keys if number[key] > 1), key=lambda key: -number[key]):
        if not any(_together(rows, key, other) for other in found if number[other] == number[key]):
            found.append(key)
    return found


def _together(rows: Sequence[Row], key: str, other: str) -> bool:
    """Whether each value of one axis goes with one value of the other."""
    pairs = {(identity(row.get(key)), identity(row.get(other))) for row in rows}
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def axis_name(rows: Sequence[Row], axes: Iterable[str], key: str) -> str:
    """The words of an axis and of those that change with it."""
    known = [other for other in axes if other != key and len(values_of(rows, other)) > 1]
    names = [key, *(other for other in known if _together(rows, key, other))]
    return ", ".join(axis_words(name) for name in names)


def held(
    rows: Sequence[Row], axes: Iterable[str], shown: Sequence[str]
) -> tuple[list[Row], dict[str, Any]]:
    """Rows at one value of every axis that is not shown, and those values: the commonest."""
    kept, values = list(rows), {}
    for key in varying(rows, [*shown, *axes]):
        if key in shown:
            continue
        counts: dict[str, int] = {}
        for row in done(kept) or kept:
            name = identity(row.get(key))
            counts[name] = counts.get(name, 0) + 1
        most = max(counts, key=lambda name: counts[name])
        kept = [row for row in kept if identity(row.get(key)) == most]
        values[key] = kept[0].get(key)
    return kept, values


def where(values: Mapping[str, Any]) -> str:
    """Values of axes in words: 'at sequence length 8,192, precision bf16'."""
    said = [
        f"{value_text(value)} accelerators" if key == COUNT
        else f"{axis_words(key)} {value_text(value)}"
        for key, value in values.items()
    ]  # fmt: skip
    return f"at {', '.join(said)}" if said else ""


def reason_of(row: Row) -> str:
    """Why a point has no plan, without the file, line and key that an error begins with."""
    reason = printable(row.get("reason") or "")
    pieces = reason.split(": ")
    start = next((i for i, piece in enumerate(pieces) if " " in piece), 0)
    return ": ".join(pieces[start:])


def no_answer(row: Row) -> str:
    """The status of a point without a plan, and how the reason of a failure begins, for a cell."""
    began = shortened(re.split("[:;,]", reason_of(row))[0].strip(), 34)
    status = NO_ANSWER.get(str(row.get("status")), "no figure")
    return f"{status}\n{began}" if row.get("status") == "failed" and began else status


def degrees_of(row: Row) -> str:
    """The degrees that a layout has: 'tp8 pp2'; data parallel alone is 'dp'."""
    cut = [
        f"{axis}{row[f'layout.{axis}']}"
        for axis in ("tp", "cp", "ep", "pp")
        if (row.get(f"layout.{axis}") or 1) > 1
    ]
    return " ".join(cut) or "dp only"
