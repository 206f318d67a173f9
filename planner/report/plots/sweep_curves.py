"""Pictures of a sweep as curves: scaling, and the Pareto front of time and accelerators or cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log10
from typing import TYPE_CHECKING, Any

from planner.report.plots.drawing import (
    GREY,
    LABEL,
    PALE,
    SMALL,
    STYLES,
    VERMILION,
    axes_of,
    escaped,
    escaped_lines,
    halo,
    inches,
    per_decade,
    short_tick,
    title,
    with_space,
)
from planner.report.plots.labels import spread, text_inches, wrapped
from planner.report.text.numbers import percent, plural
from planner.report.text.sweep_rows import (
    COUNT,
    FORMS,
    Row,
    at_fixed_values,
    axis_name,
    planned,
    value_text,
    varying,
    where,
    with_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 7.6, 4.6

MOST_CURVES = 5
"""Curves of a scaling picture, one per line style; how many more there are is in the title."""

MARKERS = ("o", "s", "^", "D", "v")

SPEED, RATE = "tokens_per_second", "tokens_per_second_per_accelerator"
"""Keys of a row: throughput, and that of one accelerator."""

MOST_NAMED = 9
"""Points of a front whose layouts are written."""

TINY = 6.5
"""Points of the layouts' labels."""


Curves = list[tuple[str, list[Row]]]
"""Name and points of each curve, those with most points first."""


# ---------------------------------------------------------------- scaling


def plot_scaling(rows: Sequence[Row], axes: Sequence[str], ax: Axes | None = None) -> Axes:
    """Throughput of one accelerator against their number: level is perfect scaling.

    A curve per value of the axis with most values, except the count, the others at fixed values.
    Percent: of the curve's most efficient point.
    """
    curves, legend, fixed = _curves(rows, axes)
    shown = curves[:MOST_CURVES]
    for_names = 0.2 + max((text_inches(name, SMALL) for name, _ in shown), default=0.5)
    ax = axes_of(ax, WIDTH, HEIGHT, (0.8 / WIDTH, 0.11, 1 - (0.8 + for_names) / WIDTH, 0.78))
    ax.set_xscale("log", base=2)
    ends: list[tuple[float, str, Any]] = []
    for (name, points), (colour, style), marker in zip(shown, STYLES, MARKERS, strict=False):
        x, y = [row[COUNT] for row in points], [row[RATE] for row in points]
        ax.plot(x, y, color=colour, linestyle=style, marker=marker, markersize=5, linewidth=1.6)
        ends.append((y[-1], f"{name}\n{percent(y[-1] / max(y), 0)}".lstrip(), colour))
    counts = sorted({row[COUNT] for _, points in curves for row in points})
    highest = max((row[RATE] for _, points in curves for row in points), default=1.0)
    # from zero, so that a loss looks as large as it is
    ax.set_ylim(0, 1.12 * highest)
    if counts:
        # half the mean distance of two counts on either side
        margin = (counts[-1] / counts[0]) ** (0.5 / max(len(counts) - 1, 1))
        ax.set_xlim(counts[0] / margin, counts[-1] * margin)
    if len(curves) == 1:
        _name_points(curves[0][1], ax)
    elif curves:
        _name_curves(ends, legend, ax)
    ticks = with_space(counts, ax)
    ax.set_xticks(ticks, [f"{count:,}" for count in ticks])
    ax.yaxis.set_major_formatter(short_tick)
    ax.minorticks_off()
    ax.set_xlabel(
        escaped(" ".join(["Accelerators", f"({fixed})" if fixed else ""])), fontsize=LABEL
    )
    ax.set_ylabel("Tokens per second of one accelerator", fontsize=LABEL)
    title(ax, _scaling_title(curves))
    return ax


