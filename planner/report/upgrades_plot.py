"""A picture of what changes of the machine would buy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.answers.outlook import Upgrade, WhatIf
from planner.report.drawing import (
    BLUE,
    LABEL,
    PALE,
    SKY,
    SMALL,
    VERMILION,
    axes_of,
    inches,
    said,
    title,
)
from planner.report.labels import wrapped
from planner.report.numbers import percent
from planner.report.what_if import NOTHING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW, TOP, BOTTOM, NAMES = 7.6, 0.3, 0.4, 0.75, 2.6
"""Inches: the page, a row, margins, the room for what each change is."""


def plot_upgrades(found: WhatIf, ax: Axes | None = None) -> Axes:
    """A bar per change, the largest saving first; how much of it the old layout has by itself."""
    base = found.plan.objective_seconds
    assert base is not None
    known = sorted(
        (u for u in found.upgrades if u.gain_fraction is not None),
        key=lambda upgrade: -(upgrade.gain_fraction or 0.0),
    )
    height = TOP + ROW * max(len(known), 1) + BOTTOM
    box = (NAMES / WIDTH, BOTTOM / height, 1 - (NAMES + 0.2) / WIDTH, 1 - (TOP + BOTTOM) / height)
    ax = axes_of(ax, WIDTH, height, box)
    told = set[str]()
    for row, upgrade in enumerate(known):
        _bar(row, upgrade, base, told, ax)
    gains = [upgrade.gain_fraction or 0.0 for upgrade in known] or [0.0]
    low, high = min([0.0, *gains]), max([0.01, *gains])
    room = 0.12 * (high - low)
    ax.set_xlim(low - (room if low < 0 else 0), high + room)
    ax.set_ylim(len(known) - 0.45, -0.55)
    names = [said(wrapped(upgrade.text, NAMES - 0.2, LABEL)) for upgrade in known]
    ax.set_yticks(range(len(known)), names, fontsize=LABEL)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    ax.axvline(0, color="black", linewidth=0.8)
    ax.xaxis.set_major_formatter(lambda value, _: percent(value, 0))
    ax.set_xlabel("Of a step that is saved", fontsize=LABEL)
    if told:
        ax.legend(loc="lower right", fontsize=SMALL, framealpha=1, edgecolor=PALE)
    title(ax, _finding(known), x=-(NAMES - 0.1) / inches(ax)[0])
    return ax


def _bar(row: int, upgrade: Upgrade, base: float, told: set[str], ax: Axes) -> None:
    gain = upgrade.gain_fraction or 0.0
    same = upgrade.same_layout_seconds
    alone = 0.0 if same is None else 1.0 - same / base
    parts = [(min(alone, gain) if gain > 0 else gain, BLUE, "the same layout")]
    if gain < 0:
        parts = [(gain, VERMILION, "takes longer")]
    elif gain - max(alone, 0.0) >= NOTHING:
        parts = [(max(alone, 0.0), BLUE, "the same layout"), (gain, SKY, "with the best layout")]
    start = 0.0
    for end, colour, words in parts:
        if abs(end - start) >= NOTHING:
            label = None if words in told else words
            ax.barh(row, end - start, left=start, height=0.7, color=colour, label=label)
            told.add(words)
        start = end
    ax.annotate(
        percent(gain) if abs(gain) >= NOTHING else "nothing", (max(gain, 0.0), row), xytext=(4, 0),
        textcoords="offset points", va="center", fontsize=SMALL,
    )  # fmt: skip


def _finding(known: list[Upgrade]) -> str:
    if not known or (known[0].gain_fraction or 0.0) < NOTHING:
        return "No change that was tried makes the step shorter"
    best = known[0]
    return f"Most is bought by {best.text}: {percent(best.gain_fraction or 0.0)} of a step"
