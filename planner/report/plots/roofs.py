"""Pictures of a roofline: the stacked roofs and the work under them, message sizes, and ridges by
accelerator generation; each draws on `ax` or on a figure of its own.

The picture of the roofs is drawn by a function per layer, on axes whose limits are set first:
labels are laid out in inches of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import atan2, degrees, log10
from typing import TYPE_CHECKING, Any

from planner.advise.cluster_roofline import (
    COLLECTIVES,
    AcceleratorRidges,
    GroupPoint,
    Level,
    Roofline,
)
from planner.inputs.units import format_quantity
from planner.report.plots.drawing import (
    BLACK,
    BLUE,
    DENSE_DOTS,
    DOTS,
    GREY,
    LABEL,
    ORANGE,
    PALE,
    SMALL,
    STYLES,
    VERMILION,
    axes_of,
    escaped,
    figure_of,
    halo,
    inches,
    label_once,
    per_decade,
    power_tick,
    title,
)
from planner.report.plots.labels import flags, rows, spread, text_inches
from planner.report.text.numbers import from_ridge, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def roofs_page(roofline: Roofline, accelerators: Sequence[AcceleratorRidges]) -> Figure:
    """All three plots on one page: roofs above, message sizes and generations below."""
    figure = figure_of(7.6, 9.4)
    plot_roofs(roofline, figure.add_axes((0.095, 0.425, 0.775, 0.545)))
    plot_message_seconds(roofline, figure.add_axes((0.095, 0.075, 0.38, 0.255)))
    plot_ridges(accelerators, figure.add_axes((0.575, 0.075, 0.405, 0.255)), roofline.accelerator)
    return figure


def _styles(roofline: Roofline) -> list[tuple[str, Any]]:
    """Colour and line style of each level."""
    return [STYLES[i % len(STYLES)] for i in range(len(roofline.levels))]


# ---------------------------------------------------------------- stacked roofs

MARKERS = ("o", "s", "^", "v", "P", "X")
"""Marker of each group of a plan."""

CALL_SECONDS = 1e-5
"""Work at the peak between two calls, for which latency roofs are drawn."""

LATENCY_ROOF = f"latency, an all-gather every {seconds(CALL_SECONDS, 2)} of work"

CLOSE = 0.26
"""Inches between slopes below which their names are at different heights."""

LANE = 0.3
"""Inches of a row of names above the roofs."""

THIN: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.6, "color": GREY}
"""Lines from names to what they name."""


def plot_roofs(roofline: Roofline, ax: Axes | None = None) -> Axes:
    """Attainable FLOP/s against intensity under every level's roof, and where the work is.

    A sloped line per level (neighbours of one bandwidth share it), the dense compute roofs and the
    vector unit's, the ridges, operator classes on HBM's roof, a marker per group of the plan with
    an open one at its exposed intensity, and dotted latency roofs for an all-gather every
    CALL_SECONDS of work. Names of the flat roofs are right of the axes: leave 0.9 inches there.
    """
    ax = axes_of(ax, 7.6, 5.4)
    ax.set_xscale("log")
    ax.set_yscale("log")
    lanes = _limit(roofline, ax)
    _draw_levels(roofline, ax)
    _draw_flat_roofs(roofline, ax)
    _draw_operators(roofline, ax)
    _draw_groups(roofline, ax)
    _draw_flags(roofline, ax, lanes)
    ax.xaxis.set_major_formatter(power_tick)
    low, high = ax.get_ylim()[0], max(roofline.peak_flops.values())
    ax.set_yticks([tick for tick in ax.get_yticks() if low <= tick <= high])
    ax.yaxis.set_major_formatter(lambda value, _: power_tick(value / 1e12))
    ax.minorticks_off()
    ax.set_xlabel("Intensity: FLOPs per byte of memory or tier", fontsize=LABEL)
    ax.set_ylabel("Attainable TFLOP/s of one accelerator", fontsize=LABEL)
    topology, precision = escaped(roofline.topology), roofline.precision.upper()
    title(ax, f"Roofs of {topology}, {precision}: {_subject(roofline)}")
    ax.legend(loc="upper left", fontsize=SMALL, framealpha=1, edgecolor=PALE)
    return ax


def _subject(roofline: Roofline) -> str:
    if roofline.plan is None:
        return escaped(roofline.accelerator)
    job = roofline.plan.inputs
    name, accelerator = escaped(job["model"]["name"]), escaped(roofline.accelerator)
    return f"{name} on {job['num_accelerators']:,} × {accelerator}"


@dataclass(frozen=True, slots=True)
class _Flag:
    """A point at the compute roof, whose name is above all roofs."""

    x: float
    y: float
    text: str
    colour: str


def _flags(roofline: Roofline) -> list[_Flag]:
    operators = [
        _Flag(p.intensity, p.attainable_flops, p.name, BLACK)
        for p in roofline.operators
        if p.wall == "compute"
    ]
    groups = [
        _Flag(g.intensity, g.attainable_flops, _group_text(g), colour)
        for g, colour in zip(roofline.groups, _group_colours(roofline), strict=True)
        if g.wall == "compute"
    ]
    return operators + groups


def _limit(roofline: Roofline, ax: Axes) -> list[int]:
    """Set the limits so that all roofs and names are inside; return the row of each flag."""
    width, height = inches(ax)
    named, peaks = _flags(roofline), roofline.peak_flops.values()
    left = log10(min(p.intensity for p in roofline.operators) / 60)
    slowest = min(level.bytes_per_second for level in roofline.levels)
    # right of all ridges, and of all groups
    reach = [4 * max(peaks) / slowest]
    reach += [4 * (point.exposed_intensity or point.intensity) for point in roofline.groups]
    # a name of w inches right of x takes w/width of all decades, at most half of them
    rights = [
        left
        + (log10(flag.x) - left) / (1 - min(0.5, (text_inches(flag.text, SMALL) + 0.05) / width))
        for flag in named
    ]
    right = max([log10(max(reach)), *rights])
    ax.set_xlim(10**left, 10**right)
    across = width / (right - left)
    lanes = flags([(log10(f.x), text_inches(f.text, SMALL) / across) for f in named])
    bottom = min(point.attainable_flops for point in roofline.operators) / 6
    # share of the height that is left under the lanes of names
    free = 1 - LANE * (max(lanes, default=0) + 1.5) / height
    ax.set_ylim(bottom, bottom * (max(peaks) / bottom) ** (1 / free))
    return lanes


def _shared(roofline: Roofline) -> list[tuple[list[Level], tuple[str, Any]]]:
    """Neighbouring levels of one bandwidth together, with the style of the first."""
    pairs = zip(roofline.levels, _styles(roofline), strict=True)
    # levels of one bandwidth are one line; two would hide each other
    together = [
        list(members) for _, members in groupby(pairs, key=lambda pair: pair[0].bytes_per_second)
    ]
    return [([level for level, _ in members], members[0][1]) for members in together]


def _draw_levels(roofline: Roofline, ax: Axes) -> None:
    """Slopes with their names along them; ridges, with their figures at the foot."""
    bottom, _ = ax.get_ylim()
    top = max(roofline.peak_flops.values())
    across, up = per_decade(ax)
    shared = _shared(roofline)
    ridges = [roofline.peak / levels[0].bytes_per_second for levels, _ in shared]
    names = [escaped(", ".join(level.name for level in levels)) for levels, _ in shared]
    feet = [f"{name}\n{ridge:,.0f}" for name, ridge in zip(names, ridges, strict=True)]
    taken = rows([_span(ax, x, foot) for x, foot in zip(ridges, feet, strict=True)])
    share = 0.0
    for i, (levels, (colour, style)) in enumerate(shared):
        beta, ridge = levels[0].bytes_per_second, ridges[i]
        apart = across * log10(ridge / ridges[i - 1]) if i else CLOSE
        share = 0.3 if apart >= CLOSE or share > 0.3 else 0.55  # of the slope, where its name is
        named_at = bottom * (roofline.peak / bottom) ** share
        ax.plot(
            [bottom / beta, top / beta], [bottom, top], color=colour, linestyle=style,
            linewidth=1.6,
        )  # fmt: skip
        ax.plot([ridge] * 2, [bottom, roofline.peak], color=colour, linewidth=0.7, linestyle=DOTS)
        ax.plot([ridge], [roofline.peak], marker="o", markersize=4.5, color=colour, zorder=5)
        ax.annotate(
            feet[i], (ridge, bottom), xytext=(0, 3 + 22 * taken[i]), textcoords="offset points",
            ha="center", va="bottom", fontsize=SMALL, color=colour, path_effects=halo(),
        )  # fmt: skip
        ax.annotate(
            f"{names[i]}  {format_quantity(beta, 'B/s', 3)}", (named_at / beta, named_at),
            xytext=(8, -6), textcoords="offset points", rotation=degrees(atan2(up, across)),
            rotation_mode="anchor", ha="center", va="top", fontsize=LABEL, color=colour,
            path_effects=halo(),
        )  # fmt: skip


def _draw_flat_roofs(roofline: Roofline, ax: Axes) -> None:
    """Compute roofs from HBM's slope on, latency roofs from their tier's; names at the right."""
    hbm, right = roofline.levels[0].bytes_per_second, ax.get_xlim()[1]
    named: list[tuple[float, str, str, bool]] = []
    tensor = sorted(roofline.peak_flops.items(), key=lambda item: item[1])
    for peak, same in groupby(tensor, key=lambda item: item[1]):
        names = [name for name, _ in same]
        main = roofline.precision in names
        colour, width = (BLACK, 2.0) if main else (GREY, 0.9)
        ax.plot([peak / hbm, right], [peak] * 2, color=colour, linewidth=width)
        text = f"{', '.join(name.upper() for name in names)}\n{peak / 1e12:,.5g}"
        named.append((peak, text, colour, main))
    vector = roofline.vector_flops
    ax.plot([vector / hbm, right], [vector] * 2, color=GREY, linewidth=0.9)
    named.append((vector, f"vector unit\n{vector / 1e12:,.5g}", GREY, False))
    for level, (colour, _) in zip(roofline.levels, _styles(roofline), strict=True):
        messages = level.messages.get("all_gather")
        if messages is None or messages.latency_seconds <= CALL_SECONDS:
            continue
        height = roofline.peak * CALL_SECONDS / messages.latency_seconds
        knee = height / level.bytes_per_second
        ax.plot(
            [knee, right], [height] * 2, color=colour, linewidth=1.3, linestyle=DENSE_DOTS,
            marker="D", markevery=[0], markersize=5, markerfacecolor="white",
            label=label_once(ax, LATENCY_ROOF),
        )  # fmt: skip
        named.append(
            (height, f"latency\n{escaped(level.name)} × {messages.members:,}", colour, False)
        )
    # decades that two lines of text take
    gap = 2.5 * SMALL / 72 / per_decade(ax)[1]
    heights = spread([log10(height) for height, *_ in named], gap)
    for (_, text, colour, main), height in zip(named, heights, strict=True):
        ax.annotate(
            text, (right, 10**height), xytext=(4, 0), textcoords="offset points", va="center",
            fontsize=SMALL, color=colour, fontweight="bold" if main else "normal",
            annotation_clip=False,
        )  # fmt: skip


def _draw_operators(roofline: Roofline, ax: Axes) -> None:
    """Operator classes on HBM's roof; names of those on the slope to its left."""
    points = roofline.operators
    ax.plot(
        [p.intensity for p in points], [p.attainable_flops for p in points], linestyle="none",
        marker="d", markersize=6, color=ORANGE, markeredgecolor=BLACK, markeredgewidth=0.7,
        zorder=6, label="operator class, on HBM's roof",
    )  # fmt: skip
    sloped = [point for point in points if point.wall == "bandwidth"]
    # decades that a line of text takes
    gap = 1.3 * SMALL / 72 / per_decade(ax)[1]
    heights = spread([log10(point.attainable_flops) for point in sloped], gap)
    for point, height in zip(sloped, heights, strict=True):
        ax.annotate(
            point.name, (point.intensity, point.attainable_flops),
            xytext=(point.intensity / 2.2, 10**height), textcoords="data", ha="right",
            va="center", fontsize=SMALL, path_effects=halo(), arrowprops=THIN | {"shrinkB": 3},
        )  # fmt: skip