def _curves(rows: Sequence[Row], axes: Sequence[str]) -> tuple[Curves, str, str]:
    """The curves, the words of their axis, and those of the fixed values.

    Of several rows at a count the fastest is taken.
    """
    known = with_figure(rows, RATE)
    # only one further axis can be told apart by colour
    others = [key for key in varying(known, [COUNT, *axes]) if key != COUNT]
    rows_shown, fixed = at_fixed_values(known, axes, [COUNT, *others[:1]])
    by_name: dict[str, dict[int, Row]] = {}
    for row in rows_shown:
        name = value_text(row.get(others[0])) if others else ""
        fastest = by_name.setdefault(name, {})
        if row[COUNT] not in fastest or row[RATE] > fastest[row[COUNT]][RATE]:
            fastest[row[COUNT]] = row
    curves = [
        (name, [points[count] for count in sorted(points)])
        for name, points in by_name.items()
        if len(points) > 1
    ]
    legend = axis_name(known, axes, others[0]) if others else ""
    return sorted(curves, key=lambda curve: -len(curve[1])), legend, where(fixed)


def _scaling_title(curves: Curves) -> str:
    if not curves:
        return "No two counts of accelerators have a plan"
    left = [points[-1][RATE] / max(row[RATE] for row in points) for _, points in curves]
    last = curves[0][1][-1][COUNT]
    shares = percent(min(left), 0)
    if len(left) > 1 and percent(max(left), 0) != shares:
        shares = f"{shares} to {percent(max(left), 0)}"
    if len(curves) == 1:
        points = curves[0][1]
        best = max(points, key=lambda row: row[RATE])
        if best is points[-1]:
            return f"The most accelerators, {last:,}, are the most efficient"
        return f"Most efficient at {best[COUNT]:,} accelerators; {last:,} reach {shares} of that"
    shown = f" ({MOST_CURVES} of {len(curves)} curves drawn)" if len(curves) > MOST_CURVES else ""
    return f"At {last:,} accelerators {shares} of the best efficiency is left{shown}"


def _name_points(points: Sequence[Row], ax: Axes) -> None:
    """Efficiency and layout under every point, on lines as wide as the points are apart.

    A label is left of its point where the curve would fall through it and there is space.
    """
    best = max(row[RATE] for row in points)
    width, height = inches(ax)
    unit, per_rate = width / len(points), height / ax.get_ylim()[1]
    drops = [(a[RATE] - b[RATE]) * per_rate for a, b in pairwise(points)]  # inches
    end = 0.0  # of the label before, right of its point, in inches
    for row, before, after in zip(points, [0.0, *drops], [*drops, 0.0], strict=True):
        label = wrapped(str(row.get("layout") or ""), 0.95 * unit, TINY)
        text = f"{percent(row[RATE] / best, 0)}\n{label}"
        wide, high = text_inches(label, TINY), (text.count("\n") + 1) * 1.3 * TINY / 72
        falls_through = after * wide / (2 * unit) > 8 / 72
        left = falls_through and (wide - 4 / 72 + end < unit or before > high)
        ax.annotate(
            escaped_lines(text), (row[COUNT], row[RATE]), xytext=(4 if left else 0, -8),
            textcoords="offset points", va="top", ha="right" if left else "center",
            fontsize=TINY, path_effects=halo(),
        )  # fmt: skip
        end = 4 / 72 if left else wide / 2


def _name_curves(ends: Sequence[tuple[float, str, Any]], legend: str, ax: Axes) -> None:
    """Name and efficiency of each curve right of its last point, and what they are."""
    _, height = inches(ax)
    top, right = ax.get_ylim()[1], ax.get_xlim()[1]
    heights = spread([y for y, _, _ in ends], 2.7 * SMALL / 72 * top / height)
    for (_, text, colour), place in zip(ends, heights, strict=True):
        ax.annotate(
            escaped_lines(text), (right, place), xytext=(3, 0), textcoords="offset points",
            va="center", fontsize=SMALL, color=colour, annotation_clip=False,
        )  # fmt: skip
    ax.annotate(
        escaped(f"At the right: {legend}, and % of the curve's best"), (0.99, 0.02),
        xycoords="axes fraction", ha="right", va="bottom", fontsize=SMALL, color=GREY,
    )  # fmt: skip


# ---------------------------------------------------------------- Pareto front


def front_of(points: Sequence[tuple[float, float]]) -> list[int]:
    """Positions of the points of the Pareto front, where less is better, by rising first figure."""
    order = sorted(range(len(points)), key=lambda i: points[i])
    front: list[int] = []
    for i in order:
        if not front or points[i][1] < points[front[-1]][1]:
            front.append(i)
    return front


