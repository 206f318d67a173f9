"""A picture of what changes of hardware or job would save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.advise.what_if import Upgrade, WhatIf
from planner.report.plots.drawing import (
    BLUE,
    LABEL,
    SKY,
    SMALL,
    VERMILION,
    axes_of,
    escaped_lines,
    inches,
    title,
)
from planner.report.plots.labels import text_inches, wrapped
from planner.report.text.numbers import percent
from planner.report.text.pieces import printable
from planner.report.text.sweep_rows import shortened
from planner.report.text.what_if import NOTHING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW, LINE, TOP, BOTTOM, NAMES = 7.6, 0.3, 0.16, 0.4, 0.75, 2.6
"""Inches: the page, a row, a further line of its name, margins, the width of names."""

LEGEND_INCHES = 0.42
"""How far the legend is under the axes, below their label."""

MINIMUM_RANGE = 0.01
"""Share of a step that the axis shows at least; from five of them on its ticks are whole
percents."""

SAME, OTHER, LONGER = "with the same layout", "more with another", "takes longer"
COLOURS = {SAME: BLUE, OTHER: SKY, LONGER: VERMILION}


def plot_upgrades(outlook: WhatIf, ax: Axes | None = None) -> Axes:
    """A bar per possible change, the largest saving first: what the same layout saves, and what
    planning anew saves beyond it."""
    base_seconds = outlook.plan.objective_seconds
    assert base_seconds is not None
    upgrades = sorted(
        ((u, u.gain_fraction) for u in outlook.upgrades if u.gain_fraction is not None),
        key=lambda pair: -pair[1],
    )
    names = [escaped_lines(_name(upgrade)) for upgrade, _ in upgrades]
    row = ROW + LINE * max((name.count("\n") for name in names), default=0)
    height = TOP + row * max(len(upgrades), 1) + BOTTOM
    box = (NAMES / WIDTH, BOTTOM / height, 1 - (NAMES + 0.2) / WIDTH, 1 - (TOP + BOTTOM) / height)
    ax = axes_of(ax, WIDTH, height, box)
    for place, (upgrade, gain) in enumerate(upgrades):
        _bar(place, gain, _pieces(gain, upgrade.same_layout_seconds, base_seconds), ax)
    _scale([gain for _, gain in upgrades], ax)
    ax.set_yticks(range(len(upgrades)), names, fontsize=LABEL)
    _legend(ax)
    title(ax, _title(upgrades), x=-(NAMES - 0.1) / inches(ax)[0])
    return ax


def _scale(gains: Sequence[float], ax: Axes) -> None:
    """Limits of both axes, with zero, and space for the figures next to the bars."""
    from matplotlib.ticker import MaxNLocator

    low, high = min([0.0, *gains]), max([MINIMUM_RANGE, *gains])
    for_figures = 0.12 * (high - low)
    ax.set_xlim(low - (for_figures if low < 0 else 0), high + for_figures)
    ax.set_ylim(len(gains) - 0.45, -0.55)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.axvline(0, color="black", linewidth=0.8)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    # else neighbouring ticks would have the same label
    digits = 1 if high - low < 5 * MINIMUM_RANGE else 0
    ax.xaxis.set_major_formatter(lambda value, _: percent(value, digits))
    ax.set_xlabel("Share of a step that is saved", fontsize=LABEL)


def _name(upgrade: Upgrade) -> str:
    """What is changed, on lines as wide as names may be."""
    width = NAMES - 0.2
    longest = int(width / text_inches("m", LABEL))
    words = [shortened(word, longest) for word in printable(upgrade.text).split(" ")]
    return wrapped(" ".join(words), width, LABEL)


def _pieces(
    gain: float, same_layout_seconds: float | None, base_seconds: float
) -> list[tuple[str, float]]:
    """Words and share of the pieces of a bar, from zero on; none that is too small to matter."""
    if gain < 0:
        pieces = [(LONGER, gain)]
    else:
        same = 0.0
        if same_layout_seconds is not None:
            same = min(max(1.0 - same_layout_seconds / base_seconds, 0.0), gain)
        if gain - same < NOTHING:
            same = gain
        pieces = [(SAME, same), (OTHER, gain - same)]
    return [(words, share) for words, share in pieces if abs(share) >= NOTHING]


def _bar(place: int, gain: float, pieces: list[tuple[str, float]], ax: Axes) -> None:
    start = 0.0
    for words, share in pieces:
        ax.barh(place, share, left=start, height=0.7, color=COLOURS[words], label=words)
        start += share
    ax.annotate(
        percent(gain) if pieces else "nothing", (max(gain, 0.0), place), xytext=(4, 0),
        textcoords="offset points", va="center", fontsize=SMALL,
    )  # fmt: skip


def _legend(ax: Axes) -> None:
    """Of the colours that are there, under the axes, where no bar can be."""
    handles, words = ax.get_legend_handles_labels()
    handle_of = dict(zip(words, handles, strict=True))
    names = [name for name in COLOURS if name in handle_of]
    if names:
        ax.legend(
            [handle_of[n] for n in names], names, loc="upper center", ncols=len(names),
            frameon=False,
            bbox_to_anchor=(0.5, -LEGEND_INCHES / inches(ax)[1]), borderaxespad=0, fontsize=SMALL,
        )  # fmt: skip


def _title(upgrades: Sequence[tuple[Upgrade, float]]) -> str:
    if not upgrades or upgrades[0][1] < NOTHING:
        return "No change that was tried makes the step shorter"
    best, gain = upgrades[0]
    return f"Largest saving, {percent(gain)} of a step: {best.text}"
