"""A picture of who sits in which domain: every tier's repeating unit, from the cluster down.

A panel per tier shows one domain and its children, innermost tier last; a panel is the inside of
the marked box above it. Children stand in rows and columns of the atoms that vary there, so that a
panel of 32 nodes says 'pp down, dp across' once instead of in every box; long rows show their
beginning and their end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from planner.layouts.rank_orders import atom_coordinates
from planner.planning.plan import Plan
from planner.problem.scenario import scenario_from_document
from planner.report.plots.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LABEL,
    ORANGE,
    PURPLE,
    SMALL,
    VERMILION,
    figure_of,
    inches,
    ink,
    said,
    tint,
    title,
)
from planner.report.plots.labels import text_inches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Part = tuple[str, int, int]
"""Atom, how many of its members a tier tells apart, and how many each of those holds."""

COLOURS = {"tp": BLUE, "cp": GREEN, "dp_shard": ORANGE, "dp_replicate": PURPLE, "pp": VERMILION}
"""Colour of each axis."""

WIDTH, CELL, HEAD, GAP, MARGIN, SIDE = 7.6, 0.27, 0.46, 0.16, 0.12, 0.7
"""Inches: page, a row of boxes, a panel's heads, between panels, around, rows' names."""

MOST_COLUMNS, MOST_ROWS, MOST_STRINGS = 16, 10, 4
"""Boxes shown of a row and of a column, between whose beginning and end others are left out; boxes
with words in a row."""

READABLE, FILLED = 5.5, 0.86
"""Points below which boxes say less rather than smaller; share of a box's width for its text."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A domain of a tier: its children as rows and columns of the parts that vary there.

    inner_across: whether columns are the inner parts. child_ranks: ranks in a child. domains: how
    many domains of the tier there are.
    """

    tier: str
    below: str
    columns: tuple[Part, ...]
    rows: tuple[Part, ...]
    child_ranks: int
    domains: int
    inner_across: bool = True
    strings: tuple[str, ...] = ()  # what each child holds, where atoms do not nest in domains

    @property
    def num_columns(self) -> int:
        return prod(size for _, size, _ in self.columns)

    @property
    def num_rows(self) -> int:
        return prod(size for _, size, _ in self.rows)

    def child(self, row: int, column: int) -> int:
        """Which child stands there, counted as ranks are."""
        if self.inner_across:
            return row * self.num_columns + column
        return column * self.num_rows + row


def split_order(order: Sequence[tuple[str, int]], sizes: Sequence[int]) -> list[list[Part]] | None:
    """The parts of the rank order that each tier tells apart, inner to outer.

    sizes: children of each tier. None where a domain's boundary falls inside an atom unevenly.
    """
    rest = [(atom, factor) for atom, factor in order if factor > 1]
    reached: dict[str, int] = {}
    tiers: list[list[Part]] = []
    for size in sizes:
        parts: list[Part] = []
        while size > 1:
            if not rest:
                return None
            atom, factor = rest.pop(0)
            if factor > size:
                if factor % size:
                    return None
                rest.insert(0, (atom, factor // size))
                factor = size
            elif size % factor:
                return None
            parts.append((atom, factor, reached.get(atom, 1)))
            reached[atom] = reached.get(atom, 1) * factor
            size //= factor
        tiers.append(parts)
    return tiers


def panels(plan: Plan) -> list[Panel]:
    """What to draw, outermost tier first; tiers of which one child is used are left out."""
    assert plan.fill is not None and plan.rank_order is not None
    names = [t.name for t in scenario_from_document(plan.inputs, "plan").topology.tiers]
    sizes = [plan.fill.get(name, 1) for name in names]
    split = split_order(plan.rank_order, sizes)
    found, below = [], "accelerator"
    for i, (name, size) in enumerate(zip(names, sizes, strict=True)):
        inside = prod(sizes[:i])
        if size > 1:
            domains = prod(sizes[i + 1 :])
            if split is None:
                found.append(_uneven(plan, name, below, inside, size, domains))
            else:
                found.append(_even(split[i], name, below, inside, domains))
            below = f"{name} domain"
    return found[::-1]


def _even(parts: Sequence[Part], tier: str, below: str, inside: int, domains: int) -> Panel:
    """The outermost part down and the others across, or the other way where that is flatter."""
    *inner, outer = parts
    across, down = tuple(inner), (outer,)
    if prod(size for _, size, _ in across) < outer[1]:
        return Panel(tier, below, down, across, inside, domains, inner_across=False)
    return Panel(tier, below, across, down, inside, domains)


def _uneven(plan: Plan, tier: str, below: str, inside: int, size: int, domains: int) -> Panel:
    """Children with what each holds written in, where atoms do not nest in domains."""
    assert plan.rank_order is not None
    across = min(size, MOST_STRINGS)
    strings = _holdings(plan.rank_order, inside, size)
    grid = ((("", across, 1),), (("", -(-size // across), 1),))
    return Panel(tier, below, *grid, inside, domains, strings=strings)


def _holdings(order: Sequence[tuple[str, int]], inside: int, size: int) -> tuple[str, ...]:
    """What each child of a tier's first domain holds: 'tp 0–5, dp 3'."""
    coordinates = {
        atom: values for atom, values in atom_coordinates(order).items() if values.max() > 0
    }
    found = []
    for child in range(size):
        ranks = slice(child * inside, (child + 1) * inside)
        found.append(
            ", ".join(
                f"{_short(atom)} {_range(int(values[ranks].min()), int(values[ranks].max()))}"
                for atom, values in coordinates.items()
                if len(set(values[ranks].tolist())) < int(values.max()) + 1
            )
        )
    return tuple(found)


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _short(atom: str) -> str:
    """'dp_shard.ep' as 'dp·ep': data ranks that are expert ranks too."""
    axis, _, expert = atom.partition(".")
    name = {"dp_shard": "dp", "dp_replicate": "replica"}.get(axis, axis)
    return f"{name}·{expert}" if expert else name


