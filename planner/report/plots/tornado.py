"""A picture of sensitivities: what changing only one axis of a sweep does to a point."""

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
    escaped,
    escaped_lines,
    inches,
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
    """The row from which most others differ in only one axis; of several the middle one."""
    known = with_figure(rows, RATE)
    moving = varying(known, axes)
    places = [tuple(identity(row.get(key)) for key in moving) for row in known]
    # pairs grow with the square of the rows
    if len(known) > MOST_COMPARED or not known:
        return _middle(known, axes)
    neighbours = [
        sum(sum(a != b for a, b in zip(own, other, strict=True)) == 1 for other in places)
        for own in places
    ]
    most = [i for i, number in enumerate(neighbours) if number == max(neighbours)]
    return known[most[len(most) // 2]]


def _middle(rows: Sequence[Row], axes: Sequence[str]) -> Row | None:
    """The row with the middle value of each axis, or the first one."""
    left = rows
    for key in axes:
        values = values_of(left, key)
        middle = identity(values[(len(values) - 1) // 2]) if values else ""
        left = [row for row in left if identity(row.get(key)) == middle]
    return left[0] if left else (rows[0] if rows else None)


def changes_from(
    base: Row, rows: Sequence[Row], axes: Sequence[str]
) -> dict[str, list[tuple[float, Row]]]:
    """Axis → relative change of RATE and row, of the rows that differ from base only in it.

    Changes rise; the axis that they spread most comes first.
    """
    by_axis: dict[str, list[tuple[float, Row]]] = {}
    known = with_figure(rows, RATE)
    moving = varying(known, axes)
    for row in known:
        differing = [key for key in moving if identity(row.get(key)) != identity(base.get(key))]
        if len(differing) == 1:
            by_axis.setdefault(differing[0], []).append((row[RATE] / base[RATE] - 1, row))
    return {
        key: sorted(changes, key=lambda change: change[0])
        for key, changes in sorted(by_axis.items(), key=lambda item: -_spread(item[1]))
    }


def _spread(changes: Sequence[tuple[float, Row]]) -> float:
    """From the worst to the best of the changes and of no change."""
    figures = [change for change, _ in changes]
    return max(0.0, *figures) - min(0.0, *figures)


def plot_tornado(
    rows: Sequence[Row], axes: Sequence[str], base: Row | None = None, ax: Axes | None = None
) -> Axes:
    """A bar per axis: throughput of the worst and the best of its values against the base's."""
    base = base or base_of(rows, axes)
    assert base is not None
    by_axis = changes_from(base, rows, axes)
    height = 1.05 + 0.5 * max(len(by_axis), 1)
    box = (1.6 / WIDTH, 0.6 / height, 1 - 1.85 / WIDTH, 1 - 1.0 / height)
    ax = axes_of(ax, WIDTH, height, box)
    bars = {key: _bars(changes, key) for key, changes in by_axis.items()}
    _limit_changes([bar for of_axis in bars.values() for bar in of_axis], ax)
    for place, of_axis in enumerate(bars.values()):
        for change, text in of_axis:
            up = change > 0
            ax.barh(place, change, height=0.6, color=GREEN if up else VERMILION)
            ax.annotate(
                escaped(text), (change, place), xytext=(4 if up else -4, 0),
                textcoords="offset points", va="center", ha="left" if up else "right",
                fontsize=SMALL,
            )  # fmt: skip
    ax.axvline(0, color=GREY, linewidth=1.0)
    ax.set_ylim(len(bars) - 0.4, -0.6)
    names = {key: capital(axis_name(rows, axes, key)) for key in bars}
    values = {key: shortened(value_text(base.get(key)), 20) for key in bars}
    ax.set_yticks(
        range(len(bars)),
        [escaped_lines(f"{wrapped(names[key], 1.4, SMALL)}\n{values[key]}") for key in bars],
        fontsize=SMALL,
    )  # fmt: skip
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.xaxis.set_major_formatter(lambda value, _: signed_percent(value, 0) if value else "0 %")
    ax.set_xlabel(
        "Tokens per second of one accelerator, against the base, whose values are at the left",
        fontsize=LABEL,
    )  # fmt: skip
    text = "No point differs from the base in only one axis"
    if by_axis:
        key, changes = next(iter(by_axis.items()))
        most = f", the most of {len(by_axis)} axes" if len(by_axis) > 1 else ""
        spread = percent(_spread(changes), 0)
        text = f"{escaped(names[key])}: {spread} between its values{most}"
    title(ax, text, x=-1.5 / inches(ax)[0])
    return ax


def _bars(changes: Sequence[tuple[float, Row]], key: str) -> list[tuple[float, str]]:
    """The bars of an axis with their texts: its worst value and its best.

    Where both are better (or worse) than the base's, one bar to the further one names both.
    """

    def text(end: tuple[float, Row]) -> str:
        return f"{shortened(value_text(end[1].get(key)), 20)}: {signed_percent(end[0], 0)}"

    low, high = changes[0], changes[-1]
    if len(changes) == 1:
        return [(low[0], text(low))]
    if low[0] < 0 < high[0]:
        return [(end[0], text(end)) for end in (low, high)]
    nearer, further = sorted((low, high), key=lambda end: abs(end[0]))
    return [(further[0], f"{text(nearer)}; {text(further)}")]


def _limit_changes(bars: Sequence[tuple[float, str]], ax: Axes) -> None:
    """Limits with space for the texts beyond the bars' ends."""
    width, _ = inches(ax)
    low = high = 0.0
    span = (max((c for c, _ in bars), default=0) - min((c for c, _ in bars), default=0)) or 1.0
    texts = [text_inches(text, SMALL) + 0.12 for _, text in bars]
    widest_up, widest_down = (
        max((t for (change, _), t in zip(bars, texts, strict=True) if (change > 0) == up),
            default=0.1)
        for up in (True, False)
    )  # fmt: skip
    per_inch = span / max(width - widest_up - widest_down, 0.25 * width)
    for (change, _), text_width in zip(bars, texts, strict=True):
        end = change + text_width * per_inch * (1 if change > 0 else -1)
        low, high = min(low, end), max(high, end)
    ax.set_xlim(low, high)
