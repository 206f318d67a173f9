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
    escaped,
    inches,
    page_of,
    text_colour,
    tint,
    title,
)
from planner.report.plots.labels import text_inches, wrapped
from planner.report.text.numbers import plural
from planner.report.text.sweep_rows import (
    COUNT,
    FORMS,
    Row,
    at_fixed_values,
    axis_name,
    capital,
    degrees_of,
    identity,
    planned,
    text_without_plan,
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
"""One per set of degrees; from the ninth on they repeat, hatched."""

HATCHES = ("", "//", "\\\\", "xx")

NARROWEST, WIDEST = 6.2, 11.0
"""Inches: width of the page."""

CELL_WIDTH, CELL_HEIGHT, SMALL_CELL = 1.05, 0.58, 0.24
"""Inches of a cell with text, and of one of too many."""

WIDEST_NAME, LEFT, RIGHT, LEGEND, TOP, BOTTOM = 1.6, 0.45, 0.15, 1.5, 0.42, 0.62
"""Inches: the widest name of a row; margins, the left one beside the names, the right one without
and with a legend."""

MOST_WRITTEN = (12, 14)
"""Columns and rows up to which cells are as wide and high as their text needs."""

CELL_TEXT, TINY = 6.5, 5.0
"""Points of the text in cells, and those below which none is written."""

WITHOUT_PLAN = "#F2F2F2"
"""Colour of a cell without a plan."""

Look = tuple[Any, str, str]
"""Colour, hatch and text of a cell."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of a sweep by column and row of a picture.

    x, y: axes across and down. columns, rows: their values. fixed: values of the axes that are not
    shown. names: words of those that are.
    """

    x: str
    y: str | None
    columns: list[Any]
    rows: list[Any]
    cells: dict[tuple[int, int], Row]
    fixed: dict[str, Any]
    names: dict[str, str]


def grid_of(rows: Sequence[Row], axes: Sequence[str]) -> Grid:
    """The two axes with most values, the count of accelerators across; one axis gives one row."""
    chosen = sorted(varying(rows, axes)[:2], key=lambda key: key != COUNT)
    if len(chosen) == 2 and COUNT not in chosen:
        chosen.sort(key=lambda key: -len(values_of(rows, key)))
    x = chosen[0] if chosen else axes[0]
    y = chosen[1] if len(chosen) > 1 else None
    kept, fixed = at_fixed_values(rows, axes, [key for key in (x, y) if key])
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
    """The figure `value` over two axes as colour, with the winning layout in every cell.

    Points without a plan are hatched and say why; cells without a point are white.
    """
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    grid = grid_of(rows, axes)
    _, form, more_is_better = FORMS[value]
    known = with_figure(grid.cells.values(), value)
    figures = [row[value] for row in known] or [0.0, 1.0]
    # equal figures would leave the scale without a length
    scale = Normalize(min(figures), max(figures) if max(figures) > min(figures) else None)
    ax = _axes(grid, ax)
    colours = colormaps["cividis" if more_is_better else "cividis_r"]

    def colour_at(share: float) -> Any:
        return colours(0.12 + 0.88 * share)  # its dark end would hide the text

    def look(row: Row) -> Look:
        text = f"{form(row[value])}\n{escaped(str(row.get('layout') or ''))}"
        return colour_at(float(scale(row[value]))), "", text

    written = _draw(grid, ax, look, {id(row) for row in known})
    if not written and known:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import ListedColormap

        shown = ListedColormap([colour_at(i / 255) for i in range(256)])
        bar = page_of(ax).colorbar(ScalarMappable(scale, shown), ax=ax, pad=0.02, fraction=0.05)
        bar.ax.yaxis.set_major_formatter(lambda figure, _: form(figure))
        bar.ax.tick_params(labelsize=SMALL)
    title(ax, _heat_title(grid, known, value), x=_page_left(ax))
    return ax


def _heat_title(grid: Grid, known: Sequence[Row], value: str) -> str:
    name, form, more_is_better = FORMS[value]
    if not known:
        return f"{name}: no point has a plan"
    best = (max if more_is_better else min)(known, key=lambda row: row[value])
    at = where({key: best.get(key) for key in (grid.x, grid.y) if key})
    return f"Best {name}: {form(best[value])}, {escaped(at)}"


def plot_layout_map(rows: Sequence[Row], axes: Sequence[str], ax: Axes | None = None) -> Axes:
    """Which layout wins where: a colour per set of degrees, which is written in the cell too."""
    grid = grid_of(rows, axes)
    known = planned(grid.cells.values())
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
    title(ax, f"{first} of {plural(len(grid.cells), 'point')}", x=_page_left(ax))
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
    """Axes of one unit per cell, with the values at their ends."""
    columns, rows = len(grid.columns), len(grid.rows)
    row_names = [wrapped(escaped(value_text(value)), WIDEST_NAME, SMALL) for value in grid.rows]
    left = LEFT + (max(text_inches(text, SMALL) for text in row_names) if grid.y else 0)
    are_names = any(isinstance(value, str) for value in grid.columns)
    many = columns > MOST_WRITTEN[0] or rows > MOST_WRITTEN[1]
    cell_width, cell_height = (SMALL_CELL, SMALL_CELL) if many else (CELL_WIDTH, CELL_HEIGHT)
    right, foot = LEGEND if many else RIGHT, BOTTOM + (0.8 if are_names else 0)
    width = min(max(columns * cell_width + left + right, NARROWEST), WIDEST)
    y_name = text_inches(grid.names[grid.y], LABEL) if grid.y else 0.0
    # a page can be printed
    height = min(max(rows * cell_height, 0.6, y_name), 9.0) + TOP + foot
    box = (left / width, foot / height, 1 - (left + right) / width, 1 - (TOP + foot) / height)
    ax = axes_of(ax, width, height, box)
    ax.grid(False)
    ax.set_xlim(0, columns)
    ax.set_ylim(0, rows)
    _name_columns(grid, are_names, ax)
    every = -(-rows // 40)
    ax.set_yticks(
        [j + 0.5 for j in range(0, rows, every)], row_names[::every] if grid.y else [""],
        fontsize=SMALL,
    )  # fmt: skip
    ax.tick_params(length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    fixed = f" ({where(grid.fixed)})" if grid.fixed else ""
    ax.set_xlabel(escaped(f"{capital(grid.names[grid.x])}{fixed}"), fontsize=LABEL)
    if grid.y:
        ax.set_ylabel(escaped(capital(grid.names[grid.y])), fontsize=LABEL)
    return ax


def _name_columns(grid: Grid, are_names: bool, ax: Axes) -> None:
    """The values across: numbers that do not fit are left out, names are tilted."""
    columns = len(grid.columns)
    texts = [escaped(value_text(value)) for value in grid.columns]
    widest = max(text_inches(text, SMALL) for text in texts) + 0.06
    fits = inches(ax)[0] / columns / widest
    every = -(-columns // 40)
    every = every if are_names else max(every, ceil(1 / fits))
    tilted = are_names and fits < 1
    ax.set_xticks(
        [i + 0.5 for i in range(0, columns, every)], texts[::every], fontsize=SMALL,
        rotation=30 if tilted else 0, ha="right" if tilted else "center", rotation_mode="anchor",
    )  # fmt: skip


def _page_left(ax: Axes) -> float:
    """Where the page begins, in widths of the axes: titles are over the rows' names too."""
    box = ax.get_position()
    return float((0.1 / page_of(ax).get_size_inches()[0] - box.x0) / box.width)


def _draw(grid: Grid, ax: Axes, look: Callable[[Row], Look], known: set[int]) -> bool:
    """Draw boxes and their texts; return whether the texts fitted."""
    from matplotlib.patches import Rectangle

    width, height = inches(ax)
    cell_width, cell_height = width / len(grid.columns), height / len(grid.rows)
    looks = {
        place: look(row) if id(row) in known else (WITHOUT_PLAN, "///", text_without_plan(row))
        for place, row in grid.cells.items()
    }
    texts = {
        place: wrapped(text, 0.94 * cell_width, CELL_TEXT) for place, (*_, text) in looks.items()
    }
    sizes = (_fitting_size(text, cell_width, cell_height) for text in texts.values())
    # one size for all cells, that of the longest text
    size = min(sizes, default=SMALL)
    for (i, j), (colour, hatch, _) in looks.items():
        has_plan = id(grid.cells[i, j]) in known
        ax.add_patch(
            Rectangle((i, j), 1, 1, facecolor=colour, hatch=hatch,
                      edgecolor="white" if has_plan else PALE, linewidth=1.0)
        )  # fmt: skip
        if size < TINY:
            continue
        # a plain background under the text where the cell is hatched
        box = None if has_plan else {"facecolor": WITHOUT_PLAN, "edgecolor": "none", "pad": 1.0}
        ax.text(
            i + 0.5, j + 0.5, texts[i, j], fontsize=size, ha="center", va="center",
            color=text_colour(colour) if has_plan else "black", linespacing=1.15, bbox=box,
        )  # fmt: skip
    return size >= TINY


def _fitting_size(text: str, width: float, height: float) -> float:
    """Points at which a text fits a cell of this size in inches."""
    lines = text.count("\n") + 1
    by_width = 0.92 * width / max(text_inches(text, 1.0), 1e-9)
    return min(SMALL, by_width, 0.94 * height * 72 / (1.25 * lines))
