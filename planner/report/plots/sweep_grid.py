"""Pictures of a sweep over two axes: a figure as colour, or the layout that wins, in every cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from planner.report.plots.drawing import (
    BLUE,
    GREEN,
    GREY,
    LABEL,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    SMALL,
    VERMILION,
    YELLOW,
    axes_of,
    inches,
    ink,
    page_of,
    said,
    tint,
    title,
)
from planner.report.plots.labels import text_inches, wrapped
from planner.report.text.numbers import plural
from planner.report.text.sweep_rows import (
    COUNT,
    FORMS,
    Row,
    axis_name,
    capital,
    degrees_of,
    done,
    held,
    identity,
    no_answer,
    value_text,
    values_of,
    varying,
    where,
    with_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CATEGORY_COLOURS = (
    tint(BLUE, 0.85), tint(ORANGE, 0.75), tint(GREEN, 0.75), tint(SKY, 0.5), tint(VERMILION, 0.75),
    tint(PURPLE, 0.6), tint(YELLOW, 0.8), tint(GREY, 0.45),
)  # fmt: skip
"""One a set of degrees; from the ninth on again, hatched."""

HATCHES = ("", "//", "\\\\", "xx")

LEAST, MOST = 6.2, 11.0
"""Inches: width of the page."""

CELL_WIDTH, CELL_HEIGHT, SMALL_CELL = 1.05, 0.58, 0.24
"""Inches of a cell with text, and of one among too many."""

WIDEST_NAME, BESIDE, RIGHT, LEGEND, TOP, BOTTOM = 1.6, 0.45, 0.15, 1.5, 0.42, 0.62
"""Inches: names of rows at most, beside them; margins, the right one with a legend."""

MOST_WRITTEN = (12, 14)
"""Columns and rows up to which cells are as wide and high as their text needs."""

CELL_TEXT, TINY = 6.5, 5.0
"""Points of the text in cells, and those below which nothing is written."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of a sweep by column and row of a picture; `held` are the axes' values not shown,
    `names` those of the axes that are."""

    x: str
    y: str | None
    columns: list[Any]
    rows: list[Any]
    cells: dict[tuple[int, int], Row]
    held: dict[str, Any]
    names: dict[str, str]


def grid_of(rows: Sequence[Row], axes: Sequence[str]) -> Grid:
    """The two axes of most values, the count of accelerators across; a single axis is one row."""
    chosen = sorted(varying(rows, axes)[:2], key=lambda key: key != COUNT)
    if len(chosen) == 2 and COUNT not in chosen:
        chosen.sort(key=lambda key: -len(values_of(rows, key)))
    x = chosen[0] if chosen else axes[0]
    y = chosen[1] if len(chosen) > 1 else None
    kept, fixed = held(rows, axes, [key for key in (x, y) if key])
    columns, down = values_of(kept, x), values_of(kept, y) if y else [None]
    across = {identity(value): i for i, value in enumerate(columns)}
    along = {identity(value): j for j, value in enumerate(down)}
    cells = {
        (across[identity(row.get(x))], along[identity(row.get(y))] if y else 0): row for row in kept
    }
    names = {key: axis_name(rows, axes, key) for key in (x, y) if key}
    return Grid(x, y, columns, down, cells, fixed, names)


def plot_heat_map(
    rows: Sequence[Row], axes: Sequence[str], value: str = "mfu", ax: Axes | None = None
) -> Axes:
    """The figure `value` over two axes as colour, written with the winning layout in every cell.

    Points without a plan are hatched and say why; points that the sweep has not are left white.
    """
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    grid = grid_of(rows, axes)
    _, form, more_is_better = FORMS[value]
    known = with_figure(grid.cells.values(), value)
    figures = [row[value] for row in known] or [0.0, 1.0]
    scale = Normalize(min(figures), max(figures) if max(figures) > min(figures) else None)
    ax = _axes(grid, ax)
    colours = colormaps["cividis" if more_is_better else "cividis_r"]

    def look(row: Row) -> tuple[Any, str, str]:
        text = f"{form(row[value])}\n{said(str(row.get('layout') or ''))}"
        return colours(0.12 + 0.88 * float(scale(row[value]))), "", text

    written = _draw(grid, ax, look, {id(row) for row in known})
    if not written and known:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import ListedColormap

        shown = ListedColormap([colours(0.12 + 0.88 * i / 255) for i in range(256)])
        bar = page_of(ax).colorbar(ScalarMappable(scale, shown), ax=ax, pad=0.02, fraction=0.05)
        bar.ax.yaxis.set_major_formatter(lambda figure, _: form(figure))
        bar.ax.tick_params(labelsize=SMALL)
    title(ax, _heat_finding(grid, known, value), x=_start(ax))
    return ax


def _heat_finding(grid: Grid, known: Sequence[Row], value: str) -> str:
    name, form, more_is_better = FORMS[value]
    if not known:
        return f"{name}: no point has a plan"
    best = (max if more_is_better else min)(known, key=lambda row: row[value])
    at = where({key: best.get(key) for key in (grid.x, grid.y) if key})
    return f"{name} is best, {form(best[value])}, {said(at)}"


def plot_layout_map(rows: Sequence[Row], axes: Sequence[str], ax: Axes | None = None) -> Axes:
    """Which layout wins where: a colour per set of degrees, which the cell says too."""
    grid = grid_of(rows, axes)
    known = done(grid.cells.values())
    counts = Counter(degrees_of(row) for row in known)
    ranked = sorted(counts, key=lambda name: -counts[name])
    looks = {
        name: (
            CATEGORY_COLOURS[i % len(CATEGORY_COLOURS)],
            HATCHES[min(i // len(CATEGORY_COLOURS), len(HATCHES) - 1)],
        )
        for i, name in enumerate(ranked)
    }
    ax = _axes(grid, ax)
    written = _draw(
        grid, ax, lambda row: (*looks[degrees_of(row)], degrees_of(row)), {id(row) for row in known}
    )
    if not written:
        _legend(ax, looks)
    sets = f"{len(ranked)} sets of degrees win" if len(ranked) > 1 else "One set of degrees wins"
    first = f"{sets}; {ranked[0]} at {counts[ranked[0]]}" if ranked else "No layout wins at any"
    title(
        ax, f"{first} of {plural(len(grid.cells), 'point')}", x=_start(ax)
    )  # fmt: skip
    return ax


def _legend(ax: Axes, looks: dict[str, tuple[Any, str]]) -> None:
    from matplotlib.patches import Patch

    most = len(CATEGORY_COLOURS) * len(HATCHES)
    ax.legend(
        handles=[
            Patch(facecolor=colour, hatch=hatch, edgecolor=GREY, label=name)
            for name, (colour, hatch) in list(looks.items())[:most]
        ],
        loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=SMALL, frameon=False,
    )  # fmt: skip


def _axes(grid: Grid, ax: Axes | None) -> Axes:
    """Axes of one unit a cell, with the values at their ends."""
    columns, rows = len(grid.columns), len(grid.rows)
    downs = [wrapped(said(value_text(value)), WIDEST_NAME, SMALL) for value in grid.rows]
    left = BESIDE + (max(text_inches(text, SMALL) for text in downs) if grid.y else 0)
    names = any(isinstance(value, str) for value in grid.columns)
    many = columns > MOST_WRITTEN[0] or rows > MOST_WRITTEN[1]
    wide, high = (SMALL_CELL, SMALL_CELL) if many else (CELL_WIDTH, CELL_HEIGHT)
    right, foot = LEGEND if many else RIGHT, BOTTOM + (0.8 if names else 0)
    width = min(max(columns * wide + left + right, LEAST), MOST)
    named = text_inches(grid.names[grid.y], LABEL) if grid.y else 0.0
    height = min(max(rows * high, 0.6, named), 9.0) + TOP + foot
    box = (left / width, foot / height, 1 - (left + right) / width, 1 - (TOP + foot) / height)
    ax = axes_of(ax, width, height, box)
    ax.grid(False)
    ax.set_xlim(0, columns)
    ax.set_ylim(0, rows)
    texts = [said(value_text(value)) for value in grid.columns]
    fits = (inches(ax)[0] / columns) / (max(text_inches(text, SMALL) for text in texts) + 0.06)
    # numbers that have no room are left out, names lean
    every_x, every_y = -(-columns // 40), -(-rows // 40)
    every_x = every_x if names else max(every_x, ceil(1 / fits))
    leans = names and fits < 1
    ax.set_xticks(
        [i + 0.5 for i in range(0, columns, every_x)], texts[::every_x], fontsize=SMALL,
        rotation=30 if leans else 0, ha="right" if leans else "center", rotation_mode="anchor",
    )  # fmt: skip
    ax.set_yticks(
        [j + 0.5 for j in range(0, rows, every_y)],
        downs[::every_y] if grid.y else [""],
        fontsize=SMALL,
    )  # fmt: skip
    ax.tick_params(length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    fixed = f" ({where(grid.held)})" if grid.held else ""
    ax.set_xlabel(said(f"{capital(grid.names[grid.x])}{fixed}"), fontsize=LABEL)
    if grid.y:
        ax.set_ylabel(said(capital(grid.names[grid.y])), fontsize=LABEL)
    return ax


def _start(ax: Axes) -> float:
    """Where the page begins, in widths of the axes: titles stand over the rows' names too."""
    box = ax.get_position()
    return float((0.1 / page_of(ax).get_size_inches()[0] - box.x0) / box.width)


