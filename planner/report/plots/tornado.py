"""A picture of sensitivities: what changing one axis of a sweep alone does to a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.report.plots.drawing import (
    GREEN,
    GREY,
    LABEL,
    SMALL,
    VERMILION,
    axes_of,
    inches,
    said,
    said_lines,
    title,
)
from planner.report.plots.labels import text_inches, wrapped
from planner.report.plots.sweep_curves import RATE, WIDTH
from planner.report.text.numbers import percent, signed_percent
from planner.report.text.sweep_rows import (
    Row,
    axis_name,
    capital,
    identity,
    shortened,
    value_text,
    values_of,
    varying,
    with_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_COMPARED = 400
"""Rows up to which all pairs are compared to find the base."""


def base_of(rows: Sequence[Row], axes: Sequence[str]) -> Row | None:
    """The row from which most others differ in one axis alone; of several the middle one."""
    known = with_figure(rows, RATE)
    moving = varying(known, axes)
    names = [tuple(identity(row.get(key)) for key in moving) for row in known]
    if len(known) > MOST_COMPARED or not known:
        return _middle(known, axes)
    apart = [
        sum(1 for other in names if sum(a != b for a, b in zip(mine, other, strict=True)) == 1)
        for mine in names
    ]
    most = [i for i, number in enumerate(apart) if number == max(apart)]
    return known[most[len(most) // 2]]


def _middle(rows: Sequence[Row], axes: Sequence[str]) -> Row | None:
    found = rows
    for key in axes:
        values = values_of(found, key)
        middle = identity(values[(len(values) - 1) // 2]) if values else ""
        found = [row for row in found if identity(row.get(key)) == middle]
    return found[0] if found else (rows[0] if rows else None)


def changes_from(
    base: Row, rows: Sequence[Row], axes: Sequence[str]
) -> dict[str, list[tuple[float, Row]]]:
    """Axis → relative change of RATE and row, of rows that differ from base in it alone."""
    found: dict[str, list[tuple[float, Row]]] = {}
    known = with_figure(rows, RATE)
    moving = varying(known, axes)
    for row in known:
        apart = [key for key in moving if identity(row.get(key)) != identity(base.get(key))]
        if len(apart) == 1:
            found.setdefault(apart[0], []).append((row[RATE] / base[RATE] - 1, row))
    return {
        key: sorted(changes, key=lambda change: change[0])
        for key, changes in sorted(
            found.items(), key=lambda item: -_reach([change for change, _ in item[1]])
        )
    }


def _reach(changes: Sequence[float]) -> float:
    return max(0.0, *changes) - min(0.0, *changes)


def plot_tornado(
    rows: Sequence[Row], axes: Sequence[str], base: Row | None = None, ax: Axes | None = None
) -> Axes:
    """A bar per axis: throughput of the worst and the best of its values against the base's."""
    base = base or base_of(rows, axes)
    assert base is not None
    found = changes_from(base, rows, axes)
    height = 1.05 + 0.5 * max(len(found), 1)
    box = (1.6 / WIDTH, 0.6 / height, 1 - 1.85 / WIDTH, 1 - 1.0 / height)
    ax = axes_of(ax, WIDTH, height, box)
    texts = {key: _said_ends(changes, key) for key, changes in found.items()}
    _limit_changes([(c, text) for ends in texts.values() for c, text in ends], ax)
    for place, key in enumerate(found):
        for change, text in texts[key]:
            up = change > 0
            ax.barh(place, change, height=0.6, color=GREEN if up else VERMILION)
            ax.annotate(
                said(text), (change, place), xytext=(4 if up else -4, 0),
                textcoords="offset points", va="center", ha="left" if up else "right",
                fontsize=SMALL,
            )  # fmt: skip
    ax.axvline(0, color=GREY, linewidth=1.0)
    ax.set_ylim(len(found) - 0.4, -0.6)
    names = {key: capital(axis_name(rows, axes, key)) for key in found}
    values = {key: shortened(value_text(base.get(key)), 20) for key in found}
    ax.set_yticks(
        range(len(found)),
        [said_lines(f"{wrapped(names[key], 1.4, SMALL)}\n{values[key]}") for key in found],
        fontsize=SMALL,
    )  # fmt: skip
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.xaxis.set_major_formatter(lambda value, _: signed_percent(value, 0))
    ax.set_xlabel(
        "Tokens per second of one accelerator, against the base, whose values stand at the left",
        fontsize=LABEL,
    )  # fmt: skip
    finding = "Nothing differs from the base in one axis alone"
    if found:
        key, changes = next(iter(found.items()))
        reach = percent(_reach([change for change, _ in changes]), 0)
        most = f", the most of {len(found)} axes" if len(found) > 1 else ""
        finding = f"{said(names[key])}: {reach} between the values{most}"
    title(ax, finding, x=-1.5 / inches(ax)[0])
    return ax


def _said_ends(changes: Sequence[tuple[float, Row]], key: str) -> list[tuple[float, str]]:
    """The bars of an axis with their texts: its worst value and its best.

    Where both are better (or worse) than the base's, one bar to the farther tells of both.
    """

    def text(end: tuple[float, Row]) -> str:
        return f"{shortened(value_text(end[1].get(key)), 20)}: {signed_percent(end[0], 0)}"

    low, high = changes[0], changes[-1]
    if len(changes) == 1:
        return [(low[0], text(low))]
    if low[0] < 0 < high[0]:
        return [(end[0], text(end)) for end in (low, high)]
    near, far = sorted((low, high), key=lambda end: abs(end[0]))
    return [(far[0], f"{text(near)}; {text(far)}")]


def _limit_changes(bars: Sequence[tuple[float, str]], ax: Axes) -> None:
    """Limits that leave the texts room beyond the bars' ends."""
    width, _ = inches(ax)
    low = high = 0.0
    span = (max((c for c, _ in bars), default=0) - min((c for c, _ in bars), default=0)) or 1.0
    texts = [text_inches(text, SMALL) + 0.12 for _, text in bars]
    beside = {up: max((w for (c, _), w in zip(bars, texts, strict=True) if (c > 0) == up),
                      default=0.1) for up in (True, False)}  # fmt: skip
    per_inch = span / max(width - beside[True] - beside[False], 0.25 * width)
    for (change, _), text in zip(bars, texts, strict=True):
        reach = text * per_inch if change > 0 else -text * per_inch
        low, high = min(low, change + reach), max(high, change + reach)
    ax.set_xlim(low, high)