def _draw_groups(roofline: Roofline, ax: Axes) -> None:
    """The plan's groups: filled at their intensity, open at the exposed one."""
    colours = _group_colours(roofline)
    for i, (group, colour) in enumerate(zip(roofline.groups, colours, strict=True)):
        x, y, marker = group.intensity, group.attainable_flops, MARKERS[i % len(MARKERS)]
        ax.plot(
            [x], [y], marker=marker, markersize=8, color=colour, markeredgecolor=BLACK,
            linestyle="none", zorder=7, label=label_once(ax, "group, per byte moved"),
        )  # fmt: skip
        if group.wall != "compute":
            ax.annotate(
                _group_text(group), (x, y),
                xytext=(9, -5), textcoords="offset points", va="top", fontsize=SMALL,
                color=colour, path_effects=halo(), zorder=8,
            )  # fmt: skip
        if group.exposed_intensity is None:
            continue
        exposed = min(roofline.peak, group.exposed_intensity * roofline.peak / group.ridge)
        ax.plot(
            [group.exposed_intensity], [exposed], marker=marker, markersize=8,
            markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.4,
            linestyle="none", zorder=7, label=label_once(ax, "group, per exposed byte"),
        )  # fmt: skip
        ax.annotate(
            "", (group.exposed_intensity, exposed), xytext=(x, y), zorder=6,
            arrowprops={"arrowstyle": "->", "linewidth": 1.0, "color": colour, "shrinkA": 5,
                        "shrinkB": 5, "connectionstyle": "arc3,rad=0.25"},
        )  # fmt: skip