def time_of(rows: Sequence[Row]) -> tuple[str, str]:
    """Key and words of the time by which all rows compare."""
    known = planned(rows)
    if known and all((row.get("days") or 0) > 0 for row in known):
        return "days", "Days of the whole run"
    return SPEED, "Hours per billion tokens"


def plot_pareto(rows: Sequence[Row], against: str = COUNT, ax: Axes | None = None) -> Axes:
    """Time against accelerators or another figure to be kept low; the front is drawn and named."""
    ax = axes_of(ax, WIDTH, HEIGHT)
    key, time_words = time_of(rows)
    known = [row for row in with_figure(rows, key) if (row.get(against) or 0) > 0]
    points = [
        (float(row[against]), float(row["days"]) if key == "days" else 1e9 / row[SPEED] / 3600)
        for row in known
    ]
    ax.set_xscale("log")
    ax.set_yscale("log")
    front = front_of(points)
    ax.plot(
        [x for x, _ in points], [y for _, y in points], linestyle="none", marker="o", markersize=5,
        markerfacecolor="white", markeredgecolor=GREY, label="other plans",
    )  # fmt: skip
    ax.plot(
        [points[i][0] for i in front], [points[i][1] for i in front], color=VERMILION, marker="o",
        markersize=6, linewidth=1.4, drawstyle="steps-post", label="Pareto front",
    )  # fmt: skip
    named = front if len(front) <= MOST_NAMED else _spaced(front, MOST_NAMED)
    labels = {i: f"{known[i][COUNT]:,}: {known[i].get('layout') or ''}" for i in named}
    if points:
        _limit_front(points, max(text_inches(text, SMALL) for text in labels.values()), ax)
    _name_front([(points[i], labels[i]) for i in named], ax)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(short_tick)
    _sparse_ticks(ax)
    if against == COUNT:
        ax.set_xticks(with_space(sorted({x for x, _ in points}), ax))
    figure_words = "Accelerators" if against == COUNT else FORMS[against][0]
    ax.set_xlabel(figure_words, fontsize=LABEL)
    ax.set_ylabel(time_words, fontsize=LABEL)
    ax.legend(loc="upper right", fontsize=SMALL, framealpha=1, edgecolor=PALE)
    figure = figure_words.partition(",")[0].lower()  # without its unit
    title(
        ax,
        f"{len(front)} of {plural(len(points), 'plan')} are on the Pareto front of time and "
        f"{figure}",
    )
    return ax


def _spaced(front: Sequence[int], number: int) -> list[int]:
    """So many of the front, evenly spaced, with both ends."""
    return [front[round(i * (len(front) - 1) / (number - 1))] for i in range(number)]


def _limit_front(points: Sequence[tuple[float, float]], widest: float, ax: Axes) -> None:
    """Limits with space left of the points for the names, which are where no point can be: below
    the front."""
    xs, ys = [log10(x) for x, _ in points], [log10(y) for _, y in points]
    width, _ = inches(ax)
    across = max(max(xs) - min(xs), 0.1)
    for_names = min((widest + 0.15) / width, 0.55)
    ax.set_xlim(
        10 ** (min(xs) - across * for_names / (1 - for_names)), 10 ** (max(xs) + 0.06 * across)
    )
    up = max(max(ys) - min(ys), 0.1)
    ax.set_ylim(10 ** (min(ys) - 0.12 * up), 10 ** (max(ys) + 0.2 * up))


def _name_front(front: Sequence[tuple[tuple[float, float], str]], ax: Axes) -> None:
    """Accelerators and layout left below the front's points, without overlaps."""
    if not front:
        return
    _, up = per_decade(ax)
    gap = 1.45 * SMALL / 72 / up
    heights = spread([log10(y) - 0.6 * gap for (_, y), _ in front], gap)
    for ((x, _), text), place in zip(front, heights, strict=True):
        ax.annotate(
            escaped(text), (x, 10**place), xytext=(-5, 0), textcoords="offset points", ha="right",
            va="center", fontsize=TINY, path_effects=halo(),
        )  # fmt: skip


def _sparse_ticks(ax: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
    ax.minorticks_off()