def plot_placement(plan: Plan, ax: Axes | None = None) -> Axes:
    """Every tier's domain with the ranks of its children (of wide ones the first rank)."""
    shown = panels(plan)
    heights = [HEAD + CELL * len(_kept(panel.num_rows, MOST_ROWS)) for panel in shown]
    total = 2 * MARGIN + 0.3 + sum(heights) + GAP * max(len(shown) - 1, 0)
    if ax is None:
        figure = figure_of(WIDTH, total)
        ax = figure.add_axes((MARGIN / WIDTH, 0, 1 - 2 * MARGIN / WIDTH, 1 - 0.32 / total))
    width, height = inches(ax)
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)  # inches from the top
    ax.axis("off")
    top = 0.12
    for number, (panel, high) in enumerate(zip(shown, heights, strict=True)):
        _draw(panel, ax, top, number > 0, number < len(shown) - 1)
        top += high + GAP
    title(ax, _finding(plan, shown))
    return ax


def _kept(number: int, most: int) -> list[int | None]:
    """Positions shown, None where some are left out."""
    if number <= most:
        return list(range(number))
    return [*range(most - 2), None, number - 1]


def _draw(panel: Panel, ax: Axes, top: float, inside: bool, opened: bool) -> None:
    """Draw a panel. inside: of the box marked above. opened: its first box is the next panel."""
    width, _ = inches(ax)
    columns = _kept(panel.num_columns, MOST_COLUMNS)
    rows = _kept(panel.num_rows, MOST_ROWS)
    cell = min((width - SIDE) / len(columns), 1.7)
    size, texts = _texts(panel, cell)
    ax.text(0, top + 0.07, _heading(panel, inside), fontsize=LABEL, va="center", fontweight="bold")
    names = ["…" if column is None else _member(panel.columns, column) for column in columns]
    if max(text_inches(name, SMALL) for name in names) > 0.96 * cell:
        names[1:] = [name.rpartition(" ")[2] for name in names[1:]]
    for i, name in enumerate(names):
        ax.text(SIDE + (i + 0.5) * cell, top + HEAD - 0.09, name, fontsize=SMALL, ha="center",
                va="center", color=GREY)  # fmt: skip
    for j, row in enumerate(rows):
        y = top + HEAD + j * CELL
        name = "…" if row is None else _member(panel.rows, row)
        ax.text(SIDE - 0.06, y + CELL / 2, name, fontsize=SMALL, ha="right", va="center",
                color=GREY)  # fmt: skip
        for i, column in enumerate(columns):
            if row is None or column is None:
                ax.text(SIDE + (i + 0.5) * cell, y + CELL / 2, "…", ha="center", va="center",
                        fontsize=LABEL, color=GREY)  # fmt: skip
            elif not panel.strings or panel.child(row, column) < len(panel.strings):
                marked = opened and panel.child(row, column) == 0
                colour, left = _colour(panel, row, column), SIDE + i * cell
                _box((left, y, cell), colour, marked, ax)
                ax.text(left + cell / 2, y + CELL / 2, texts(panel.child(row, column)),
                        fontsize=size, ha="center", va="center", color=ink(colour))  # fmt: skip


