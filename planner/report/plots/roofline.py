"""Pictures of a roofline, one function per plot; each draws on `ax` or on a figure of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from planner.advise.cluster_roofline import COLLECTIVES, AcceleratorRidges, Roofline
from planner.inputs.units import format_quantity
from planner.report.plots.drawing import (
    BLACK,
    BLUE,
    DENSE_DOTS,
    LABEL,
    PALE,
    SMALL,
    VERMILION,
    axes_of,
    check_format,
    figure_of,
    halo,
    once,
    said,
    save,
    styles_of,
    title,
)
from planner.report.plots.roofs import plot_roofs
from planner.report.text.numbers import seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIDGE_LINES = (
    ("16-bit", ("bf16", "fp16"), BLACK, "-", "o"),
    ("FP8", ("fp8",), BLUE, (0, (7, 2)), "s"),
    ("FP4", ("fp4",), VERMILION, (0, (7, 2, 1.5, 2)), "^"),
)
"""Label, precisions (the first a part has), colour, line style, marker."""

GAP = 0.7
"""Room between families of accelerators, in parts."""


def page(roofline: Roofline, parts: Sequence[AcceleratorRidges]) -> Figure:
    """All three plots on one page: roofs above, message sizes and generations below."""
    figure = figure_of(7.6, 9.4)
    plot_roofs(roofline, figure.add_axes((0.095, 0.425, 0.775, 0.545)))
    plot_message_seconds(roofline, figure.add_axes((0.095, 0.075, 0.38, 0.255)))
    plot_ridges(parts, figure.add_axes((0.575, 0.075, 0.405, 0.255)), roofline.accelerator)
    return figure


def plot_message_seconds(
    roofline: Roofline, ax: Axes | None = None, collective: str = "all_gather"
) -> Axes:
    """Seconds of a call against its message size: a curve per tier over its two roofs.

    Dotted: start-up alone and bytes alone; they cross at the latency knee, which is named.
    """
    ax = axes_of(ax, 5.0, 3.8)
    ax.set_xscale("log")
    ax.set_yscale("log")
    tiers = [
        (level.name, style, level.messages[collective])
        for level, style in zip(roofline.levels, styles_of(roofline), strict=True)
        if collective in level.messages
    ]
    for name, (colour, style), m in tiers:
        ax.plot(
            m.num_bytes, m.seconds, color=colour, linestyle=style, linewidth=1.6,
            label=f"{said(name)} × {m.members:,}: {format_quantity(m.knee_bytes, 'B', 2)}",
        )  # fmt: skip
        if m.latency_seconds <= 0:
            continue
        ends = [m.num_bytes[0], m.knee_bytes, m.num_bytes[-1]]
        ax.plot(
            ends, [max(m.latency_seconds, m.latency_seconds * x / m.knee_bytes) for x in ends],
            color=colour, linewidth=1.0, linestyle=DENSE_DOTS, marker="D", markevery=[1],
            markersize=5, markerfacecolor="white",
        )  # fmt: skip
    if tiers:
        starts = [m.seconds[0] for _, _, m in tiers]
        ax.set_xlim(tiers[0][2].num_bytes[0], tiers[0][2].num_bytes[-1])
        longest = max(m.seconds[-1] for _, _, m in tiers)
        ax.set_ylim(min(starts) / 3, max(1.2 * longest, 1e4 * max(starts)))
        ax.legend(loc="upper left", fontsize=SMALL, framealpha=1, edgecolor=PALE)
    ax.set_xticks([1e3, 1e6, 1e9], ["1 kB", "1 MB", "1 GB"])
    ax.yaxis.set_major_formatter(lambda value, _: seconds(value, 1))
    ax.minorticks_off()
    ax.set_xlabel("Message", fontsize=LABEL)
    title(ax, f"Latency knee of {COLLECTIVES[collective]}s")
    return ax


# ---------------------------------------------------------------- ridge by generation


def plot_ridges(
    parts: Sequence[AcceleratorRidges], ax: Axes | None = None, highlight: str | None = None
) -> Axes:
    """Ridges of memory by accelerator generation: a line per precision and family.

    The part named `highlight` stands in a pale band.
    """
    ax = axes_of(ax, 5.0, 3.8)
    ax.set_yscale("log")
    families = [list(members) for _, members in groupby(parts, key=lambda part: part.family)]
    places = {
        part.name: i + GAP * number
        for number, members in enumerate(families)
        for i, part in enumerate(parts)
        if part in members
    }
    drawn: list[tuple[float, float]] = []
    for label, precisions, colour, style, marker in RIDGE_LINES:
        for members in families:
            known = [
                (places[part.name], next(part.ridges[p] for p in precisions if p in part.ridges))
                for part in members
                if not part.ridges.keys().isdisjoint(precisions)
            ]
            if known:
                ax.plot(
                    [x for x, _ in known], [y for _, y in known], color=colour, linestyle=style,
                    marker=marker, markersize=5, linewidth=1.4, label=once(ax, label),
                )  # fmt: skip
            drawn += known
            if label == RIDGE_LINES[0][0]:
                _name_ridges(known, ax)
    if highlight in places:
        x = places[highlight]
        ax.axvspan(x - 0.5, x + 0.5, color=PALE, alpha=0.6, linewidth=0, zorder=0)
    ax.set_xticks(
        list(places.values()), [said(_short(part)) for part in parts], rotation=60, ha="right",
        rotation_mode="anchor", fontsize=SMALL,
    )  # fmt: skip
    lowest = min(ridge for _, ridge in drawn) if drawn else 100
    ax.set_ylim(min(80, 0.55 * lowest), 4500)
    ax.set_yticks([100, 200, 500, 1000, 2000], ["100", "200", "500", "1,000", "2,000"])
    ax.grid(False, axis="x")
    ax.minorticks_off()
    title(ax, "Memory wall: ridge of HBM, FLOP/B")
    ax.legend(loc="upper left", fontsize=SMALL, framealpha=1, edgecolor=PALE, ncols=3)
    return ax


def _short(part: AcceleratorRidges) -> str:
    """The chip of a shipped generation; of a part that stands alone its form too."""
    words = [word for word in part.name.upper().split("-") if not word.endswith("GB")]
    return (words or [part.name])[0] if part.family else "-".join(words)[:12]


def _name_ridges(points: Sequence[tuple[float, float]], ax: Axes) -> None:
    """Figures under their points, or above where the line falls away to the right."""
    nexts = [y for _, y in points[1:]] + [float("inf")]
    for (x, y), following in zip(points, nexts, strict=True):
        above = following < y
        ax.annotate(
            f"{y:,.0f}", (x, y), xytext=(0, 5 if above else -5), textcoords="offset points",
            ha="center", va="bottom" if above else "top", fontsize=SMALL, path_effects=halo(),
        )  # fmt: skip


__all__ = [
    "check_format",
    "page",
    "plot_message_seconds",
    "plot_ridges",
    "plot_roofs",
    "save",
]