def _group_colours(roofline: Roofline) -> list[str]:
    colours = {
        level.name: colour
        for level, (colour, _) in zip(roofline.levels, _styles(roofline), strict=True)
    }
    return [colours[group.tier] for group in roofline.groups]


def _draw_flags(roofline: Roofline, ax: Axes, lanes: Sequence[int]) -> None:
    """Names of what is at the compute roof, on poles, in lanes above all roofs."""
    base, lane = max(roofline.peak_flops.values()), LANE / per_decade(ax)[1]
    for flag, row in zip(_flags(roofline), lanes, strict=True):
        foot = base * 10 ** ((0.3 + row) * lane)
        top = foot * 10 ** (0.5 * lane)
        ax.plot([flag.x, flag.x], [flag.y, top], color=flag.colour, linewidth=0.7, zorder=4)
        ax.annotate(
            flag.text, (flag.x, foot), xytext=(2.5, 0), textcoords="offset points", ha="left",
            va="bottom", fontsize=SMALL, color=flag.colour, path_effects=halo(),
        )  # fmt: skip


def _span(ax: Axes, x: float, text: str) -> tuple[float, float]:
    """Decades that a text centred at x covers, with a little space around."""
    half = (text_inches(text, SMALL) / 2 + 0.03) / per_decade(ax)[0]
    return log10(x) - half, log10(x) + half