def _draw(
    grid: Grid, ax: Axes, look: Callable[[Row], tuple[Any, str, str]], known: set[int]
) -> bool:
    """Boxes and their texts; return whether the texts had room."""
    from matplotlib.patches import Rectangle

    width, height = inches(ax)
    wide, high = width / len(grid.columns), height / len(grid.rows)
    looks = {
        place: look(row) if id(row) in known else ("#F2F2F2", "///", no_answer(row))
        for place, row in grid.cells.items()
    }
    texts = {place: wrapped(text, 0.94 * wide, CELL_TEXT) for place, (*_, text) in looks.items()}
    size = min((_size(text, wide, high) for text in texts.values()), default=SMALL)
    for (i, j), (colour, hatch, _) in looks.items():
        without = id(grid.cells[i, j]) not in known
        ax.add_patch(
            Rectangle((i, j), 1, 1, facecolor=colour, hatch=hatch,
                      edgecolor=PALE if without else "white", linewidth=1.0)
        )  # fmt: skip
        if size < TINY:
            continue
        colour_of_text = "black" if without else ink(colour)
        box = {"facecolor": "#F2F2F2", "edgecolor": "none", "pad": 1.0} if without else None
        ax.text(
            i + 0.5, j + 0.5, texts[i, j], fontsize=size, ha="center", va="center",
            color=colour_of_text, linespacing=1.15, bbox=box,
        )  # fmt: skip
    return size >= TINY


def _size(text: str, wide: float, high: float) -> float:
    """Points at which a text fits a cell."""
    lines = text.count("\n") + 1
    across = 0.92 * wide / max(text_inches(text, 1.0), 1e-9)
    return min(SMALL, across, 0.94 * high * 72 / (1.25 * lines))