def _texts(panel: Panel, width: float) -> tuple[float, Callable[[int], str]]:
    """What stands in a child's box of this width, its ranks or what it holds, and of which size.

    Of one size and form in a panel: the longest text decides.
    """
    last = (len(panel.strings) or panel.num_columns * panel.num_rows) - 1
    longest = max((*panel.strings, _range(*_ranks(panel, last))), key=len)
    size = _fitting(longest, width)
    if panel.strings:
        return size, panel.strings.__getitem__
    if size >= READABLE:
        return size, lambda child: _range(*_ranks(panel, child))
    return _fitting(f"{_ranks(panel, last)[0]:,}", width), lambda k: f"{_ranks(panel, k)[0]:,}"


def _fitting(text: str, width: float) -> float:
    return min(SMALL, SMALL * FILLED * width / text_inches(text, SMALL))


def _box(place: tuple[float, float, float], colour: Any, marked: bool, ax: Axes) -> None:
    """A child at (left, top, width)."""
    from matplotlib.patches import Rectangle

    left, top, width = place
    ax.add_patch(
        Rectangle(
            (left + 0.015, top + 0.015), width - 0.03, CELL - 0.03, facecolor=colour,
            edgecolor=BLACK if marked else GREY, linewidth=2.0 if marked else 0.5,
        )
    )  # fmt: skip


def _ranks(panel: Panel, child: int) -> tuple[int, int]:
    """First and last rank of a child."""
    return child * panel.child_ranks, (child + 1) * panel.child_ranks - 1


def _member(parts: Sequence[Part], position: int) -> str:
    """Which members of the parts' atoms a position holds: 'pp 3', 'cp 1 dp 16–31'."""
    words = []
    for atom, size, each in parts:
        if atom:
            low = position % size * each
            words.append(f"{_short(atom)} {_range(low, low + each - 1)}")
            position //= size
    return " ".join(words)


def _colour(panel: Panel, row: int, column: int) -> Any:
    """Of the outermost axis that varies in the panel, darker from member to member."""
    parts, position = (panel.rows, row) if panel.rows else (panel.columns, column)
    if panel.strings:
        return tint(GREY, 0.12)
    for _, size, _ in parts[:-1]:
        position //= size
    atom, size, _ = parts[-1]
    colour = COLOURS[atom.partition(".")[0]]
    return tint(colour, 0.15 + 0.6 * (position / (size - 1) if size > 1 else 0))


def _heading(panel: Panel, inside: bool) -> str:
    number = len(panel.strings) or panel.num_columns * panel.num_rows
    parts = [*panel.rows, *panel.columns] if panel.inner_across else [*panel.columns, *panel.rows]
    factors = " × ".join(f"{_short(atom)} {size}" for atom, size, _ in parts if atom)
    tier = said(panel.tier)
    where = f"{tier}: all" if panel.domains == 1 else f"one of {panel.domains:,} {tier} domains:"
    children = f"{number:,} {said(panel.below)}{'s' if number != 1 else ''}"
    ranks = "" if panel.child_ranks == 1 else f" of {panel.child_ranks:,} ranks"
    text = f"{where} {children}{ranks}" + (f" = {factors}" if factors else "")
    return f"Inside the marked box, {text}" if inside else f"{text[0].upper()}{text[1:]}"


def _finding(plan: Plan, shown: Sequence[Panel]) -> str:
    """Where the axes live, as the title says it: 'tp within nvlink; cp, pp within leaf'."""
    assert plan.fill is not None
    reach: dict[str, str] = {}
    inner_first = shown[::-1]
    for panel in inner_first:
        for atom, _, _ in (*panel.columns, *panel.rows):
            reach |= {name: panel.tier for name in _short(atom).split("·") if name}
    lives = "; ".join(
        f"{', '.join(name for name in reach if reach[name] == panel.tier)} "
        f"within {said(panel.tier)}"
        for panel in inner_first
        if panel.tier in reach.values()
    )
    ranks = f"{prod(plan.fill.values()):,} ranks"
    return f"{ranks}: {lives}" if lives else f"{ranks}, by domain"