def _group_text(group: GroupPoint) -> str:
    return f"{group.name} on {escaped(group.tier)}\n{from_ridge(group.margin)} of ridge"


# ---------------------------------------------------------------- message sizes


def plot_message_seconds(
    roofline: Roofline, ax: Axes | None = None, collective: str = "all_gather"
) -> Axes:
    """Seconds of a call against its message size: a curve per tier over its two roofs.

    Dotted: only start-up, and only bytes; they cross at the latency knee, which is named.
    """
    ax = axes_of(ax, 5.0, 3.8)
    ax.set_xscale("log")
    ax.set_yscale("log")
    tiers = [
        (level.name, style, level.messages[collective])
        for level, style in zip(roofline.levels, _styles(roofline), strict=True)
        if collective in level.messages
    ]
    for name, (colour, style), m in tiers:
        ax.plot(
            m.num_bytes, m.seconds, color=colour, linestyle=style, linewidth=1.6,
            label=f"{escaped(name)} × {m.members:,}: {format_quantity(m.knee_bytes, 'B', 2)}",
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
        ax.set_ylim(min(starts) / 3, max(1.2 * longest, 1e4 * max(starts)))  # legend above
        ax.legend(loc="upper left", fontsize=SMALL, framealpha=1, edgecolor=PALE)
    ax.set_xticks([1e3, 1e6, 1e9], ["1 kB", "1 MB", "1 GB"])
    ax.yaxis.set_major_formatter(lambda value, _: seconds(value, 1))
    ax.minorticks_off()
    ax.set_xlabel("Message size", fontsize=LABEL)
    title(ax, f"Latency knee of {COLLECTIVES[collective]}s")
    return ax


# ---------------------------------------------------------------- ridges by generation

RIDGE_LINES = (
    ("16-bit", ("bf16", "fp16"), BLACK, "-", "o"),
    ("FP8", ("fp8",), BLUE, (0, (7, 2)), "s"),
    ("FP4", ("fp4",), VERMILION, (0, (7, 2, 1.5, 2)), "^"),
)
"""Label, precisions (the first that an accelerator has), colour, line style, marker."""

FAMILY_GAP = 0.7
"""Space between families of accelerators, in places of one."""


def plot_ridges(
    accelerators: Sequence[AcceleratorRidges], ax: Axes | None = None, highlight: str | None = None
) -> Axes:
    """Ridges of memory by accelerator generation: a line per precision and family.

    The accelerator named `highlight` is in a pale band.
    """
    ax = axes_of(ax, 5.0, 3.8)
    ax.set_yscale("log")
    families = [list(members) for _, members in groupby(accelerators, key=lambda one: one.family)]
    places = {
        one.name: i + FAMILY_GAP * number
        for number, members in enumerate(families)
        for i, one in enumerate(accelerators)
        if one in members
    }
    drawn: list[tuple[float, float]] = []
    for label, precisions, colour, style, marker in RIDGE_LINES:
        for members in families:
            known = [
                (places[one.name], next(one.ridges[p] for p in precisions if p in one.ridges))
                for one in members
                if not one.ridges.keys().isdisjoint(precisions)
            ]
            if known:
                ax.plot(
                    [x for x, _ in known], [y for _, y in known], color=colour, linestyle=style,
                    marker=marker, markersize=5, linewidth=1.4, label=label_once(ax, label),
                )  # fmt: skip
            drawn += known
            if label == RIDGE_LINES[0][0]:
                _name_ridges(known, ax)
    if highlight in places:
        x = places[highlight]
        ax.axvspan(x - 0.5, x + 0.5, color=PALE, alpha=0.6, linewidth=0, zorder=0)
    ax.set_xticks(
        list(places.values()), [escaped(_generation(one)) for one in accelerators], rotation=60,
        ha="right", rotation_mode="anchor", fontsize=SMALL,
    )  # fmt: skip
    lowest = min(ridge for _, ridge in drawn) if drawn else 100
    ax.set_ylim(min(80, 0.55 * lowest), 4500)
    ax.set_yticks([100, 200, 500, 1000, 2000], ["100", "200", "500", "1,000", "2,000"])
    ax.grid(False, axis="x")
    ax.minorticks_off()
    title(ax, "Memory wall: ridge of HBM, FLOP/B")
    ax.legend(loc="upper left", fontsize=SMALL, framealpha=1, edgecolor=PALE, ncols=3)
    return ax


def _generation(accelerator: AcceleratorRidges) -> str:
    """'H100' of a shipped family; with the form factor for one that is of no family."""
    words = [word for word in accelerator.name.upper().split("-") if not word.endswith("GB")]
    return (words or [accelerator.name])[0] if accelerator.family else "-".join(words)[:12]


def _name_ridges(points: Sequence[tuple[float, float]], ax: Axes) -> None:
    """Figures under their points, or above where the line falls to the right."""
    nexts = [y for _, y in points[1:]] + [float("inf")]
    for (x, y), following in zip(points, nexts, strict=True):
        above = following < y
        ax.annotate(
            f"{y:,.0f}", (x, y), xytext=(0, 5 if above else -5), textcoords="offset points",
            ha="center", va="bottom" if above else "top", fontsize=SMALL, path_effects=halo(),
        )  # fmt: skip
