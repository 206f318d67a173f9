"""Pictures of accuracy: predicted against measured, and relative errors along any axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from planner.report.plots.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LABEL,
    ORANGE,
    PALE,
    PURPLE,
    SMALL,
    VERMILION,
    axes_of,
    escaped,
    figure_of,
    title,
)
from planner.report.text.numbers import percent, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = Mapping[str, Any]
"""A row of `evidence.maintenance.accuracy`: measured_seconds, predicted_seconds, error_fraction,
fitted, source, accelerator, software, and a value of each axis."""

LOOKS = (
    (BLUE, "o"), (VERMILION, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (BLACK, "P"),
    (GREY, "X"), (VERMILION, "<"), (BLUE, ">"), (GREEN, "p"),
)  # fmt: skip
"""Colour and marker of each software profile."""

BAND = 0.2
"""Errors inside this share of the measured time are in the grey band."""

MOST_SHOWN, TOP = 0.45, 0.53
"""Larger relative errors are drawn at the edge, as triangles; medians are written above."""

AXES = {
    "source": "Source", "accelerator": "Accelerator", "software": "Software profile",
    "precision": "Precision", "recompute": "Recompute", "tp": "Tensor parallel",
    "cp": "Context parallel", "pp": "Pipeline parallel, up to", "dp": "Data parallel, up to",
}  # fmt: skip
"""Axis → the title of its residuals."""


# ---------------------------------------------------------------- predicted against measured


def predicted_page(points: Sequence[Point]) -> Figure:
    """Predicted against measured, on one page."""
    figure = figure_of(6.4, 5.8)
    plot_predicted(points, figure.add_axes((0.12, 0.1, 0.84, 0.84)))
    return figure


def plot_predicted(points: Sequence[Point], ax: Axes | None = None) -> Axes:
    """Predicted against measured seconds of a step, a marker per row in its profile's colour.

    Filled markers are predictions by numbers that never saw the row's source; hollow ones by those
    fitted to it. Predictions on the line are
    exact; the band is 20 % to either side.
    """
    ax = axes_of(ax, 6.4, 5.6)
    ax.set_xscale("log")
    ax.set_yscale("log")
    times = [p[key] for p in points for key in ("measured_seconds", "predicted_seconds")]
    # both axes have the same limits, so that exact predictions are on the diagonal
    low, high = min(times, default=1.0) / 1.5, max(times, default=1.0) * 1.5
    ax.fill_between(
        [low, high], [low * (1 - BAND), high * (1 - BAND)], [low * (1 + BAND), high * (1 + BAND)],
        color=PALE, alpha=0.6, linewidth=0, zorder=0.5,
    )  # fmt: skip
    ax.plot([low, high], [low, high], color=GREY, linewidth=0.9)
    profiles = sorted({p["software"] for p in points})
    for profile, (colour, marker) in zip(profiles, _looks(len(profiles)), strict=True):
        for fitted in (True, False):
            rows = [p for p in points if p["software"] == profile and p["fitted"] == fitted]
            ax.plot(
                [p["measured_seconds"] for p in rows], [p["predicted_seconds"] for p in rows],
                linestyle="none", marker=marker, markersize=4, markeredgewidth=0.7,
                markeredgecolor=colour, alpha=0.75,
                markerfacecolor="none" if fitted else colour,
                label=escaped(profile) if fitted else None,
            )  # fmt: skip
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: seconds(value, 1))
    ax.minorticks_off()
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_xlabel("Measured step", fontsize=LABEL)
    ax.set_ylabel("Predicted step", fontsize=LABEL)
    if profiles:
        ax.legend(
            loc="upper left", fontsize=SMALL, framealpha=1, edgecolor=PALE,
            title="filled: left out, hollow: fitted", title_fontsize=SMALL,
        )  # fmt: skip
    title(ax, f"{sum(p['fitted'] for p in points):,} measured runs, band ±{percent(BAND, 0)}")
    return ax


def _looks(number: int) -> list[tuple[str, str]]:
    return [LOOKS[i % len(LOOKS)] for i in range(number)]


# ---------------------------------------------------------------- relative errors by an axis


def residuals_page(points: Sequence[Point]) -> Figure:
    """Relative errors along every axis, on one page."""
    figure = figure_of(10.0, 14.0)
    wide, tall = 0.425, 0.115
    places = [(left, 0.86 - 0.197 * row) for row in range(5) for left in (0.065, 0.56)]
    for axis, (left, bottom) in zip(AXES, places, strict=False):
        plot_residuals(points, axis, figure.add_axes((left, bottom, wide, tall)))
    key = figure.add_axes((*places[len(AXES)], wide, tall))
    key.set_axis_off()
    key.text(
        0.0, 0.5,
        "Relative error of the predicted step, predicted / measured - 1.\n"
        "Filled: predicted by numbers fitted without the source. Hollow: fitted to it.\n"
        "A column per value, with the number of its rows, sorted by error.\n"
        "Line: median, written above in %.\n"
        f"Band: ±{percent(BAND, 0)}. Triangles: beyond ±{percent(MOST_SHOWN, 0)}.",
        fontsize=LABEL, va="center",
    )  # fmt: skip
    return figure


def plot_residuals(points: Sequence[Point], axis: str, ax: Axes | None = None) -> Axes:
    """Relative error, predicted / measured - 1, of every row by its value along an axis.

    A column per value with its rows by rising error, and a line at their median, which is written
    above. Errors beyond the page are triangles at its edge.
    """
    ax = axes_of(ax, 5.0, 3.0)
    names = _order({str(p[axis]) for p in points})
    ax.axhspan(-BAND, BAND, color=PALE, alpha=0.6, linewidth=0, zorder=0.5)
    ax.axhline(0, color=GREY, linewidth=0.9)
    counts = []
    for column, name in enumerate(names):
        rows = sorted((p for p in points if str(p[axis]) == name), key=_error)
        counts.append(len(rows))
        _draw_column(column, rows, ax)
    _name_columns(names, counts, ax)
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_ylim(-MOST_SHOWN * 1.05, TOP * 1.1)
    ax.set_yticks([-0.4, -0.2, 0, 0.2, 0.4])
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+.0f} %" if value else "0")
    ax.grid(False, axis="x")
    title(ax, AXES.get(axis, axis))
    return ax


def _draw_column(column: int, rows: Sequence[Point], ax: Axes) -> None:
    """The rows of one value, by rising error, and their median."""
    for fitted, colour, face in ((True, BLUE, "none"), (False, VERMILION, VERMILION)):
        for marker, is_shown in (("o", _inside), ("^", _above), ("v", _below)):
            chosen = [(i, _error(p)) for i, p in enumerate(rows)
                      if p["fitted"] == fitted and is_shown(_error(p))]  # fmt: skip
            ax.plot(
                [column + 0.7 * ((i + 0.5) / len(rows) - 0.5) for i, _ in chosen],
                [min(max(e, -MOST_SHOWN), MOST_SHOWN) for _, e in chosen],
                linestyle="none", marker=marker, markersize=2.6, markeredgewidth=0.5,
                markeredgecolor=colour, markerfacecolor=face, alpha=0.8,
            )  # fmt: skip
    middle = median(_error(p) for p in rows)
    ax.plot([column - 0.38, column + 0.38], [middle] * 2, color=BLACK, linewidth=1.6)
    ax.annotate(
        f"{100 * middle:+.0f}".replace("+0", "0").replace("-0", "0"), (column, TOP),
        ha="center", va="center", fontsize=SMALL,
    )  # fmt: skip


def _name_columns(names: Sequence[str], counts: Sequence[int], ax: Axes) -> None:
    short = [escaped(_short(name)) for name in names]
    tilted = max(map(len, short), default=0) > 7
    ax.set_xticks(
        range(len(names)),
        [f"{n} ({c})" if tilted else f"{n}\n({c})" for n, c in zip(short, counts, strict=True)],
        rotation=35 if tilted else 0, ha="right" if tilted else "center",
        rotation_mode="anchor" if tilted else None, fontsize=SMALL,
    )  # fmt: skip


def _error(point: Point) -> float:
    return float(point["error_fraction"])


def _inside(error: float) -> bool:
    return abs(error) <= MOST_SHOWN


def _above(error: float) -> bool:
    return error > MOST_SHOWN


def _below(error: float) -> bool:
    return error < -MOST_SHOWN


def _order(names: set[str]) -> list[str]:
    """Numbers by size ('17-32' by 17), then words by name."""

    def key(name: str) -> tuple[bool, int, str]:
        first = name.split("-")[0]
        return (not first.isdigit(), int(first) if first.isdigit() else 0, name)

    return sorted(names, key=key)


def _short(name: str) -> str:
    """'Megatron-LM' of 'NVIDIA/Megatron-LM', and the end of a range such as '17-32'."""
    last = name.rsplit("/", 1)[-1]
    return last.rsplit("-", 1)[-1] if last.replace("-", "").isdigit() else last
