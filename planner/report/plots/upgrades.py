"""A picture of what changes of the machine would buy."""

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
    inches,
    said_lines,
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
"""Inches: the page, a row, a further line of its name, margins, the room for names."""

LEGEND_INCHES = 0.42
"""How far the legend is under the axes, below what they are of."""

LEAST_RANGE = 0.01
"""Share of a step that the axis shows at least; five of them have ticks of whole percents."""

SAME, OTHER, LONGER = "by the same layout", "more by another", "takes longer"
COLOURS = {SAME: BLUE, OTHER: SKY, LONGER: VERMILION}


def plot_upgrades(found: WhatIf, ax: Axes | None = None) -> Axes:
    """A bar per change that can be, the largest saving first: what the layout as it is saves, and
    what planning anew saves beyond it."""
    base = found.plan.objective_seconds
    assert base is not None
    known = sorted(
        ((u, u.gain_fraction) for u in found.upgrades if u.gain_fraction is not None),
        key=lambda pair: -pair[1],
    )
    names = [said_lines(_name(upgrade)) for upgrade, _ in known]
    row = ROW + LINE * max((name.count("\n") for name in names), default=0)
    height = TOP + row * max(len(known), 1) + BOTTOM
    box = (NAMES / WIDTH, BOTTOM / height, 1 - (NAMES + 0.2) / WIDTH, 1 - (TOP + BOTTOM) / height)
    ax = axes_of(ax, WIDTH, height, box)
    for place, (upgrade, gain) in enumerate(known):
        _bar(place, gain, _parts(gain, upgrade.same_layout_seconds, base), ax)
    _scale([gain for _, gain in known], ax)
    ax.set_yticks(range(len(known)), names, fontsize=LABEL)
    _legend(ax)
    title(ax, _finding(known), x=-(NAMES - 0.1) / inches(ax)[0])
    return ax


def _scale(gains: Sequence[float], ax: Axes) -> None:
    """Both axes, with zero, and room for what is written beside the bars."""
    from matplotlib.ticker import MaxNLocator

    low, high = min([0.0, *gains]), max([LEAST_RANGE, *gains])
    room = 0.12 * (high - low)
    ax.set_xlim(low - (room if low < 0 else 0), high + room)
    ax.set_ylim(len(gains) - 0.45, -0.55)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.axvline(0, color="black", linewidth=0.8)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    digits = 1 if high - low < 5 * LEAST_RANGE else 0
    ax.xaxis.set_major_formatter(lambda value, _: percent(value, digits))
    ax.set_xlabel("Of a step that is saved", fontsize=LABEL)


def _name(upgrade: Upgrade) -> str:
    """What is changed, on lines that the room for names holds."""
    room = NAMES - 0.2
    longest = int(room / text_inches("m", LABEL))
    words = [shortened(word, longest) for word in printable(upgrade.text).split(" ")]
    return wrapped(" ".join(words), room, LABEL)


def _parts(gain: float, same_seconds: float | None, base: float) -> list[tuple[str, float]]:
    """What a bar is made of, from zero on; nothing that is too small to be told."""
    if gain < 0:
        found = [(LONGER, gain)]
    else:
        alone = 0.0 if same_seconds is None else min(max(1.0 - same_seconds / base, 0.0), gain)
        if gain - alone < NOTHING:
            alone = gain
        found = [(SAME, alone), (OTHER, gain - alone)]
    return [(words, part) for words, part in found if abs(part) >= NOTHING]


def _bar(place: int, gain: float, parts: list[tuple[str, float]], ax: Axes) -> None:
    start = 0.0
    for words, part in parts:
        ax.barh(place, part, left=start, height=0.7, color=COLOURS[words], label=words)
        start += part
    ax.annotate(
        percent(gain) if parts else "nothing", (max(gain, 0.0), place), xytext=(4, 0),
        textcoords="offset points", va="center", fontsize=SMALL,
    )  # fmt: skip


def _legend(ax: Axes) -> None:
    """Of the colours that are there, under the axes: bars leave no corner free for certain."""
    handles, words = ax.get_legend_handles_labels()
    of = dict(zip(words, handles, strict=True))
    told = [name for name in COLOURS if name in of]
    if told:
        ax.legend(
            [of[name] for name in told], told, loc="upper center", ncols=len(told), frameon=False,
            bbox_to_anchor=(0.5, -LEGEND_INCHES / inches(ax)[1]), borderaxespad=0, fontsize=SMALL,
        )  # fmt: skip


def _finding(known: Sequence[tuple[Upgrade, float]]) -> str:
    if not known or known[0][1] < NOTHING:
        return "No change that was tried makes the step shorter"
    best, gain = known[0]
    return f"Most is bought by {best.text}: {percent(gain)} of a step"
